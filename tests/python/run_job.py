"""A rank of a torch.distributed job that saves by ckpt.Run or loads: run_job.py WHAT DIRECTORY RANK WORLD. test_run_group.py starts it."""
import json

import conftest  # noqa: F401: where the package is
import numpy
import rank_of_job
import torch
import torch.distributed as dist
from dcp_job import check, placed, state_of, train, whole
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import ckpt


def raises(kind, part, call):
    """The call fails on this rank, and its message has this part."""
    try:
        call()
    except kind as reason:
        assert part in str(reason), reason
        return reason
    raise AssertionError(f"did not raise {kind.__name__}")


def tree_of(mesh, zeros=False):
    tree = state_of(mesh, zeros)
    tree.pop(f"of_rank{dist.get_rank() % 2}")
    tree["tied"] = tree["model"]["rows"]
    tree["array"] = numpy.full(3, 0 if zeros else 4)
    if dist.get_rank() == 1 or zeros:
        tree["stage1"] = {"bias": torch.full((4,), 0.0 if zeros else 9.0)}  # as of a pipeline
    return tree


def save(mesh, directory):
    rank = dist.get_rank()
    with ckpt.Run(directory / "run", every=2, staging=1 << 28, group="world") as run:
        assert run.latest is None
        tree = tree_of(mesh)
        for step in (1, 2, 3, 4):
            if run.should_save(step):
                tree["loss"] = 1.0 / step
                pending = run.save(step, tree, metrics={"loss": 1.0 / step})
                tree["model"]["rows"].to_local().zero_()  # staged
                pending.wait(60)
                tree["model"]["rows"].to_local().copy_(placed(mesh, False)["rows"].to_local())
                tree["turned"] = tree["model"]["rows"].detach().redistribute(mesh, [Replicate() if step == 2 else Shard(1)])  # another plan
        assert run.latest == 4
        # What one rank does wrong, both learn; nothing is saved.
        bad = {"w": torch.ones(2), "x": object() if rank == 1 else 1}
        raises(ckpt.Unsupported, "x: builtins.object" if rank == 1 else "rank 1: ", lambda: run.save(5, bad))
        raises(ckpt.Usage, "seed: different values", lambda: run.save(5, {"w": torch.ones(2), "seed": rank}))
        raises(ckpt.Usage, "w: F32 [3]", lambda: run.save(5, {"w": torch.ones(2 + rank)}))
        raises(ckpt.Usage, "different steps", lambda: run.save(5 + rank, {"w": torch.ones(2)}))
        raises(ckpt.Usage, "text on one rank and numbers", lambda: run.save(5, {"w": {str(rank) if rank else 0: torch.ones(2), "0": 1} if rank else {0: 1}}))
        raises(ckpt.Usage, "every is -1", lambda: ckpt.Run(directory / "other", every=-rank, group="world"))
        raises(ckpt.Usage, "different runs", lambda: ckpt.Run(directory / f"other{rank}", group="world"))
        raises(ckpt.Unsupported, "DTensor", lambda: run.save(5, {"w": DTensor.from_local(torch.ones(2), mesh, [Partial()])}))
        raises(ckpt.NotFound, "no checkpoint of step 5", lambda: run.load(5))
        other = tree_of(mesh, True)
        raises(ckpt.Error, "step 4 ", lambda: run.load(into={"w": torch.zeros(9)} if rank == 1 else other))
        assert run.load(into=tree_of(mesh, True), strict=False).step == 4
        run.save(6, tree_of(mesh))  # after all of that
    with ckpt.Run(directory / "stages", group="world") as run:
        run.save(1, {f"stage{rank}": torch.full((2,), 1.0 + rank), "all": torch.ones(1), "step": 1})
        part = {f"stage{rank}": torch.zeros(2), "all": torch.zeros(1), "step": 0}
        report = run.load(into=part)  # strict: the other rank has the other stage
        assert not report.unexpected and torch.equal(part[f"stage{rank}"], torch.full((2,), 1.0 + rank)) and part["step"] == 1
        part.pop("all")
        raises(ckpt.Usage, "step 1 also has all", lambda: run.load(into=part))
        assert run.load(into=part, strict=False).unexpected == ["all"]
        part = {f"stage{rank}": torch.zeros(2), "all": torch.zeros(1), "step": 0, **({"more": 1} if rank == 1 else {})}
        raises(ckpt.NotFound, "lacks more" if rank == 1 else "rank 1: step 1 lacks more", lambda: run.load(into=part))
    _, trained = train(mesh, 3)
    with ckpt.Run(directory / "trained", group=dist.group.WORLD) as run:
        run.save(3, trained)
    losses = train(mesh, 6)[0]
    if rank == 0:
        (directory / "losses.json").write_text(json.dumps(losses))


def load(mesh, directory):
    with ckpt.Run(directory / "run", group="world") as run:
        tree = tree_of(mesh, zeros=True)
        report = run.load(into=tree, strict=False)
        assert report.step == 6 and not report.unexpected and not report.missing, report
        check(tree)
        assert torch.equal(tree["tied"].full_tensor(), whole("rows")) and tree["array"][0] == 4
        assert torch.equal(tree["stage1"]["bias"], torch.full((4,), 9.0))
        tree = run.load(4).tree  # whole tensors on every rank
        assert torch.equal(tree["model"]["columns"], whole("columns")) and torch.equal(tree["turned"], whole("rows")) and tree["tied"] is tree["model"]["rows"] and tree["loss"] == 0.25
    expected = json.loads((directory / "losses.json").read_text())
    with ckpt.Run(directory / "trained", group="world") as run:
        losses, _ = train(mesh, 3, lambda state: run.load(into=state))
    assert torch.allclose(torch.tensor(losses), torch.tensor(expected[3:])), (losses, expected)


def leave(mesh, directory):
    """Rank 1 leaves by an exception, in the loop."""
    with ckpt.Run(directory / "left", every=1, group="world", patience=60) as run:
        run.save(1, {"w": torch.ones(5)})
        if dist.get_rank() == 1:
            raises(ValueError, "a bad batch", lambda: fail_in(run))
            return
        raises(ckpt.IOFailure, "rank 1: ValueError: a bad batch", lambda: [run.should_save(step) for step in range(2, 9)])
        raises(ckpt.Error, "", run.close)


def keep(mesh, directory):
    raises(ckpt.Usage, "no rule 'lasst'", lambda: ckpt.Run(directory / "bad", group="world", keep={"lasst": 1}))
    with ckpt.Run(directory / "kept", every=1, group="world", keep=2 if mesh.get_rank() == 0 else None, staging=1 << 24) as run:
        for step in range(1, 7):
            if run.should_save(step):
                run.save(step, {"w": torch.ones(5)})


def fail_in(run):
    with run:
        raise ValueError("a bad batch")


if __name__ == "__main__":
    rank_of_job.main({"save": save, "load": load, "leave": leave, "keep": keep})
