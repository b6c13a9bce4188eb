"""ckpt.Run of several ranks over torch.distributed: what they save together loads at any number of ranks; failures reach all."""
import os
import signal

import ckpt
import numpy
import pytest
import torch
from ckpt import _comm
from dcp_job import whole
from test_dcp import job
from test_run import bits


def test_ranks_save_together_and_another_number_loads(tmp_path):
    job("run_job.py", "save", tmp_path, 2)
    for world in (2, 3):
        job("run_job.py", "load", tmp_path, world)
    assert ckpt.verify(tmp_path / "run").ok
    with ckpt.open(tmp_path / "run") as checkpoint:
        assert checkpoint.info.step == 6 and checkpoint.ties == {"tied": "model.rows"}
    with ckpt.Run(tmp_path / "run") as run:  # one process, without torch.distributed
        tree = run.load(4).tree
        assert ckpt.open(tmp_path / "run").info.metrics == {}
    for name, tensor in tree["model"].items():
        assert bits(tensor) == bits(whole(name))
    assert numpy.array_equal(tree["array"], [4, 4, 4]) and torch.equal(tree["stage1"]["bias"], torch.full((4,), 9.0))
    files = {path.name: path.stat().st_size for path in (tmp_path / "run").glob("step-*4.*/shards/weights/*")}
    assert len(files) == 2 and max(files.values()) < 1.2 * min(files.values())  # each rank wrote its half, replicas once
    assert sorted(path.name.split(".")[0] for path in (tmp_path / "run").glob("step-*")) == [f"step-00000000{n}" for n in (2, 4, 6)]


def test_a_rank_that_leaves_tells_the_others_why(tmp_path):
    job("run_job.py", "leave", tmp_path, 2)
    assert ckpt.open(tmp_path / "left").info.step == 1 and len(os.listdir(tmp_path / "left")) >= 1


def test_ctrl_c_in_a_call_of_the_library_has_its_effect_after_it():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        with _comm.uninterrupted(ranks=object()):
            signal.raise_signal(signal.SIGINT)  # in a callback the exception would be dropped
            done.append("the call")
    assert done == ["the call"] and signal.getsignal(signal.SIGINT) is before
