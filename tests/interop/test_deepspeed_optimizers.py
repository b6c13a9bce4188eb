"""Optimizers other than Adam at another ZeRO stage: DeepSpeed loads what ckpt wrote, and the next losses are equal."""
import json
import shutil

import pytest

from conftest import GOLDEN
from test_deepspeed import launch

SCRIPT = "deepspeed_optimizers.py"
# name of the run: optimizer, stage, stage of the target; `sorted`: its parameters are not in the order of the module
RUNS = {"nadam": ("NAdam", 1, 2), "asgd": ("ASGD", 3, 1), "nadam0": ("NAdam", 2, 0), "muon": ("muon", 1, 2), "sorted": ("AdamW", 0, 2),
        "nadam2": ("NAdam", 0, 2), "asgd3": ("ASGD", 0, 3)}


def case(name, stage, **more):
    return {"name": name, "stage": stage, "optimizer": RUNS[name.split("_")[0]][0], "sorted": name.startswith("sorted"), **more}


def test_training_goes_on_at_another_stage(ckpt, out):
    pytest.importorskip("deepspeed")
    launch(2, SCRIPT, out, [case(name, stage, save=str(out / name)) for name, (_, stage, _) in RUNS.items()])
    for name, (_, _, stage) in RUNS.items():
        ckpt("verify", out / name)
        ckpt("convert", out / name, out / f"{name}_on", "--to", "deepspeed", "--zero-stage", stage, "--dp", 2)
    launch(2, SCRIPT, out, [case(f"{name}_on", stage, load=str(out / f"{name}_on"), seed=5) for name, (_, _, stage) in RUNS.items()])
    for name in RUNS:
        before, after = (json.loads((out / f"{n}.json").read_text()) for n in (name, f"{name}_on"))
        assert before == after, name


def test_numbers_of_the_optimizer_and_client_state_reach_torch_and_dcp(ckpt, out):
    pytest.importorskip("deepspeed")
    torch = pytest.importorskip("torch")
    launch(2, SCRIPT, out, [case("nadam", 1, save=str(out / "nadam"))])
    (held,) = json.loads((out / "nadam.json").read_text())["numbers"]["mu_product"]
    ckpt("convert", out / "nadam", out / "nadam.pt")
    written = torch.load(out / "nadam.pt", weights_only=True)
    assert {float(state["mu_product"]) for state in written["optimizer"]["state"].values()} == {held}
    assert torch.equal(written["random"].pop("torch"), torch.arange(7))
    assert written["random"] == {"others": [1, (2.5, None)]}
    ckpt("convert", out / "nadam", out / "dcp", "--to", "dcp")
    ckpt("convert", out / "dcp", out / "dcp.pt")
    states = torch.load(out / "dcp.pt", weights_only=True)["optimizer"]["state"]
    assert {float(state["mu_product"]) for state in states.values()} == {held}


@pytest.mark.parametrize("case, inner", [("zero2_bf16_dp4", "base_optimizer_state"), ("zero3_bf16_dp4", "optimizer_state_dict")])
def test_ranks_may_list_their_state_in_another_order(ckpt, out, case, inner):
    """Runs that began from a universal folder take it from a Python set, whose order differs between processes."""
    pytest.importorskip("deepspeed")
    torch = pytest.importorskip("torch")
    source = GOLDEN / "deepspeed" / case / "ckpt"
    shutil.copytree(source, out / "copy")
    (path,) = (out / "copy").glob("*/*zero_pp_rank_1_*_optim_states.pt")
    file = torch.load(path, weights_only=False)
    states = file["optimizer_state_dict"][inner]["state"]
    for index, state in states.items():
        states[index] = {key: state[key] for key in reversed(state)}
    torch.save(file, path)
    ckpt("diff", out / "copy", source)
