"""`ckpt export` equals numpy's own slicing, for every genuine checkpoint."""
import json
import random
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from safetensors import safe_open

from conftest import GOLDEN, golden_cases

BITS = {torch.bfloat16: torch.uint16, **{t: torch.uint8 for t in vars(torch).values()
                                         if isinstance(t, torch.dtype) and str(t).startswith("torch.float8")}}


def tensors(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def bits(tensor):
    """The form in NumPy: types that it lacks are unsigned integers."""
    return (tensor.view(BITS[tensor.dtype]) if tensor.dtype in BITS else tensor).numpy()


def equal(array, wanted):
    return array.dtype == wanted.dtype and array.shape == wanted.shape and array.tobytes() == wanted.tobytes()


def random_slice(random, shape):
    """One slice in text and as numpy takes it; ranges may pass the ends."""
    texts, taken = [], []
    for size in shape[:random.randint(1, len(shape))]:
        if size and random.random() < 0.3:
            taken.append(random.randrange(-size, size))
            texts.append(str(taken[-1]))
            continue
        ends = [None if random.random() < 0.3 else random.randint(-size - 2, size + 2) for _ in range(2)]
        taken.append(slice(*ends))
        texts.append(":".join("" if e is None else str(e) for e in ends))
    if random.random() < 0.2:
        taken.append(Ellipsis)
        texts.append("...")
    return f"[{', '.join(texts)}]", tuple(taken)


@pytest.mark.parametrize("name", golden_cases())
def test_slices_are_numpys(name, ckpt, out):
    source = GOLDEN / name / "ckpt"
    ckpt("convert", source, out / "whole.safetensors")
    dtypes = {t["name"]: t["dtype"] for t in json.loads(ckpt("ls", source, "--json").stdout)["data"]["tensors"]}
    try:
        held = tensors(out / "whole.safetensors")
    except Exception:  # an element type that this torch lacks: tests/cli checks the bytes
        pytest.skip("safetensors cannot give these tensors to torch")
    chance = random.Random(name)
    cut = {n: random_slice(chance, t.shape) for n, t in held.items() if t.dim() > 0 and dtypes[n] not in ("F4", "F6_E2M3", "F6_E3M2")}
    cut = dict(chance.sample(sorted(cut.items()), min(12, len(cut))))
    if not cut:
        pytest.skip("only tensors without dimensions")
    words = [w for n, (text, _) in cut.items() for w in ("--slice", n + text)]

    ckpt("export", source, out / "npy", "--to", "npy", *words)
    files = {unquote(f.name.removesuffix(".npy")): np.load(f) for f in (out / "npy").iterdir()}
    assert set(files) == set(cut)
    for tensor, (text, taken) in cut.items():
        assert equal(files[tensor], bits(held[tensor])[taken]), f"{tensor}{text}"

    ckpt("export", source, out / "part.safetensors", *words)
    part = tensors(out / "part.safetensors")
    assert set(part) == set(cut)
    for tensor, (text, taken) in cut.items():
        assert part[tensor].dtype == held[tensor].dtype
        assert equal(bits(part[tensor]), bits(held[tensor])[taken]), f"{tensor}{text}"


def test_one_file_can_be_mapped(ckpt, out):
    whole = torch.arange(3_000_000, dtype=torch.float32).reshape(1000, 3000)
    from safetensors.torch import save_file
    save_file({"w": whole}, out / "large.safetensors")
    ckpt("export", out / "large.safetensors", out / "w.npy", "--slice", "w[100:-100, 1:]")
    array = np.load(out / "w.npy", mmap_mode="r")
    assert array.offset % 4096 == 0 and equal(array, whole.numpy()[100:-100, 1:])
