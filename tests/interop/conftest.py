"""The command under test and the golden cases. CKPT names the command; else build/release/bin/ckpt."""
import os
import pathlib
import resource
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

# Recognised and refused by name, see tests/golden/README.md.
NOT_READ = {
    "torch/pt_protocols",  # four checkpoints in one folder, each read by its own path
    "orbax/direct_standard",
}


def golden_cases(read=True):
    """Names such as deepspeed/zero3_bf16_dp4, those that are read or those that are only recognised. Files without
    tensors are not converted."""
    names = sorted(str(p.parent.relative_to(GOLDEN)) for p in GOLDEN.glob("*/*/truth.safetensors"))
    return [n for n in names if (n not in NOT_READ) == read and n != "safetensors/no_tensors"]


class Command:
    """Runs ckpt within 1 GiB of address space and 20 seconds; `expect` is the exit code, None = any."""

    program = os.environ.get("CKPT") or str(ROOT / "build" / "release" / "bin" / "ckpt")

    def __init__(self, cwd):
        self.cwd = cwd

    def __call__(self, *words, expect=0):
        def limits():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        # Facts that the files lack are in a file next to them.
        rules = [pathlib.Path(w).parent / "map.json" for w in words if str(w).startswith(str(GOLDEN))]
        words = [*words, *(x for r in rules if r.exists() for x in ("--map", r))]
        if words[0] == "convert" and expect == 0:
            words.append("--allow-skipped")  # tests/cli checks the names and exit 3
        run = subprocess.run([self.program, *map(str, words)], cwd=self.cwd, capture_output=True, text=True, timeout=120,
                             stdin=subprocess.DEVNULL, preexec_fn=limits)
        if expect is not None:
            assert run.returncode == expect, f"ckpt {' '.join(map(str, words))}: exit {run.returncode}\n{run.stderr}"
        return run


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: only with CKPT_SLOW=1, as ./check --long sets it")


def pytest_collection_modifyitems(config, items):
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow and not os.environ.get("CKPT_SLOW"):
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture
def ckpt(tmp_path):
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    return Command(cwd)


@pytest.fixture
def out(tmp_path):
    """An empty directory for targets."""
    path = tmp_path / "out"
    path.mkdir()
    return path
