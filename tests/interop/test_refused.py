"""Broken, hostile and unread checkpoints: the right exit code, one message that names the file, nothing left behind."""
import json
import re
import shutil

import pytest

from conftest import GOLDEN, golden_cases

CODES = {"corrupt": 15, "refused": 15, "incomplete": 13, "unsupported": 12}
# Formats that are only recognised: their damage is not detected.
NOT_READ = {"orbax_flipped_byte", "orbax_missing_data"}
# Complete files with contradicting contents: found by --verify full, which compares masters with the 16-bit weights.
ONLY_FULL = {"zero2_rank_copied"}
# The text that the message must contain, unless `damage` gives it.
NAMES = {
    "dcp_path_escape": r"x/y|\.metadata",
    "hf_index_missing_tensor": r"index\.json|model-0000\d-of-00002\.safetensors",
    "hf_index_path_escape": r"index\.json",
    "orbax_uncommitted": r"3\.orbax-checkpoint-tmp",
    "latest_names_missing_tag": r"latest|global_step9",
    "zero2_rank_copied": r"optim_states\.pt|model_states\.pt",
    "zero3_missing_last_rank": r"zero_pp_rank_2_mp_rank_00",
}

CASES = sorted(p.parent.name for p in (GOLDEN / "broken").glob("*/about.json"))


@pytest.fixture
def broken(request, tmp_path):
    """A copy of the case's checkpoint, because nothing may appear in it or next to it."""
    source = GOLDEN / "broken" / request.param / "ckpt"
    copy = tmp_path / "source" / request.param
    if source.exists():
        shutil.copytree(source, copy)
    else:
        copy.mkdir(parents=True)  # git keeps no empty directory
    return copy


def tree(path):
    return sorted((str(p.relative_to(path)), p.stat().st_size) for p in path.rglob("*"))


def what_to_name(name, about, source):
    if name in NAMES:
        return NAMES[name]
    files = re.findall(r"[\w.-]+\.(?:distcp|metadata|safetensors|pt|bin|h5)\b|\.metadata", " ".join(about["damage"]))
    files = files or [p.name for p in source.rglob("*") if p.is_file()] or [source.name]
    return "|".join(re.escape(f) for f in files)


@pytest.mark.parametrize("broken", CASES, indirect=True)
@pytest.mark.parametrize("target", ["universal", "all.safetensors", "all.h5"])
def test_broken_is_refused_and_leaves_nothing(broken, target, ckpt, out):
    name = broken.name
    about = json.loads((GOLDEN / "broken" / name / "about.json").read_text())
    before = tree(broken.parent)
    run = ckpt("convert", broken, out / target, *(["--verify", "full"] if name in ONLY_FULL else []), expect=None)
    wanted = 12 if name in NOT_READ else CODES[about["expected"]["error"]]
    assert run.returncode == wanted, run.stderr
    assert len(re.findall(r"^error: ", run.stderr, re.M)) == 1, run.stderr
    if wanted != 12:
        assert re.search(what_to_name(name, about, broken), run.stderr), run.stderr
    assert not re.search("^done", run.stdout, re.M)
    assert tree(out) == []
    assert tree(broken.parent) == before
    assert tree(ckpt.cwd) == []  # the file PWNED would be made here


@pytest.mark.parametrize("broken", CASES, indirect=True)
@pytest.mark.parametrize("verb", ["inspect", "ls", "verify"])
def test_broken_ends_every_verb_with_a_verdict(broken, verb, ckpt):
    before = tree(broken.parent)
    run = ckpt(verb, broken, "--json", expect=None)
    assert run.returncode in (0, 1, 12, 13, 15), run.stderr
    told = json.loads(run.stdout)
    assert told["exit_code"] == run.returncode and told["ok"] is (run.returncode == 0)
    assert tree(broken.parent) == before and tree(ckpt.cwd) == []


@pytest.mark.parametrize("broken", [c for c in CASES if c.startswith(("pickle_", "st_", "zip_truncated", "zip_flipped"))],
                         indirect=True)
def test_verify_never_calls_broken_files_sound(broken, ckpt):
    assert ckpt("verify", broken, expect=None).returncode in (1, 12, 13, 15)


@pytest.mark.parametrize("name", golden_cases(read=False))
def test_formats_that_are_not_read_are_refused_by_name(name, ckpt, out):
    run = ckpt("convert", GOLDEN / name / "ckpt", out / "universal", expect=12)
    assert len(re.findall(r"^error: ", run.stderr, re.M)) == 1
    words = {"deepspeed": "deepspeed", "torch": "torch|dcp", "orbax": "orbax"}
    assert re.search(words[name.split("/")[0]], run.stderr, re.I), run.stderr
    assert tree(out) == []


def test_an_existing_target_is_never_replaced(ckpt, out):
    (out / "mine.safetensors").write_text("mine")
    (out / "dir").mkdir()
    (out / "dir" / "mine").write_text("mine")
    before = tree(out)
    for target in ("mine.safetensors", "dir"):
        ckpt("convert", GOLDEN / "torch/dcp_plain/ckpt", out / target, expect=2)
    ckpt("convert", GOLDEN / "torch/dcp_plain/ckpt", out / "dir", "--overwrite", expect=2)  # not a checkpoint
    assert tree(out) == before


def test_the_same_conversion_twice_is_already_done(ckpt, out):
    for target in ("universal", "all.safetensors", "all.h5"):
        ckpt("convert", GOLDEN / "torch/dcp_plain/ckpt", out / target)
        before = tree(out)
        run = ckpt("convert", GOLDEN / "torch/dcp_plain/ckpt", out / target)
        assert "already done" in run.stdout + run.stderr
        assert tree(out) == before


def test_what_is_not_there_is_not_found(ckpt, out):
    run = ckpt("convert", out / "nothing", out / "universal", expect=10)
    assert "nothing" in run.stderr and tree(out) == []
