"""Runs the examples of docs/python.md verbatim, one after the other."""
import re

import ckpt
from conftest import ROOT

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)


def test_the_examples_run_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    for shown in re.findall(r"print\(.*\) +# (.*?)(?: \.\.\.)?$", "".join(EXAMPLES), re.M):
        assert shown in printed
    exec(EXAMPLES[0], names)  # resumes
    with ckpt.open("runs/exp7") as checkpoint:
        assert checkpoint.info.step == 300 and checkpoint.objects["step"] == 300
    assert names["first"] == 301
    assert len(EXAMPLES) == 5


def test_every_public_name_is_documented():
    text = (ROOT / "docs" / "python.md").read_text()
    undocumented = {"Checkpoint", "Info", "Tensor", "LoadReport"}  # results; the page shows their use
    for name in set(ckpt.__all__) - undocumented:
        assert re.search(rf"\b{name}\b", text), name
        assert getattr(ckpt, name).__doc__
