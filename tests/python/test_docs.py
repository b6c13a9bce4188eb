"""Runs the examples of docs/python.md verbatim, one after the other."""
import contextlib
import importlib.util
import re
import subprocess
import sys
import textwrap

import ckpt
from conftest import ROOT


@contextlib.contextmanager
def distributed(directory):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trainer_parts():
    """What the page's Trainer trains."""
    import transformers

    sizes = {"vocab_size": 8, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    return {"language_model": transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)),
            "arguments": transformers.TrainingArguments("out", max_steps=100, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True),
            "data": [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 8}


BEFORE = {"jax": "import ckpt\n", "torchtitan": """
import torch
torch.distributed.init_process_group("gloo", init_method="file:///proc/self/cwd/store-titan", rank=0, world_size=1)
""", "keras": """
import os
os.environ.update(KERAS_BACKEND="torch", KERAS_HOME="keras-home")
import numpy
inputs, targets = numpy.ones((8, 4)), numpy.ones((8, 1))
""", "deepspeed": """
import os, torch
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
import deepspeed.ops
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # needs a compiler
torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("store-deepspeed"), rank=0, world_size=1)
model = torch.nn.Linear(4, 2)
config = {"train_batch_size": 1, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}
"""}

AFTER = {"torchtitan": """
class Counter:
    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]

def manager_of(model, counter, mode):
    config = Checkpoints.Config(enable=True, folder=f"titan-{mode}", interval=2, async_mode=mode, last_save_model_only=False)
    return config.build(dataloader=Counter(), model_parts=[model], optimizers=counter, lr_schedulers=Counter(), states={}, sd_adapter=None)

for mode in ("disabled", "async"):
    model, counter = torch.nn.Linear(4, 2), Counter()
    manager = manager_of(model, counter, mode)
    for step in range(1, 9):
        with torch.no_grad():
            model.weight.fill_(step)
        counter.count = step
        manager.save(step, last_step=step == 8)
    manager.close()
    again = torch.nn.Linear(4, 2), Counter()
    manager_of(*again, mode).load(step=-1)
    assert again[0].weight.eq(8).all() and again[1].count == 8 and ckpt.verify(f"titan-{mode}/step-8").ok
    assert ckpt.open(f"titan-{mode}/step-8")["weight"].shape == (2, 4)
"""}


def alone(library, example):
    """In its own process: what jax starts does not survive a fork, and deepspeed changes torch."""
    done = subprocess.run([sys.executable, "-c", BEFORE[library] + example + AFTER.get(library, "")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


EXAMPLES = [textwrap.dedent(each) for each in re.findall(r"^ *```python\n(.*?)^ *```", (ROOT / "docs" / "python.md").read_text(), re.S | re.M)]


def test_the_examples_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = trainer_parts()
    for example in EXAMPLES:
        library = re.search("^(?:import|from) (jax|keras|deepspeed|torchtitan)\\b", example, re.M)
        if library is None:
            exec(compile(example, "docs/python.md", "exec"), names)
        elif importlib.util.find_spec(library[1]) is not None:
            alone(library[1], example)
    printed = capsys.readouterr().out
    for shown in re.findall(r"print\(.*\) +# (.*?)(?: \.\.\.)?$", "".join(EXAMPLES), re.M):
        assert shown in printed
    exec(EXAMPLES[0], names)  # resumes
    with ckpt.open("runs/exp7") as checkpoint:
        assert checkpoint.info.step == 300 and checkpoint.objects["step"] == 300
    assert names["first"] == 301 and ckpt.open("runs/finetune").info.step == 100
    with distributed(tmp_path):  # a job of one rank
        names["train"](0, 1, "runs/group")
        names["train"](0, 1, "runs/group")
    with ckpt.open("runs/group") as checkpoint:
        assert checkpoint.objects["step"] == 300
    assert ckpt.open("dcp/step-302")["model.weight"].shape == (2, 4)
    assert len(EXAMPLES) == 13


def test_the_api_page_is_what_the_docstrings_say_and_these_name_every_parameter():
    done = subprocess.run([sys.executable, ROOT / "packaging" / "api_pages.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_documented():
    text = (ROOT / "docs" / "python.md").read_text()
    undocumented = {"Checkpoint", "Info", "Tensor", "LoadReport"}  # results; the page shows their use
    for name in set(ckpt.__all__) - undocumented:
        assert re.search(rf"\b{name}\b", text), name
        assert getattr(ckpt, name).__doc__
