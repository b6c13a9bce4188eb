"""Universal checkpoints are what src/format/FORMAT.md says, read by a second implementation of it."""
import json
import sys

import jsonschema
import pytest

import universal
from conftest import GOLDEN, ROOT, golden_cases
from truth import differences

sys.path.append(str(ROOT / "examples"))
import read_universal  # noqa: E402

SCHEMA = json.loads((ROOT / "schemas" / "manifest.schema.json").read_text())


def check(root, case):
    manifest, tensors, objects = universal.read(root)
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    named = tensors | {row["name"]: tensors[row["target"]] for row in manifest["aliases"]}
    lines, compared = differences(case, named)
    assert not lines, "\n".join(lines[:10])
    return manifest, tensors, objects, compared


@pytest.mark.parametrize("name", ["ckpt/0.9-small", "ckpt/0.9-tied", "ckpt/1.0-mesh"])
def test_what_a_release_wrote_follows_the_specification(name):
    about = json.loads((GOLDEN / name / "about.json").read_text())
    manifest, _, objects, compared = check(GOLDEN / name / "ckpt", GOLDEN / name)
    assert compared > 0
    assert (manifest["step"], manifest["world_size"]) == (about["step"], about["world_size"])
    assert {row["name"]: row["target"] for row in manifest["aliases"]} == about["aliases"]
    for key, expected in about.get("objects", {}).items():
        assert objects[key] == expected


@pytest.mark.parametrize("size", ["20KB", "5GB"])
@pytest.mark.parametrize("name", golden_cases())
def test_what_convert_writes_follows_the_specification(name, size, ckpt, out):
    ckpt("convert", GOLDEN / name / "ckpt", out / "universal", "--shard-size", size)
    check(out / "universal", GOLDEN / name)


@pytest.mark.parametrize("name", golden_cases())
def test_the_example_reads_what_convert_writes(name, ckpt, out):
    ckpt("convert", GOLDEN / name / "ckpt", out / "universal", "--to", "ckpt")
    manifest, tensors, _ = read_universal.read(out / "universal")
    rows = {row["name"]: row for row in manifest["tensors"]}
    rows |= {row["name"]: rows[row["target"]] for row in manifest["aliases"]}
    lines, _ = differences(GOLDEN / name, {key: (rows[key]["dtype"], tuple(map(int, rows[key]["shape"])), values.tobytes())
                                           for key, values in tensors.items()})
    assert not lines, "\n".join(lines[:10])


def test_the_same_conversion_gives_the_same_bytes(ckpt, out):
    for target in ("one", "two"):
        ckpt("convert", GOLDEN / "deepspeed/zero2_bf16_dp4/ckpt", out / target, "--threads", 1 if target == "one" else 2)
    files = sorted(p.relative_to(out / "one") for p in (out / "one").rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(out / "two") for p in (out / "two").rglob("*") if p.is_file())
    for file in files:
        assert (out / "one" / file).read_bytes() == (out / "two" / file).read_bytes(), file
