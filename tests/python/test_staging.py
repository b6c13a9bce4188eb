"""ckpt.dcp.AsyncStager: what async_save stores is the state at the call, in memory that is kept."""
import collections
import gc
import io
import os
import pathlib
import pickle
import threading
import time

import ckpt
import pytest
import torch
import torch.distributed.checkpoint as dcp
from ckpt.dcp import AsyncStager, Reader, Writer
from test_dcp import job, loaded
from test_run import TORCH_DTYPES, bits, of_bytes
from torch.distributed.checkpoint import state_dict_saver

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_ranks_stage_in_threads_and_in_processes(tmp_path):
    job("dcp_job.py", "stage", tmp_path, 2)
    for world in (2, 3):
        job("dcp_job.py", "load_staged", tmp_path, world)


@pytest.mark.parametrize("dtype", [*TORCH_DTYPES, torch.complex128], ids=str)
def test_every_dtype_and_layout_is_copied_bit_for_bit(dtype):
    whole = of_bytes(dtype, (6, 4))
    state = {"whole": whole, "transposed": whole.t(), "strided": whole[::2, 1:3], "scalar": whole[0, 0], "empty": whole[:0]}
    expected = {name: bits(value) for name, value in state.items()}
    stager = AsyncStager()
    staged = stager.stage(state)
    whole.copy_(of_bytes(dtype, (6, 4)).flip(0) if dtype is torch.bool else whole.flip(0))
    assert {name: bits(value) for name, value in staged.items()} == expected
    assert all(value.dtype is dtype and value.shape == state[name].shape for name, value in staged.items())


Point = collections.namedtuple("Point", "x y")


def test_objects_and_unusual_tensors_are_copied():
    weight = torch.nn.Parameter(torch.ones(3, 2))
    objects = {"list": [1, {"two": torch.ones(2)}], "none": None, "text": "é", "path": pathlib.Path("x"), "stream": io.BytesIO(b"abc"),
               "set": {1}, "point": Point(torch.ones(1), 2), "sparse": torch.eye(2).to_sparse(), "rows": torch.eye(2).to_sparse_csr(), "meta": torch.ones(1, device="meta"),
               "tied": weight.detach(), "weight": weight, "conjugated": torch.tensor([1 + 2j]).conj(),
               "quantized": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)}
    staged = AsyncStager().stage(objects)
    with torch.no_grad():
        weight.zero_()
        objects["list"][1]["two"].zero_()
        objects["sparse"].mul_(0)
        objects["rows"].values().zero_()
    objects["set"].add(2)
    objects["stream"].truncate(0)
    assert staged["list"][0] == 1 and torch.equal(staged["list"][1]["two"], torch.ones(2)) and staged["none"] is None
    assert staged["text"] == "é" and staged["path"] == pathlib.Path("x") and staged["stream"].getvalue() == b"abc"
    assert staged["set"] == {1} and isinstance(staged["point"], Point) and staged["point"].y == 2 and staged["meta"].is_meta
    assert torch.equal(staged["sparse"].to_dense(), torch.eye(2)) and torch.equal(staged["rows"].to_dense(), torch.eye(2))
    assert staged["quantized"].int_repr().tolist() == [2, 2]
    assert staged["tied"] is staged["weight"] and torch.equal(staged["weight"], torch.ones(3, 2)) and not staged["weight"].requires_grad
    assert staged["conjugated"][0] == 1 - 2j


def test_memory_is_kept_and_never_shared_by_two_saves():
    stager = AsyncStager()
    first = stager.stage({"w": torch.full((1000,), 1.0), "v": torch.ones(5)})
    address = first["w"].data_ptr()
    held = first["v"]
    del first
    second = stager.stage({"w": torch.full((1000,), 2.0), "v": torch.zeros(5)})  # one tensor of the first is still held
    assert second["w"].data_ptr() != address and held.eq(1).all()
    address = second["w"].data_ptr()
    del second
    third = stager.stage({"w": torch.full((900,), 3.0)})
    assert third["w"].data_ptr() == address
    stager.close()
    assert third["w"].eq(3).all() and held.eq(1).all()


def test_a_forked_child_stages_to_memory_of_its_own():
    stager = AsyncStager()
    stager.stage({"w": torch.zeros(1000)})
    begin, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(begin, 1)
        stager.stage({"w": torch.full((1000,), 1.0)})
        os._exit(0)
    staged = stager.stage({"w": torch.full((1000,), 2.0)})
    os.write(end, b".")
    os.waitpid(child, 0)
    os.close(begin)
    os.close(end)
    assert staged["w"].eq(2).all()


def test_a_save_in_flight_is_not_changed_by_the_next(tmp_path):
    go = threading.Event()

    class Slow(Writer):
        def write_data(self, plan, planner):
            go.wait(60)
            return super().write_data(plan, planner)

    stager, state = AsyncStager(), {"w": torch.zeros(1000)}
    saves = []
    for i in range(3):
        state["w"].fill_(i)
        saves.append(dcp.async_save(state, checkpoint_id=tmp_path / str(i), storage_writer=Slow(), async_stager=stager))
    state["w"].fill_(9)
    go.set()
    for i, save in enumerate(saves):
        save.result(60)
        assert loaded(tmp_path / str(i), Reader, state)["w"].eq(i).all()


def test_many_saves_leak_nothing(tmp_path):
    def used():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    stager, state = AsyncStager(), {"w": torch.ones(100)}
    addresses = set()
    for i in range(30):
        if i == 3:
            before = used()
        dcp.async_save(state, checkpoint_id=tmp_path / "a", storage_writer=Writer(), async_stager=stager).result()
        end = time.monotonic() + 60
        while not stager._memory.is_free_soon() and time.monotonic() < end:  # the save's thread may hold the state for a while
            pass
        addresses.add(stager.stage(state)["w"].data_ptr())
    assert used() == before and len(addresses) == 1
    stager.close()
    del stager
    assert used()[0] == before[0] - 2  # the memory's descriptor, and the mapping's


def test_a_release_of_torch_without_stagers_is_refused(monkeypatch):
    monkeypatch.setattr(state_dict_saver, "async_save", lambda state_dict, *, storage_writer=None: None)
    with pytest.raises(ckpt.Unsupported, match="has no async_stager"):
        AsyncStager()


def test_a_staged_state_can_be_pickled_for_another_process():
    staged = AsyncStager().stage({"w": torch.ones(2), "more": {"n": 1}})
    sent = pickle.loads(pickle.dumps(staged))
    staged["w"].fill_(3)
    assert sent["w"].tolist() == [3, 3] and sent["more"] == {"n": 1}, "the same memory"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tensors_on_a_cuda_device(tmp_path):
    stager = AsyncStager()
    for i in range(3):
        state = {"w": torch.full((1 << 20,), float(i), device="cuda"), "t": torch.randn(64, 32, device="cuda").t()}
        expected = state["t"].cpu()
        save = dcp.async_save(state, checkpoint_id=tmp_path / str(i), storage_writer=Writer(), async_stager=stager)
        state["w"].fill_(9)
        state["t"].zero_()
        save.result()
        got = loaded(tmp_path / str(i), Reader, state)
        assert got["w"].eq(i).all() and torch.equal(got["t"].cpu(), expected)
