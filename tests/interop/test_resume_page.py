"""Runs the recipes of docs/resume.md verbatim: DeepSpeed, FSDP2, a plain loop and Hugging Face's Trainer load the state of the
run and continue from it."""
import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from conftest import ROOT
from test_deepspeed import launch
from truth import from_safetensors

RECIPES = {name: (command.strip(), code) for name, command, code in
           re.findall(r"^## ([^\n]+)\n.*?```sh\n(.*?)```.*?```python\n(.*?)```", (ROOT / "docs/resume.md").read_text(), re.S | re.M)}
RUNS = {"DeepSpeed": {"stage": 3, "dtype": "fp32"}, "FSDP2": {"kind": "fsdp"}, "Plain PyTorch": {"kind": "torch"}}


def convert(ckpt, where, command):
    program, *words = shlex.split(command)
    assert program == "ckpt"
    ckpt.cwd = where
    ckpt(*words)


def test_the_page_has_a_recipe_for_each_framework():
    assert set(RECIPES) == {*RUNS, "Hugging Face Trainer"}


def test_what_deepspeed_saved_goes_on_as_the_page_says(ckpt, tmp_path):
    pytest.importorskip("deepspeed")
    (tmp_path / "runs").mkdir()
    launch(2, "deepspeed_resume.py", tmp_path,
           [{"name": "source", "stage": 2, "dtype": "fp32", "warm": 2, "save": str(tmp_path / "runs" / "exp7")}])
    cases = []
    for name, run in RUNS.items():
        command, code = RECIPES[name]
        convert(ckpt, tmp_path, command)
        cases.append({"name": name, "seed": 5, "at": str(tmp_path), "code": code, **run, **({} if "stage" in run else {"step": 2})})
    launch(4, "deepspeed_resume.py", tmp_path, cases)
    truth = from_safetensors(tmp_path / "source.held.safetensors")
    first = json.loads((tmp_path / "source.json").read_text())["losses"][0]
    for name in RUNS:
        held = from_safetensors(tmp_path / f"{name}.held.safetensors")
        assert {k: v for k, v in held.items() if not k.startswith("buffer/")} == {k: v for k, v in truth.items() if not k.startswith("buffer/")}
        assert json.loads((tmp_path / f"{name}.json").read_text())["losses"][0] == pytest.approx(first, rel=1e-6), name


def trainer(where, *words):
    script = pathlib.Path(__file__).with_name("trainer_run.py")
    run = subprocess.run([sys.executable, script, *map(str, words)], cwd=where, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_a_trainer_goes_on_as_the_page_says(ckpt, tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("deepspeed")
    losses = trainer(tmp_path, "runs", 2)
    command, code = RECIPES["Hugging Face Trainer"]
    convert(ckpt, tmp_path, command)
    (tmp_path / "code.py").write_text(code)
    assert trainer(tmp_path, "again", "--code", "code.py") == losses


def test_a_trainer_goes_on_under_deepspeed(ckpt, tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("deepspeed")
    losses = trainer(tmp_path, "runs")
    (tmp_path / "code.py").write_text(
        "import json\n"
        "first, tied = {}, {}\n"
        "for name, parameter in trainer.model.named_parameters(remove_duplicate=False):\n"
        "    if first.setdefault(id(parameter), name) != name:\n"
        "        tied[name] = first[id(parameter)]\n"
        "json.dump({'ckpt-map': 1, 'parameters': list(first.values()), 'tied': tied}, open('order.json', 'w'))\n")
    trainer(tmp_path, "order", "--code", "code.py")
    ckpt("convert", tmp_path / "runs" / "checkpoint-3", tmp_path / "made", "--to", "deepspeed", "--zero-stage", "2", "--dp", "1",
         "--map", tmp_path / "order.json")
    (tmp_path / "code.py").write_text("trainer.train(resume_from_checkpoint='made')\n")
    again = trainer(tmp_path, "again", 2, "--code", "code.py")
    assert again == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize("way", ["direct", "universal"])
def test_a_trainer_with_deepspeed_goes_on_at_another_stage(ckpt, tmp_path, way):
    pytest.importorskip("accelerate")
    pytest.importorskip("deepspeed")
    losses = trainer(tmp_path, "runs", 2)
    source = tmp_path / "runs" / "checkpoint-3"
    if way == "universal":
        ckpt("convert", source, tmp_path / "u")
        source = tmp_path / "u"
    ckpt("convert", source, tmp_path / "made", "--to", "deepspeed", "--zero-stage", "3", "--dp", "1")
    (tmp_path / "code.py").write_text('trainer.train(resume_from_checkpoint="made")')
    assert trainer(tmp_path, "again", 3, "--code", "code.py") == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize("way", ["direct", "universal"])
def test_a_trainers_folder_goes_on_from_the_files_that_ckpt_writes(ckpt, tmp_path, way):
    pytest.importorskip("accelerate")
    losses = trainer(tmp_path, "runs")
    source = tmp_path / "runs" / "checkpoint-3"
    if way == "universal":
        ckpt("convert", source, tmp_path / "u")
        source = tmp_path / "u"
    ckpt("convert", source, tmp_path / "made", "--to", "torch")
    (tmp_path / "code.py").write_text('trainer.train(resume_from_checkpoint="made")')
    assert trainer(tmp_path, "again", "--code", "code.py") == losses
    if way == "direct":
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
            assert (tmp_path / "made" / name).read_bytes() == (source / name).read_bytes()
