"""ckpt.Run(keep=...): what no rule keeps is moved to the trash, after a newer save is durable and never before."""
import os
import shlex
import subprocess
import sys
import time
import warnings

import ckpt
import numpy
import pytest
from conftest import ROOT
from test_dcp import job

TREE = {"w": numpy.ones(1000)}


def steps(path):
    return sorted(int(each.name[5:14]) for each in path.glob("step-*.g*"))


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("staging", [0, 1 << 22])
def test_the_newest_stay(run_path, staging):
    with ckpt.Run(run_path, keep=2, staging=staging) as run:
        for step in range(1, 9):
            run.save(step, TREE)
            assert run.latest == step
            for idle in range(3):
                run.should_save(step)
    assert steps(run_path) == [7, 8] and ckpt.verify(run_path).ok
    trash = ckpt.list(run_path.parent, trash=True)
    assert len(trash.trash) == 6  # can be restored


@pytest.mark.parametrize("keep, expected", [
    ({"last": 1, "every_steps": 4}, [4, 8, 9]), ({"last": 1, "best": {"metric": "loss", "n": 2}}, [1, 2, 9]),
    ({"last": 1, "best": [{"metric": "loss", "lower": False}, {"metric": "loss"}]}, [1, 9]), ("last=3", [7, 8, 9]), ({"first": 1, "last": 2}, [1, 8, 9])])
def test_rules(run_path, keep, expected):
    with ckpt.Run(run_path, keep=keep) as run:
        for step in range(1, 10):
            run.save(step, TREE, metrics={"loss": step / 10})
    assert steps(run_path) == expected


def test_the_store_may_be_further_up_and_have_a_policy(tmp_path):
    (tmp_path / "ckpt.toml").write_text('[[rule]]\nruns = "prod/*"\nkeep = { last = 3 }\n')
    for name, expected in (("prod/a", [4, 5, 6]), ("test/a", [1, 2, 3, 4, 5, 6])):
        with ckpt.Run(tmp_path / name, keep=True) as run:
            for step in range(1, 7):
                run.save(step, TREE)
        assert steps(tmp_path / name) == expected
    with ckpt.Run(tmp_path / "test/a") as run:  # no keep
        run.save(7, TREE)
    assert len(steps(tmp_path / "test/a")) == 7 and (tmp_path / ".ckpt").is_dir() and not (tmp_path / "test/.ckpt").exists()


def test_other_runs_and_pins_stay(tmp_path):
    for name in ("exp", "exp7"):
        with ckpt.Run(tmp_path / name) as run:
            run.save(1, TREE)
            run.save(2, TREE)
    subprocess.run([os.environ["CKPT"], "pin", "exp7@1", "--store", tmp_path, "--reason", "paper"], check=True, capture_output=True)
    with ckpt.Run(tmp_path / "exp7", keep={"last": 1, "grace": 0}) as run:
        run.save(3, TREE)
        run.save(4, TREE)
    assert steps(tmp_path / "exp7") == [1, 4] and steps(tmp_path / "exp") == [1, 2]


def test_the_run_that_is_open_is_pruned_whatever_links_lead_to_it(tmp_path):
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "link").symlink_to("../far/deep")
    for name in ("near/run", "near/link/../run"):  # the second is far/run, though its text reads as near/run
        with ckpt.Run(tmp_path / name, keep=None if name == "near/run" else numpy.int64(1)) as run:
            for step in range(1, 4):
                run.save(step, TREE)
    assert steps(tmp_path / "near/run") == [1, 2, 3] and steps(tmp_path / "far/run") == [3]


def test_rules_that_are_wrong_are_refused_at_once(run_path):
    for keep, part in ((0, "less than 1"), ({"lasst": 3}, "no rule 'lasst'"), ({"best": "loss"}, "keep: best is 'loss'"), ("last=x", "x"),
                       ({"within": "3"}, "3"), ({}, "no rule"), ({"last": None}, "last is None"), ({"last": True}, "last is True"),
                       (2.5, "2.5, not a")):
        with pytest.raises(ckpt.Usage, match=part):
            ckpt.Run(run_path, keep=keep)
    with pytest.raises(ckpt.Usage, match="pattern"):
        ckpt.Run(run_path / "a[1]", keep=3)


def test_a_guard_that_stops_is_a_warning_and_deletes_nothing(run_path):
    with ckpt.Run(run_path) as run:
        for step in range(1, 8):
            run.save(step, TREE)
    with pytest.warns(RuntimeWarning, match="old checkpoints were not deleted.*new or changed") as told:
        with ckpt.Run(run_path, keep=2) as run:
            for step in (8, 9, 10):
                run.save(step, TREE, wait=True)
    assert len(told) == 1 and len(steps(run_path)) == 10  # not after each save
    subprocess.run(shlex.split(str(told[0].message).partition("run once: ")[2]), check=True, capture_output=True)
    with ckpt.Run(run_path, keep=2) as run:
        run.save(11, TREE)
    assert steps(run_path) == [10, 11]


def test_rules_are_applied_where_nothing_but_save_is_called(run_path):
    run = ckpt.Run(run_path, keep=1, staging=1 << 22)
    for step in range(1, 400):
        run.save(step, TREE).wait()
        if len(steps(run_path)) < step:
            break
    assert len(steps(run_path)) < step  # before it is closed
    run.close()
    assert steps(run_path) == [step]


def test_nothing_is_deleted_before_a_newer_save_is_durable(run_path):
    """A save that fails deletes nothing, nor does a run that saves nothing."""
    with ckpt.Run(run_path) as run:
        run.save(1, TREE)
        run.save(2, TREE)
    with ckpt.Run(run_path, keep=1):
        pass
    assert steps(run_path) == [1, 2]
    code = ("import resource, signal, sys; sys.path[:0] = sys.argv[2:]; import conftest, numpy, ckpt\n"
            "run = ckpt.Run(sys.argv[1], keep=1, staging=1 << 24)\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
            "try:\n    with run:\n        run.save(3, {'w': numpy.ones(1 << 20)})\nexcept ckpt.Error as reason:\n    print(reason.code)")
    out = subprocess.run([sys.executable, "-c", code, run_path, str(ROOT / "python"), str(ROOT / "tests/python")], capture_output=True, text=True)
    assert out.stdout.strip() in ("14", "16"), out
    assert steps(run_path) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        with ckpt.Run(run_path, keep=1) as run:
            raise ZeroDivisionError
    assert steps(run_path) == [1, 2]
    with ckpt.Run(run_path, keep=1) as run:
        with pytest.raises(ckpt.Unsupported):
            run.save(3, {"x": object()})
    assert steps(run_path) == [1, 2]


def test_a_rank_applies_them_for_all(tmp_path):
    job("run_job.py", "keep", tmp_path, 2)
    assert steps(tmp_path / "kept") == [5, 6]


def test_what_counts_as_optimizer_state():
    from ckpt import _tree
    weight, one = numpy.ones(2), numpy.ones(1)
    state = {"state": {0: {"exp_avg": numpy.ones(3), "master": weight, "step": one}}, "param_groups": [{"lr": numpy.ones(1), "params": [0]}]}
    tree = {"a.optim": state, "model": {"w": weight, "optimizer": {"state": {"w": numpy.ones(4)}}}, "lists": [state]}
    # Nothing that has another name, and nothing of a module that is called so.
    assert _tree.flatten(tree).slots == {"a%2Eoptim.state.0.exp_avg", "a%2Eoptim.state.0.step", "lists.0.state.0.exp_avg",
                                         "lists.0.state.0.master", "lists.0.state.0.step"}


def test_old_checkpoints_are_reduced_to_their_weights(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 9 }\ndrop_optimizer_after = "1s"\n')
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    masters = {"state": {0: {"master": model[0].weight.detach()}}, "param_groups": []}  # the weights by another name
    tree = {"masters": masters, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    with ckpt.Run(tmp_path / "run") as run:
        for step in (1, 2, 3):
            run.save(step, tree)
    time.sleep(1.1)
    assert ckpt.prune(store=tmp_path, apply=True, yes=True).demoted == 2
    with ckpt.Run(tmp_path / "run") as run:
        with pytest.raises(ckpt.NotFound, match=r"(?s)step 1 lacks optimizer\.state\.0\.step, .*dropped its optimizer state"):
            run.load(1)
        into = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}, "step": 0}
        report = run.load(1, into=into, strict=False)
        assert torch.equal(into["model"]["0.weight"], model.state_dict()["0.weight"]) and into["step"] == 1 and not report.missing
        with pytest.raises(ckpt.NotFound, match="lacks optimizer.state.0"):
            run.load(1, into=tree)
        assert run.load(3).tree["optimizer"]["state"].keys() == {0, 1}
    old = next(tmp_path.glob("run/step-000000001.g*"))
    with ckpt.open(old) as checkpoint:
        assert sorted(checkpoint.torch("model.")) == ["0.bias", "0.weight"] and not checkpoint.torch(roles=("slot",))
    ckpt.convert(old, tmp_path / "old.pt")
    loaded = torch.load(tmp_path / "old.pt", weights_only=True)
    assert torch.equal(loaded["model"]["0.weight"], model.state_dict()["0.weight"]) and loaded["step"] == 1
