"""The package under test, with the command and the library of one build: CKPT and CKPT_LIBRARY name them, else those of
build/release."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

os.environ.setdefault("CKPT", str(ROOT / "build" / "release" / "bin" / "ckpt"))
# The library of the same build as the command.
os.environ.setdefault("CKPT_LIBRARY", str(pathlib.Path(os.environ["CKPT"]).parents[1] / "lib" / "libckpt.so.1"))
PACKAGE = str(ROOT / "python")
os.environ["PYTHONPATH"] = PACKAGE  # of child processes
sys.path[:0] = [PACKAGE, str(ROOT / "tests" / "interop")]  # truth.py: what the golden checkpoints hold


@pytest.fixture
def run_path(tmp_path):
    """Where a run may be created."""
    return tmp_path / "runs" / "exp7"
