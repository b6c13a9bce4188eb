"""The package under test, with the command and the library of one build: CKPT and CKPT_LIBRARY name them, else those of
build/release."""
import os
import pathlib
import signal
import sys

import pytest

# Of a job in the background SIGINT is ignored, and it would be in the processes that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
