"""ckpt.open: every tensor of every readable format, whole and in slices, as torch and numpy give it."""
import importlib.util
import subprocess
import sys

import ckpt
import numpy
import pytest
import torch
from conftest import GOLDEN
from safetensors import safe_open
from truth import differences

NOT_READ = {"torch/pt_protocols", "orbax/direct_standard", "megatron/core_torch_dist_w4", "safetensors/no_tensors",
            "torch/dcp_zstd"}


def cases():
    """Golden cases that are read without a --map."""
    names = sorted(str(p.parent.relative_to(GOLDEN)) for p in GOLDEN.glob("*/*/truth.safetensors"))
    return [name for name in names if name not in NOT_READ and not (GOLDEN / name / "map.json").exists()]


def bits(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", cases())
def test_every_tensor_holds_the_truth(name):
    with ckpt.open(GOLDEN / name / "ckpt") as checkpoint:
        read = {n: (t.dtype, t.shape, bytes(t.read())) for n, t in checkpoint.items()}
        read.update({n: ("U8", (size,), checkpoint.blob(n)) for n, size in checkpoint.blobs.items()})
        lines, compared = differences(GOLDEN / name, read)
        assert not lines, f"{len(lines)} of {compared}: " + "\n".join(lines[:10])
        assert compared > 0
        for tensor in checkpoint.values():
            if tensor.dtype.startswith("F6"):
                continue
            value = tensor.torch()
            assert bits(value) == bytes(tensor.read())
            if tensor.dtype != "F4":
                assert tuple(value.shape) == tensor.shape


def safetensors_file(name):
    return next((GOLDEN / name / "ckpt").rglob("*.safetensors"))


def test_dtypes_are_those_of_the_framework():
    file = safetensors_file("safetensors/dtypes")
    with ckpt.open(file) as checkpoint, safe_open(file, "pt") as framework:
        seen = set()
        for name in framework.keys():
            wanted, value = framework.get_tensor(name), checkpoint[name].torch()
            assert value.dtype == wanted.dtype and value.shape == wanted.shape and bits(value) == bits(wanted)
            seen.add(checkpoint[name].dtype)
        assert {"BF16", "F16", "F32", "F64", "I64", "BOOL", "U8"} <= seen


def test_numpy_gives_the_frameworks_array_or_says_what_is_missing():
    file = safetensors_file("safetensors/dtypes")
    with ckpt.open(file) as checkpoint, safe_open(file, "pt") as framework:
        refused = set()
        for name in framework.keys():
            tensor = checkpoint[name]
            try:
                value = tensor.numpy()
            except ckpt.Unsupported as reason:
                refused.add(tensor.dtype)
                assert f"numpy has no dtype for {tensor.dtype}" in str(reason) and reason.hint
                continue
            assert value.shape == tensor.shape and value.tobytes() == bytes(tensor.read())
        assert "BF16" in refused or importlib.util.find_spec("ml_dtypes")
        assert all(dtype in ("BF16", "F4") or dtype.startswith("F8") for dtype in refused)


INDICES = [
    (slice(2, 5),), (slice(None, 3), 1), (-1,), (Ellipsis, 2), (slice(None, None, 2), slice(1, None, 3)),
    (0, Ellipsis, slice(1, 2)), (), (slice(5, 5),), (slice(-3, None), slice(None, -1)), (1, 2)]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_slice_is_numpys_slice(tmp_path, index):
    whole = torch.arange(7 * 6 * 5, dtype=torch.float32).reshape(7, 6, 5)
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"w": whole})
    with ckpt.open(tmp_path / "run") as checkpoint:
        part = checkpoint["w"][index]
        wanted = whole.numpy()[index]
        assert part.shape == wanted.shape and part.ndim == wanted.ndim and part.nbytes == wanted.nbytes
        numpy.testing.assert_array_equal(part.numpy(), wanted, strict=True)
        assert torch.equal(part.torch(), torch.from_numpy(wanted.copy()))
        if wanted.ndim and wanted.shape[0] > 1:  # a slice of a slice
            numpy.testing.assert_array_equal(part[1:][::2].numpy(), wanted[1:][::2], strict=True)


def test_a_slice_reads_only_its_bytes(tmp_path):
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"w": torch.zeros(4096, 4096)})  # 64 MiB
    with ckpt.open(tmp_path / "run") as checkpoint:
        read = checkpoint._read
        reports = []
        checkpoint._read = lambda requests: reports.append(read(requests)) or reports[-1]
        assert checkpoint["w"][:128].torch().shape == (128, 4096)
        assert 0 < reports[-1].read_bytes <= 3 * (4 << 20), "at most the leaves around 2 MiB"


@pytest.mark.parametrize("index, text", [
    ((7,), "out of range"), ((0, 0, 0, 0), "too many"), ((Ellipsis, Ellipsis), "only one"), ((slice(None, None, -1),), "read it first"),
    (([0, 1],), "read it first"), ((None,), "read it first"), ((True,), "read it first")], ids=str)
def test_other_indices_are_refused(tmp_path, index, text):
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"w": torch.zeros(7, 6, 5)})
    with ckpt.open(tmp_path / "run") as checkpoint, pytest.raises(IndexError, match=text):
        checkpoint["w"][index]


def test_a_state_dict_loads_into_a_model(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"model": model.state_dict(), "other": torch.zeros(2)})
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with ckpt.open(tmp_path / "run") as checkpoint:
        # Run.save escapes dots inside keys; the tree as it was saved has the keys themselves.
        assert set(checkpoint.torch()) == set(checkpoint)
    with ckpt.Run(tmp_path / "run") as run:
        other.load_state_dict(run.load().tree["model"])
    assert all(bits(a) == bits(b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


def test_tied_names_share_one_tensor_of_a_state_dict():
    with ckpt.open(GOLDEN / "ckpt/0.9-tied/ckpt") as checkpoint:
        state = checkpoint.torch()
        assert checkpoint.ties == {"lm_head.weight": "wte.weight"}
        assert state["lm_head.weight"] is state["wte.weight"]
        assert set(state) == {n for n, t in checkpoint.items() if t.role in ("param", "buffer")}
        layer = checkpoint.torch("h.0.")
        assert set(layer) == {n[len("h.0."):] for n in state if n.startswith("h.0.")} and layer
        assert set(checkpoint.torch(roles=("slot",))) == {n for n, t in checkpoint.items() if t.role == "slot"}


def test_the_mapping_and_its_info():
    with ckpt.open(GOLDEN / "ckpt/0.9-tied/ckpt") as checkpoint:
        assert len(checkpoint) == len(list(checkpoint)) == len(set(checkpoint))
        assert "wte.weight" in checkpoint and "nosuch" not in checkpoint and checkpoint.get("nosuch") is None
        tensor = checkpoint["wte.weight"]
        assert tensor.role == "param" and tensor.slot is None and len(tensor) == tensor.shape[0]
        assert checkpoint.info.format == "ckpt" and checkpoint.info.step == 3
        assert checkpoint.info.framework == "deepspeed"
        assert checkpoint.objects
        assert "wte.weight" in repr(tensor) and "step 3" in repr(checkpoint)


def test_failures_are_exceptions_with_the_ids_of_the_command(tmp_path):
    with pytest.raises(ckpt.NotFound) as nothing:
        ckpt.open(tmp_path / "nosuch")
    assert nothing.value.id == "CKPT-E1000" and nothing.value.code == 10 and "nosuch" in str(nothing.value)
    with pytest.raises(ckpt.Corrupt) as hole:
        ckpt.open(next((GOLDEN / "broken/st_bad_json/ckpt").iterdir()))
    assert hole.value.code == 15 and hole.value.file
    with pytest.raises(ckpt.Incomplete):
        ckpt.open(GOLDEN / "broken/hf_index_missing_file/ckpt")
    with pytest.raises(ckpt.Unsupported):
        ckpt.open(GOLDEN / "orbax/direct_standard/ckpt")
    with ckpt.open(GOLDEN / "ckpt/0.9-tied/ckpt") as checkpoint:
        with pytest.raises(KeyError):
            checkpoint["nosuch"]
        with pytest.raises(ckpt.NotFound) as missing:
            checkpoint.blob("nosuch")
        assert missing.value.tensor == "nosuch"
    with pytest.raises(ckpt.Usage, match="closed"):
        checkpoint["wte.weight"].read()
    assert issubclass(ckpt.IOFailure, ckpt.Error) and issubclass(ckpt.NoSpace, ckpt.Error)


def test_a_damaged_tensor_is_reported_not_returned(tmp_path):
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"w": torch.zeros(100_000)})
    shard = max(tmp_path.rglob("*.safetensors"), key=lambda path: path.stat().st_size)
    shard.chmod(0o600)
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with ckpt.open(tmp_path / "run") as checkpoint, pytest.raises(ckpt.Corrupt) as damage:
        checkpoint["w"].numpy()
    assert damage.value.id == "CKPT-E1503" and damage.value.file == str(shard) and damage.value.tensor == "w"


def test_compressed_data_is_refused():
    with ckpt.open(GOLDEN / "torch/dcp_zstd/ckpt") as checkpoint, pytest.raises(ckpt.Unsupported, match="compressed"):
        checkpoint["optimizer.state.cube.exp_avg"].torch()


def test_nothing_of_the_frameworks_is_imported_until_used():
    code = ("import sys, ckpt; checkpoint = ckpt.open(sys.argv[1]); checkpoint['wte.weight'][:1].read(); "
            "print(sorted({'torch', 'numpy', 'ml_dtypes'} & set(sys.modules)))")
    out = subprocess.run([sys.executable, "-c", code, GOLDEN / "ckpt/0.9-tied/ckpt"], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_missing_library_is_named():
    out = subprocess.run([sys.executable, "-c", "import ckpt; ckpt.open('x')"], capture_output=True, text=True,
                         env={"PYTHONPATH": ":".join(sys.path), "CKPT_LIBRARY": "/nosuch/libckpt.so.1"})
    assert out.returncode == 1 and "Unsupported: /nosuch/libckpt.so.1: cannot load libckpt" in out.stderr


def test_a_tensor_is_an_array_for_numpy(tmp_path):
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"rows": torch.arange(6.0).view(2, 3), "scalar": torch.tensor(4.0)})
    with ckpt.open(tmp_path / "run") as checkpoint:
        rows, scalar = checkpoint["rows"], checkpoint["scalar"]
        assert numpy.asarray(rows).tolist() == [[0, 1, 2], [3, 4, 5]] and numpy.asarray(rows, dtype="i4").dtype == "i4"
        assert [row.numpy().tolist() for row in rows] == [[0, 1, 2], [3, 4, 5]] and numpy.asarray(scalar) == 4
        for wrong in (lambda: list(scalar), lambda: 3 in rows):
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(ckpt.Usage, match="roles"):
            checkpoint.torch(roles=("params",))
