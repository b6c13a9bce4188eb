"""jax arrays over 4 devices of the host: their parts are saved, and loaded into any sharding."""
import subprocess
import sys

import ckpt
import numpy
import pytest
from conftest import ROOT
from test_dcp import job

pytest.importorskip("jax", reason="jax is not installed")


def test_arrays_over_four_devices(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tests/python/jax_job.py"), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ckpt.verify(tmp_path / "trees").ok
    with ckpt.open(tmp_path / "pytree") as checkpoint:  # without jax
        assert checkpoint["params.w"].numpy().shape == (8, 6) and checkpoint.objects["step"] == 4


def test_processes_save_together_and_another_number_loads(tmp_path):
    job("jax_rank_job.py", "save", tmp_path, 2)
    for world in (2, 1):
        job("jax_rank_job.py", "load", tmp_path, world)
    with ckpt.open(tmp_path / "run") as checkpoint:
        assert all(checkpoint[name].numpy().tobytes() == bytes(numpy.arange(48.0, dtype=numpy.float32)) for name in ("both", "columns", "replicated"))
