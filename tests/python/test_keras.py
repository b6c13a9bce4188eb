"""Keras trainings that are interrupted and resume through ckpt.integrations.keras give the losses of one that was not."""
import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="keras is not installed")


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_a_training_resumes_with_the_same_losses(tmp_path, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    done = subprocess.run([sys.executable, str(ROOT / "tests/python/keras_job.py"), str(tmp_path)], capture_output=True, text=True,
                          env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "KERAS_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
