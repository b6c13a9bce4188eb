"""A rank of a torch.distributed job that saves or loads: dcp_job.py WHAT DIRECTORY RANK WORLD. test_dcp.py starts it.

save   saves the same state by torch's writer (stock/) and by ours (ours/, cached0..2/, thread/, process/), lets rank 1 fail, trains
stage  saves changing states asynchronously by our stager (staged_thread0..2/, staged_process0..2/)
load   loads them at this world size, by either reader, and compares with what the state was
"""
import gc
import json

import conftest  # noqa: F401: where the package is
import rank_of_job
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ckpt.dcp

SHAPES = {"rows": (7, 5), "columns": (4, 9), "both": (6, 6), "replicated": (3, 3), "large": (1 << 20, 3)}
DTYPES = {"rows": torch.float32, "columns": torch.bfloat16, "both": torch.int64, "replicated": torch.float64, "large": torch.float16}


def whole(name):
    """The tensor of a name, equal in every process."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    return (torch.randn(SHAPES[name], generator=generator) * 100).to(DTYPES[name])


def placed(mesh, zeros):
    """The state, distributed."""
    placements = {"rows": [Shard(0)], "columns": [Shard(1)], "both": [Shard(0)], "replicated": [Replicate()], "large": [Shard(0)]}
    return {name: distribute_tensor(torch.zeros_like(whole(name)) if zeros else whole(name), mesh, placements[name])
            for name in SHAPES}


def state_of(mesh, zeros=False):
    from torch.distributed._shard.sharded_tensor import init_from_local_shards, Shard as LocalShard

    rank, world = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(12.0).view(12, 1).chunk(world)
    local = torch.zeros_like(rows[rank]) if zeros else rows[rank].clone()
    begin = sum(len(each) for each in rows[:rank])
    shard = LocalShard.from_tensor_and_offsets(local, [begin, 0], rank)
    fill = 0 if zeros else 1
    return {"model": placed(mesh, zeros), "sharded": init_from_local_shards([shard], 12, 1),
            "plain": torch.full((5,), 2.5 * fill), "step": 17 * fill, "words": ["a" * fill, {"b": 3.5 * fill}], f"of_rank{rank % 2}": rank * fill}


def check(state):
    for name, tensor in state["model"].items():
        assert torch.equal(tensor.full_tensor(), whole(name)), name
    shard = state["sharded"].local_shards()[0]
    assert torch.equal(shard.tensor, torch.arange(12.0).view(12, 1)[shard.metadata.shard_offsets[0]:][:len(shard.tensor)])
    assert torch.equal(state["plain"], torch.full((5,), 2.5)) and state["step"] == 17 and state["words"] == ["a", {"b": 3.5}]


def train(mesh, steps, state=None):
    """FSDP2: the losses, and the state after some steps."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if state is not None:
        loaded = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        state(loaded)
        set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    losses = []
    for _ in range(steps):
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))


class Failing(dcp.DefaultSavePlanner):
    def resolve_data(self, item):
        if dist.get_rank() == 1:
            raise RuntimeError("rank 1 has no such tensor")
        return super().resolve_data(item)


def save(mesh, directory):
    state = state_of(mesh)
    dcp.save(state, checkpoint_id=directory / "stock")
    dcp.save(state, checkpoint_id=directory / "ours", storage_writer=ckpt.dcp.Writer())
    assert not list(directory.glob("*.partial-*"))
    writer = ckpt.dcp.Writer(threads=1)
    for i in range(3):
        dcp.save(state, checkpoint_id=directory / f"cached{i}", storage_writer=writer,
                 planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
    plain = {"rows": state["model"]["rows"], "plain": state["plain"], "step": 17}
    dcp.async_save(plain, checkpoint_id=directory / "thread", storage_writer=ckpt.dcp.Writer()).result()
    dcp.async_save(plain, checkpoint_id=directory / "process", storage_writer=ckpt.dcp.Writer(),
                   async_checkpointer_type=AsyncCheckpointerType.PROCESS).result()
    for path in ("ours", "failed"):
        try:
            dcp.save(plain, checkpoint_id=directory / path, storage_writer=ckpt.dcp.Writer(), planner=Failing())
        except CheckpointException as reason:
            assert "rank 1 has no such tensor" in str(reason) and list(reason.failures) == [1]
        else:
            raise AssertionError("the save did not fail")
        assert (directory / path).exists() == (path == "ours")
    dcp.save(plain, checkpoint_id=directory / "failed", storage_writer=ckpt.dcp.Writer())  # cleans up
    gc.collect()
    dist.barrier()
    assert not list(directory.glob("*.partial-*"))
    losses, trained = train(mesh, 3)
    dcp.save(trained, checkpoint_id=directory / "trained", storage_writer=ckpt.dcp.Writer())
    dcp.save(trained, checkpoint_id=directory / "trained_stock")
    if dist.get_rank() == 0:
        (directory / "losses.json").write_text(json.dumps(train(mesh, 6)[0]))
    else:
        train(mesh, 6)


def stage(mesh, directory):
    stager = ckpt.dcp.AsyncStager()
    addresses = set()
    for kind in (AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS):
        for i in range(3):
            state = state_of(mesh)
            state["i"] = i
            done = dcp.async_save(state, checkpoint_id=directory / f"staged_{kind.value}{i}", storage_writer=ckpt.dcp.Writer(),
                                  async_checkpointer_type=kind, async_stager=stager)
            for tensor in [*(each.to_local() for each in state["model"].values()), state["sharded"].local_shards()[0].tensor, state["plain"]]:
                tensor.zero_()
            state["words"][1]["b"] = 0
            done.result()
            del done
            addresses.add(stager.stage({"w": torch.ones(3)})["w"].data_ptr())
    assert len(addresses) == 1, "the memory was not kept"
    stager.close()


def load_staged(mesh, directory):
    for kind in ("thread", "process"):
        for i in range(3):
            state = {**state_of(mesh, zeros=True), "i": 7}
            state.pop("of_rank0", None)
            state.pop("of_rank1", None)
            dcp.load(state, checkpoint_id=directory / f"staged_{kind}{i}", storage_reader=ckpt.dcp.Reader())
            check(state)
            assert state["i"] == i


def load(mesh, directory):
    for path, reader in (("stock", ckpt.dcp.Reader), ("ours", ckpt.dcp.Reader), ("ours", dcp.FileSystemReader),
                         ("cached0", ckpt.dcp.Reader), ("cached2", dcp.FileSystemReader)):
        state = state_of(mesh, zeros=True)
        for name in ("of_rank0", "of_rank1"):
            state.pop(name, None)
        dcp.load(state, storage_reader=reader(directory / path))
        check(state)
    for path in ("thread", "process"):
        state = {"rows": placed(mesh, True)["rows"], "plain": torch.zeros(5), "step": 0}
        dcp.load(state, checkpoint_id=directory / path, storage_reader=ckpt.dcp.Reader())
        assert torch.equal(state["rows"].full_tensor(), whole("rows")) and state["plain"][0] == 2.5 and state["step"] == 17
    expected = json.loads((directory / "losses.json").read_text())
    for path, reader in (("trained", ckpt.dcp.Reader), ("trained_stock", ckpt.dcp.Reader), ("trained", dcp.FileSystemReader)):
        losses, _ = train(mesh, 3, lambda state: dcp.load(state, storage_reader=reader(directory / path)))
        assert torch.allclose(torch.tensor(losses), torch.tensor(expected[3:])), (losses, expected)


if __name__ == "__main__":
    rank_of_job.main({"save": save, "load": load, "stage": stage, "load_staged": load_staged})
