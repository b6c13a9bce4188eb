"""ckpt.integrations.deepspeed: DeepSpeed resumes from the files that we wrote in its layout; a file appears complete."""
import os
import pathlib
import stat
import subprocess
import sys
import zipfile

import ckpt
import pytest
import torch
from ckpt import _torch_file
from conftest import ROOT
from test_dcp import job
from test_run import TORCH_DTYPES, bits, of_bytes


def test_deepspeed_resumes_from_our_files_and_we_from_its(tmp_path):
    pytest.importorskip("deepspeed")
    job("deepspeed_job.py", "save", tmp_path, 2)
    job("deepspeed_job.py", "load", tmp_path, 2)
    for stage in range(4):
        ours, stock = tmp_path / f"ours{stage}", tmp_path / f"stock{stage}"
        names = sorted(path.name for path in (ours / "global_step3").iterdir())
        assert names == sorted(path.name for path in (stock / "global_step3").iterdir())
        assert (ours / "latest").read_text() == "later" and sorted(os.listdir(ours / "later")) == names
        assert ckpt.verify(ours / "global_step3").ok and ckpt.diff(ours / "global_step3", stock / "global_step3").ok
        assert ckpt.open(ours / "later").info.format == "deepspeed"
    converted = subprocess.run([sys.executable, str(tmp_path / "ours2" / "zero_to_fp32.py"), str(tmp_path / "ours2"), str(tmp_path / "fp32")],
                               capture_output=True, text=True)
    assert converted.returncode == 0 and list((tmp_path / "fp32").iterdir()), converted.stderr


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_torch_loads_every_dtype_and_form(tmp_path, dtype):
    whole = of_bytes(dtype, (6, 4))
    value = {"whole": whole, "t": whole.t(), "row": whole[3], "empty": whole[:0], "words": ["é", {2: None}], "parameter":
             torch.nn.Parameter(torch.ones(2)), "own": of_bytes(dtype, (5,))}
    _torch_file.write(value, str(tmp_path / "a.pt"), 2)
    torch.save(value, tmp_path / "b.pt")
    for options in ({"weights_only": True}, {"weights_only": True, "mmap": True}, {"weights_only": False}):
        got = torch.load(tmp_path / "a.pt", **options)
        assert all(bits(got[name]) == bits(value[name]) for name in ("whole", "t", "row", "empty", "own")) and got["words"] == value["words"]
        assert got["whole"].data_ptr() == got["t"].data_ptr() and isinstance(got["parameter"], torch.nn.Parameter)
    assert zipfile.ZipFile(tmp_path / "a.pt").testzip() is None and sorted(os.listdir(tmp_path)) == ["a.pt", "b.pt"]
    assert stat.S_IMODE((tmp_path / "a.pt").stat().st_mode) == stat.S_IMODE((tmp_path / "b.pt").stat().st_mode)


def test_data_begins_at_multiples_of_64_also_in_files_of_many_gigabytes(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)  # as if 1000 bytes were the most that 32 bits count
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 10)
    value = {f"w{i}": torch.randn(100 * i + 1) for i in range(20)}
    _torch_file.write(value, str(tmp_path / "a.pt"), 1)
    got = torch.load(tmp_path / "a.pt", mmap=True)
    assert all(torch.equal(got[name], tensor) for name, tensor in value.items())
    assert all(tensor.data_ptr() % 64 == 0 for tensor in got.values())
    assert ckpt.verify(tmp_path / "a.pt").ok and len(ckpt.open(tmp_path / "a.pt")) == 20


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    _torch_file.write({"w": torch.ones(4)}, str(path), 2)
    with pytest.raises(Exception, match="pickle"):
        _torch_file.write({"w": torch.zeros(4), "f": lambda: 0}, str(path), 2)
    code = ("import resource, signal, sys; sys.path[:0] = sys.argv[2:]; import conftest, torch, ckpt; from ckpt import _torch_file\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
            "try: _torch_file.write({'w': torch.zeros(1 << 20)}, sys.argv[1], 2)\nexcept ckpt.Error as reason: print(reason.code)")
    out = subprocess.run([sys.executable, "-c", code, path, str(ROOT / "python"), str(ROOT / "tests/python")], capture_output=True, text=True)
    assert out.stdout.strip() in ("14", "16"), out
    with pytest.raises(ckpt.Error):
        _torch_file.write({"w": torch.zeros(4)}, str(tmp_path / "nosuch" / "a.pt"), 2)
    assert torch.load(path)["w"].sum() == 4 and os.listdir(tmp_path) == ["a.pt"]


def test_the_next_write_removes_what_a_killed_one_left(tmp_path):
    path = pathlib.Path(tmp_path / "a.pt")
    code = ("import os, sys; sys.path[:0] = sys.argv[2:]; import conftest, torch; from ckpt import _torch_file\n"
            "_torch_file.os.rename = lambda *names: os.kill(os.getpid(), 9)\n_torch_file.write({'w': torch.zeros(4)}, sys.argv[1], 2)")
    subprocess.run([sys.executable, "-c", code, path, str(ROOT / "python"), str(ROOT / "tests/python")], capture_output=True)
    assert len(os.listdir(tmp_path)) == 1 and not path.exists()
    _torch_file.write({"w": torch.ones(4)}, str(path), 2)
    assert os.listdir(tmp_path) == ["a.pt"]
