"""Checkpoints that DeepSpeed writes while the tests run, at sizes that no golden case has."""
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from truth import differences, from_hdf5, from_safetensors

SCRIPT = pathlib.Path(__file__).with_name("deepspeed_save.py")
ENVIRONMENT = {"DS_ACCELERATOR": "cpu", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def launch(world, script, out, case):
    """Runs a script as `world` ranks of a job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, **ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world),
                   "LOCAL_SIZE": str(world), "CROSS_RANK": "0", "CROSS_SIZE": "1"}
    ranks = [subprocess.Popen([sys.executable, SCRIPT.with_name(script), out, json.dumps(case)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)})
             for r in range(world)]
    try:
        told = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, text in zip(ranks, told):
        assert rank.returncode == 0, text[-3000:]


def save(out, world, **case):
    """Runs `world` ranks; returns the case's directory, as a golden one."""
    pytest.importorskip("deepspeed")
    launch(world, SCRIPT.name, out, case)
    (out / "about.json").write_text(json.dumps({"framework": "deepspeed"}))
    return out


def same(case, ckpt, source, out):
    """Equal through safetensors, through HDF5, and through the universal format and back."""
    ckpt("convert", source, out / "all.safetensors")
    ckpt("convert", source, out / "all.h5")
    ckpt("convert", source, out / "universal")
    ckpt("verify", out / "universal", "--against", source)
    ckpt("convert", out / "universal", out / "back.safetensors")
    for tensors in (from_safetensors(out / "all.safetensors"), from_hdf5(out / "all.h5"),
                    from_safetensors(out / "back.safetensors")):
        lines, compared = differences(case, tensors)
        assert not lines, f"{len(lines)} of {compared}: " + "\n".join(lines[:10])
        assert compared > 0


def test_experts_of_two_ranks_equal_what_deepspeed_held(ckpt, out, tmp_path):
    case = save(tmp_path, 2, stage=1, dtype="bf16", experts=6)
    same(case, ckpt, case / "ckpt", out)


def test_a_pipeline_of_tensor_parallel_ranks_equals_what_deepspeed_held(ckpt, out, tmp_path):
    case = save(tmp_path, 4, stage=1, dtype="fp32", stages=2, tensor_ranks=2)
    same(case, ckpt, case / "ckpt", out)


@pytest.mark.slow
def test_experts_of_a_pipeline_of_tensor_parallel_ranks_equal_what_deepspeed_held(ckpt, out, tmp_path):
    pytest.importorskip("deepspeed")
    runs = {"slices": {"slices": True, "stage": 1, "dtype": "bf16"}, "whole": {"stage": 1, "dtype": "fp32"}, "zero0": {"stage": 0, "dtype": "fp32"}}
    cases = [{"name": name, "kind": "both+experts", "ep": 2, "bare": True, "warm": 2, "save": str(tmp_path / name / "ckpt"),
              "truth": str(tmp_path / name / "truth.safetensors"), **run} for name, run in runs.items()]
    for name in runs:
        (tmp_path / name).mkdir()
        (tmp_path / name / "about.json").write_text(json.dumps({"framework": "deepspeed"}))
        (out / name).mkdir()
    launch(8, "deepspeed_model_parallel.py", tmp_path, cases)
    for name in runs:
        same(tmp_path / name, ckpt, tmp_path / name / "ckpt", out / name)


def test_stage_three_equals_what_deepspeed_held_also_by_way_of_its_universal_folder(ckpt, out, tmp_path):
    case = save(tmp_path, 2, stage=3, dtype="bf16", zero={"sub_group_size": 40})
    same(case, ckpt, case / "ckpt", out)
    tag = (case / "ckpt" / "latest").read_text()
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", case / "ckpt" / tag,
                    "--output_folder", case / "universal" / tag, "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   check=True, capture_output=True, timeout=300, env={**os.environ, **ENVIRONMENT})
    (out / "again").mkdir()
    same(case, ckpt, case / "universal", out / "again")
