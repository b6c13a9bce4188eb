"""The commands as functions, `python -m ckpt`, and Ctrl-C."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import ckpt
import pytest
import safetensors.torch
import torch
from ckpt import commands
from conftest import GOLDEN

TIED = GOLDEN / "ckpt/0.9-tied/ckpt"


def test_options_are_those_of_the_command():
    assert commands.options({"keep_last": 3, "apply": True, "yes": False, "store": None, "only": ["weights", "h.*"],
                             "map": pathlib.Path("/a b"), "from_": "dcp"}) == [
        "--keep-last=3", "--apply", "--only=weights", "--only=h.*", "--map=/a b", "--from=dcp"]


def test_a_notebook_shows_text_as_text():
    page = commands.Result({"a": "<b>", "rows": [{"x": "<i>", "nested": {}}] * 60}, "list")._repr_html_()
    assert "&lt;b&gt;" in page and "&lt;i&gt;" in page and "<b>" not in page and "<i>" not in page
    assert "10 more" in page and "nested" not in page


def test_convert_and_diff(tmp_path):
    done = ckpt.convert(TIED, tmp_path / "hf", to="safetensors", only="weights")
    assert done.ok and done.exit_code == 0 and done.target.format == "safetensors" and done["tensors"] == done.tensors
    assert "ckpt convert: ok" in repr(done) and "target" in dir(done) and "tensors" in done
    assert ckpt.open(tmp_path / "hf").keys() >= {"wte.weight"}
    again = ckpt.convert(TIED, tmp_path / "hf", to="safetensors", only="weights")
    assert again.already_done
    ckpt.convert(TIED, tmp_path / "all")
    assert ckpt.diff(tmp_path / "all", TIED).ok
    with pytest.raises(AttributeError, match="nosuch"):
        done.nosuch


def test_stats():
    of = {tensor["name"]: tensor for tensor in ckpt.stats(TIED, only="weights").tensors}
    values = ckpt.open(TIED)["wte.weight"].numpy()
    assert of["wte.weight"]["min"] == values.min() and of["wte.weight"]["nan"] == 0


def test_progress_is_told_and_stops_the_command(tmp_path, monkeypatch):
    big = tmp_path / "big.safetensors"
    safetensors.torch.save_file({f"t{i}": torch.full((1 << 20,), float(i)) for i in range(16)}, big)
    told = []
    assert ckpt.convert(big, tmp_path / "out.safetensors", progress=told.append).ok
    assert told and told[-1]["done_bytes"] == told[-1]["total_bytes"] > 1 << 26 and told[0]["phase"] == "read+convert"

    class Enough(Exception):
        pass

    def stop(at):
        raise Enough(at["phase"])

    with pytest.raises(Enough, match="read"):
        ckpt.convert(big, tmp_path / "other.safetensors", progress=stop)
    other = tmp_path / "other.safetensors"
    assert not other.exists() or ckpt.diff(other, big).ok  # whole, where it ended before it was stopped
    bars = []

    class Bar:
        def __init__(self, total, desc, **_):
            self.total, self.desc, self.n, self.closed = total, desc, 0, False
            bars.append(self)

        def update(self, more):
            self.n += more

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm.auto", type(sys)("tqdm.auto"))
    sys.modules["tqdm.auto"].tqdm = Bar
    assert ckpt.verify(tmp_path / "out.safetensors", progress=True).ok
    ckpt.convert(big, tmp_path / "third.safetensors", progress=True)
    assert bars and all(bar.closed and bar.n == bar.total for bar in bars), [(bar.desc, bar.n, bar.total) for bar in bars]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert ckpt.convert(big, tmp_path / "fourth.safetensors", progress=True).ok
    with pytest.raises(ckpt.NotFound, match="nothing there"):
        ckpt.convert(tmp_path / "nothing there", tmp_path / "fifth", progress=True)


def test_inspect_and_verify():
    assert ckpt.inspect(TIED).meta.step == 3
    assert ckpt.verify(TIED).intact
    ckpt.verify(TIED).raise_if_bad()
    damaged = ckpt.verify(GOLDEN / "broken/dcp_flipped_byte/ckpt")
    assert not damaged.ok and damaged.exit_code == 1 and damaged.damage[0].tensor == "model.even.w"
    with pytest.raises(ckpt.Corrupt, match="CRC-32") as raised:
        damaged.raise_if_bad()
    assert raised.value.tensor == "model.even.w" and raised.value.code == 1


def test_a_store_from_save_to_prune(tmp_path):
    store = tmp_path / "store"
    for step in (1, 2, 3):
        ckpt.save(TIED, store=store, run="exp7", step=step, metric=f"loss={4 - step}")
    listed = ckpt.list(store)
    assert sorted(c.step for c in listed.checkpoints) == [1, 2, 3]
    page = listed._repr_html_()
    assert page.count("<tr>") >= 4 and "<th>step</th>" in page and "<td>3</td>" in page
    plan = ckpt.prune(store=store, keep_last=1)
    assert plan.ok and len(ckpt.list(store).checkpoints) == 3, "a plan changes nothing"
    ckpt.prune("exp7", store=store, keep_last=1, apply=True, yes=True)
    assert [c.step for c in ckpt.list(store).checkpoints] == [3]
    assert ckpt.plan(params="70B", bw="40G").ok


def test_failures_are_the_same_exceptions(tmp_path):
    with pytest.raises(ckpt.NotFound) as nothing:
        ckpt.inspect(tmp_path / "nosuch")
    assert nothing.value.id == "CKPT-E1000" and nothing.value.hint
    with pytest.raises(ckpt.Usage) as option:
        ckpt.convert(TIED, tmp_path / "out", nosuch=1)
    assert option.value.code == 2 and "nosuch" in str(option.value)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(ckpt.Usage):
        ckpt.convert(TIED, tmp_path / "full")
    assert (tmp_path / "full" / "mine").read_text() == "x"


def test_what_is_left_out_is_a_warning(tmp_path):
    folder = tmp_path / "hf"
    folder.mkdir()
    safetensors.torch.save_file({"w": torch.ones(3)}, folder / "model.safetensors")
    torch.save({"w": torch.ones(3)}, folder / "pytorch_model.bin")
    with pytest.warns(UserWarning, match="ckpt convert: .*pytorch_model.bin"):
        done = ckpt.convert(folder, tmp_path / "out.safetensors", from_="safetensors")
    assert not done.ok and done.exit_code == 3 and (tmp_path / "out.safetensors").exists()


def test_a_command_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CKPT", "/no/such/command")
    with pytest.raises(ckpt.Unsupported, match="/no/such/command cannot be started: No such file"):
        ckpt.verify("x")


def test_the_module_is_the_command(tmp_path):
    here = subprocess.run([sys.executable, "-m", "ckpt", "ls", "-q", TIED], capture_output=True, text=True)
    direct = subprocess.run([os.environ["CKPT"], "ls", "-q", TIED], capture_output=True, text=True)
    assert here.returncode == 0 and here.stdout == direct.stdout
    missing = subprocess.run([sys.executable, "-m", "ckpt", "inspect", tmp_path / "nosuch"], capture_output=True, text=True)
    assert missing.returncode == 10


def test_a_script_that_finds_only_itself_does_not_run_forever(tmp_path):
    script = tmp_path / "ckpt"
    script.write_text(f"#!{sys.executable}\nimport ckpt._program\nckpt._program.main()\n")
    script.chmod(0o755)
    run = subprocess.run([script, "version"], capture_output=True, text=True, timeout=60,
                         env={"PATH": str(tmp_path), "PYTHONPATH": os.environ["PYTHONPATH"]})
    assert run.returncode == 12 and "not installed" in run.stderr


STOPPABLE = """#!/bin/sh
trap 'sleep 0.3; touch "$(dirname "$0")/ended"; exit 130' INT
touch "$(dirname "$0")/ready"
while :; do sleep 0.05; done
"""


def test_ctrl_c_stops_the_command_and_waits_for_it(tmp_path):
    program = tmp_path / "command"  # one that ends a while after SIGINT
    program.write_text(STOPPABLE)
    program.chmod(0o755)
    code = "import ckpt\ntry: ckpt.verify('x')\nexcept KeyboardInterrupt: print('stopped')"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "CKPT": str(program)})
    end = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert child.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out == "stopped\n" and child.returncode == 0
    assert (tmp_path / "ended").exists(), "it waited for the command"


def test_the_command_starts_without_the_standard_library():
    script = "import os, sys; before = set(sys.modules); import ckpt._program; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"__future__", "ckpt", "ckpt._program"}
