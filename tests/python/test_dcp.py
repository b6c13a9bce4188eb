"""ckpt.dcp: what torch's writer and ours save, both readers load; a save that fails leaves nothing."""
import gc
import io
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import ckpt
import pytest
import torch
import torch.distributed.checkpoint as dcp
from ckpt.dcp import Reader, Writer
from conftest import ROOT
from test_run import TORCH_DTYPES, bits, of_bytes
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def loaded(path, reader, like):
    """A state of the same form, loaded."""
    state = {name: torch.zeros_like(value) if torch.is_tensor(value) else None for name, value in like.items()}
    dcp.load(state, storage_reader=reader(path))
    return state


def job(script, what, directory, world):
    """Runs a job of several ranks to its end."""
    ranks = [subprocess.Popen([sys.executable, str(ROOT / "tests/python" / script), what, str(directory), str(rank), str(world)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(world)]
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(0.05)
    for rank in ranks:  # the others of one that failed end soon by themselves
        try:
            rank.wait(timeout=20)
        except subprocess.TimeoutExpired:
            rank.kill()
    outputs = [rank.communicate()[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(outputs)


def test_ranks_save_and_another_number_loads(tmp_path):
    job("dcp_job.py", "save", tmp_path, 2)
    job("dcp_job.py", "load", tmp_path, 2)
    job("dcp_job.py", "load", tmp_path, 3)
    whole = torch.load(_merged(tmp_path / "ours"), weights_only=False)
    stock = torch.load(_merged(tmp_path / "stock"), weights_only=False)
    for name, tensor in stock["model"].items():
        assert bits(whole["model"][name]) == bits(tensor)
    assert ckpt.verify(tmp_path / "ours").ok and ckpt.diff(tmp_path / "ours", tmp_path / "stock").ok


def _merged(path):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(path, path.with_suffix(".pt"))
    return path.with_suffix(".pt")


@pytest.mark.parametrize("dtype", [*TORCH_DTYPES, torch.complex128], ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype):
    whole = of_bytes(dtype, (6, 4))
    state = {"whole": whole, "transposed": whole.t(), "strided": whole[::2, 1:3], "scalar": whole[0, 0], "empty": whole[:0]}
    dcp.save(state, storage_writer=Writer(tmp_path / "a"))
    for reader in (Reader, dcp.FileSystemReader):
        got = loaded(tmp_path / "a", reader, state)
        assert all(bits(got[name]) == bits(value) for name, value in state.items())
    into = {"transposed": of_bytes(dtype, (6, 4)).t(), "strided": of_bytes(dtype, (6, 4))[::2, 1:3]}
    dcp.load(into, storage_reader=Reader(tmp_path / "a"))  # memory that is not dense
    assert all(bits(into[name]) == bits(state[name]) for name in into)


def test_objects_and_tensors_that_only_torch_knows(tmp_path):
    state = {"list": [1, {"two": torch.ones(2)}], "none": None, "text": "é", "class": pathlib.Path("x"),
             "conjugated": torch.randn(3, dtype=torch.complex64).conj()}
    dcp.save(state, storage_writer=Writer(tmp_path / "a"))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "stock"))
    for path, reader in (("a", Reader), ("a", dcp.FileSystemReader), ("stock", Reader)):
        into = {"list": [0, {"two": torch.zeros(2)}], "none": 1, "text": "", "class": None, "conjugated": torch.zeros(3, dtype=torch.complex64)}
        dcp.load(into, storage_reader=reader(tmp_path / path))
        assert into["list"][0] == 1 and torch.equal(into["list"][1]["two"], torch.ones(2)) and into["none"] is None
        assert into["text"] == "é" and into["class"] == pathlib.Path("x") and torch.equal(into["conjugated"], state["conjugated"])


def test_another_dtype_is_converted_as_torch_does(tmp_path):
    dcp.save({"w": torch.arange(6.0)}, storage_writer=Writer(tmp_path / "a"))
    into = {"w": torch.zeros(6, dtype=torch.float64)}
    dcp.load(into, storage_reader=Reader(tmp_path / "a"))
    assert torch.equal(into["w"], torch.arange(6.0).double())


def test_several_files_of_one_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(ckpt.dcp, "_MOST_FILE", 1 << 16)
    monkeypatch.setattr(ckpt.dcp, "_MOST_READ", 1 << 14)
    state = {f"w{i}": torch.randn(100, 100).t() for i in range(9)}
    dcp.save(state, storage_writer=Writer(tmp_path / "a"))
    assert len(list((tmp_path / "a").glob("__0_*.distcp"))) == 9
    for reader in (Reader, dcp.FileSystemReader):
        got = loaded(tmp_path / "a", reader, state)
        assert all(torch.equal(got[name], value) for name, value in state.items())


def test_what_a_save_replaces(tmp_path):
    state = {"w": torch.ones(4)}
    (tmp_path / "a").mkdir()  # as trainers do before
    dcp.save(state, storage_writer=Writer(tmp_path / "a", overwrite=False))
    with pytest.raises(CheckpointException, match="already exists"):
        dcp.save(state, storage_writer=Writer(tmp_path / "a", overwrite=False))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "a", thread_count=2))
    dcp.save({"w": torch.full((4,), 7.0)}, storage_writer=Writer(tmp_path / "a"))
    assert loaded(tmp_path / "a", Reader, state)["w"][0] == 7
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointException, match="notes.txt"):
        dcp.save(state, storage_writer=Writer(tmp_path / "a"))
    assert loaded(tmp_path / "a", Reader, state)["w"][0] == 7 and sorted(os.listdir(tmp_path)) == ["a"]
    with pytest.raises(ckpt.Unsupported, match="use_collectives"):
        dcp.save(state, storage_writer=Writer(tmp_path / "b"), use_collectives=False, no_dist=True)


def test_a_save_that_fails_leaves_the_old_checkpoint(tmp_path):
    class Failing(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            raise RuntimeError("no such tensor")

    writer = Writer()
    dcp.save({"w": torch.ones(4)}, checkpoint_id=tmp_path / "a", storage_writer=writer)
    with pytest.raises(CheckpointException, match="no such tensor"):
        dcp.save({"w": torch.zeros(4)}, checkpoint_id=tmp_path / "a", storage_writer=writer, planner=Failing())
    dcp.save({"w": torch.zeros(4)}, checkpoint_id=tmp_path / "b", storage_writer=writer)
    assert loaded(tmp_path / "a", Reader, {"w": torch.zeros(4)})["w"][0] == 1
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


CHILD = """
import sys, time, warnings
sys.path[:0] = {paths!r}
warnings.simplefilter("ignore")
import conftest, torch, ckpt.dcp
import torch.distributed.checkpoint as dcp
class Writer(ckpt.dcp.Writer):
    def write_data(self, plan, planner):
        written = super().write_data(plan, planner)
        print("written", flush=True)
        time.sleep({pause})
        return written
dcp.save({{"w": torch.full((1 << 20,), 2, dtype=torch.uint8)}}, storage_writer=Writer(sys.argv[1]))
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_killed_save_is_never_seen_and_the_next_one_cleans_up(tmp_path, name):
    dcp.save({"w": torch.ones(4)}, storage_writer=Writer(tmp_path / "a"))
    code = CHILD.format(paths=[str(ROOT / "python"), str(ROOT / "tests/python")], pause=60)
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "written\n"
    assert list(tmp_path.glob("*.partial-*/__0_0.distcp"))
    child.send_signal(getattr(signal, name))
    errors = child.communicate(timeout=60)[1]
    assert child.returncode != 0 and (name == "SIGKILL" or "KeyboardInterrupt" in errors)
    assert bool(list(tmp_path.glob("*.partial-*"))) == (name == "SIGKILL")
    assert loaded(tmp_path / "a", Reader, {"w": torch.zeros(4)})["w"][0] == 1
    dcp.save({"w": torch.zeros(4)}, storage_writer=Writer(tmp_path / "a"))
    assert os.listdir(tmp_path) == ["a"]


def test_classes_in_metadata_are_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    dcp.save({"w": torch.ones(4)}, storage_writer=Writer(tmp_path / "a"))
    good = (tmp_path / "a" / ".metadata").read_bytes()
    metadata = pickle.loads(good)
    metadata.planner_data = Evil()
    for bad in (pickle.dumps(metadata), good[:-5], b"", pickle.dumps(7)):
        (tmp_path / "a" / ".metadata").write_bytes(bad)
        with pytest.raises(CheckpointException):
            loaded(tmp_path / "a", Reader, {"w": torch.zeros(4)})
        with pytest.raises((ckpt.Unsupported, ckpt.Corrupt)):
            Reader(tmp_path / "a").read_metadata()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("writer", [Writer, dcp.FileSystemWriter])
def test_metadata_of_a_python_that_pickles_enums_by_name(tmp_path, monkeypatch, writer):
    enum = torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING
    monkeypatch.setattr(enum, "__reduce_ex__", lambda member, protocol: (getattr, (type(member), member.name)))  # as 3.11.2 does
    dcp.save({"w": torch.ones(4)}, storage_writer=writer(tmp_path / "a"))
    assert b"getattr" in (tmp_path / "a" / ".metadata").read_bytes()
    assert loaded(tmp_path / "a", Reader, {"w": torch.zeros(4)})["w"].tolist() == [1, 1, 1, 1]
    for of in ("torch\nSize", "torch.serialization\n_get_layout"):  # of no enum
        (tmp_path / "a" / ".metadata").write_bytes(f"cbuiltins\ngetattr\n(c{of}\nV__doc__\ntR.".encode())
        with pytest.raises(ckpt.Corrupt, match="no enum"):
            Reader(tmp_path / "a").read_metadata()


def test_damage_is_reported_and_nothing_is_guessed(tmp_path):
    dcp.save({"w": torch.ones(1000)}, storage_writer=Writer(tmp_path / "a"))
    file = tmp_path / "a" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(CheckpointException, match="cut short"):
        loaded(tmp_path / "a", Reader, {"w": torch.zeros(1000)})
    with pytest.raises(CheckpointException):
        loaded(tmp_path / "missing", Reader, {"w": torch.zeros(1000)})


def test_many_saves_leak_nothing(tmp_path):
    def used():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    state, writer = {"w": torch.ones(100)}, Writer()
    for i in range(20):
        if i == 3:
            before = used()
        dcp.save(state, checkpoint_id=tmp_path / str(i), storage_writer=writer)
        loaded(tmp_path / str(i), Reader, state)
    assert used() == before


def test_the_end_of_the_interpreter_waits_for_a_save(tmp_path):
    code = CHILD.format(paths=[str(ROOT / "python"), str(ROOT / "tests/python")], pause=2)
    code = code.replace("dcp.save(", "dcp.async_save(")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True, timeout=120)
    assert loaded(tmp_path / "a", Reader, {"w": torch.zeros(1 << 20, dtype=torch.uint8)})["w"].eq(2).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tensors_on_a_cuda_device(tmp_path, monkeypatch):
    monkeypatch.setattr(ckpt.dcp, "_MOST_COPIED", 1 << 22)  # several files
    state = {f"w{i}": torch.randn(1000, 300, device="cuda").t() for i in range(9)}
    state["large"] = torch.arange(80 << 20, device="cuda")
    dcp.save(state, storage_writer=Writer(tmp_path / "a"))
    assert len(list((tmp_path / "a").glob("*.distcp"))) > 1
    for reader in (Reader, dcp.FileSystemReader):
        got = loaded(tmp_path / "a", reader, state)
        assert all(got[name].is_cuda and torch.equal(got[name], value) for name, value in state.items())
