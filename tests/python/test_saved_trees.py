"""What Run.save stored, in other formats and for the command: as if torch.save had written the tree."""
import collections
import copy

import ckpt
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict


def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(collections.OrderedDict(first=torch.nn.Linear(4, 3), rest=torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    return model, optimizer


def tree_of(model, optimizer):
    return {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict(), "step": 7, "losses": (0.5, float("inf")), "tags": ["a", "b\ud800"],
            "big": 1 << 70, 3: {"nested": None}, "long": list(range(100))}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


@pytest.fixture
def saved(tmp_path):
    model, optimizer = trained()
    with ckpt.Run(tmp_path / "run") as run:
        run.save(7, tree_of(model, optimizer))
    return model, optimizer


def test_open_gives_names_and_roles_of_the_model(tmp_path, saved):
    model, optimizer = saved
    with ckpt.open(tmp_path / "run") as checkpoint:
        fresh = copy.deepcopy(model)
        for value in fresh.state_dict().values():
            value.zero_()
        fresh.load_state_dict(checkpoint.torch("model."))
        assert all(torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), model.state_dict().values()))
        assert list(checkpoint)[:2] == ["model.first.weight", "model.first.bias"]
        assert checkpoint["optimizer.state.0.exp_avg"].role == "slot" and not checkpoint.blobs
        assert "optimizer.state.0.exp_avg" not in checkpoint.torch()
        objects = checkpoint.objects
        assert objects["step"] == 7 and objects["big"] == 1 << 70 and objects["tags.1"] == "b\ud800" and objects["losses.1"] == float("inf")
        assert objects["3.nested"] is None and objects["long"] == list(range(100)) and objects["optimizer.param_groups.0.lr"] == 0.01


def test_torch_loads_the_same_tree_from_a_converted_file(tmp_path, saved):
    ckpt.convert(tmp_path / "run", tmp_path / "tree.pt")
    assert same(torch.load(tmp_path / "tree.pt", weights_only=True), tree_of(*saved))
    assert ckpt.diff(tmp_path / "run", tmp_path / "tree.pt").ok
    with ckpt.open(tmp_path / "tree.pt") as checkpoint:
        assert checkpoint.objects["big"] == 1 << 70 and checkpoint.objects["losses.1"] == float("inf")


def test_weights_alone_have_the_names_of_the_model(tmp_path, saved):
    safetensors = pytest.importorskip("safetensors.torch")
    ckpt.convert(tmp_path / "run", tmp_path / "model.safetensors", only="weights")
    assert safetensors.load_file(tmp_path / "model.safetensors").keys() == saved[0].state_dict().keys()
    halves = ckpt.convert(tmp_path / "run", tmp_path / "halves", dtype="bf16")
    assert halves.target.format == "ckpt"
    with ckpt.open(tmp_path / "halves") as checkpoint:
        assert checkpoint["model.first.weight"].dtype == "BF16" and checkpoint["optimizer.state.0.exp_avg"].dtype == "F32"


def test_dcp_resumes_from_a_converted_run(tmp_path, saved):
    model, optimizer = saved
    ckpt.convert(tmp_path / "run", tmp_path / "dcp", to="dcp")
    fresh, other = trained()
    for value in fresh.state_dict().values():
        value.zero_()
    state = dict(zip(("model", "optimizer"), get_state_dict(fresh, other)))
    dcp.load(state, checkpoint_id=tmp_path / "dcp")
    expected = get_state_dict(model, optimizer)
    assert all(torch.equal(state["model"][name], value) for name, value in expected[0].items())
    for name, slots in expected[1]["state"].items():
        assert all(torch.equal(state["optimizer"]["state"][name][slot], value) for slot, value in slots.items())


def test_a_copy_is_one_that_a_run_loads(tmp_path, saved):
    ckpt.convert(tmp_path / "run", tmp_path / "copy")
    ckpt.save(tmp_path / "copy", store=tmp_path / "store", run="other")
    with ckpt.Run(tmp_path / "store" / "other") as run:
        assert same(run.load().tree, tree_of(*saved))
    ckpt.convert(tmp_path / "store" / "other", tmp_path / "again.pt")
    assert same(torch.load(tmp_path / "again.pt", weights_only=True), tree_of(*saved))


def test_a_tree_with_the_blobs_name_inside_or_of_one_list(tmp_path):
    tree = [torch.ones(2), {"python": {"json": torch.zeros(1)}, "python.json": 1}]
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, tree)
    ckpt.convert(tmp_path / "run", tmp_path / "tree.pt")
    assert same(torch.load(tmp_path / "tree.pt", weights_only=True), tree)


def test_a_selection_is_loaded_into_a_tree(tmp_path, saved):
    model, optimizer = saved
    ckpt.convert(tmp_path / "run", tmp_path / "weights", only="weights")
    ckpt.convert(tmp_path / "run", tmp_path / "halves", dtype="bf16")
    for step, name in enumerate(("weights", "halves"), 1):
        ckpt.save(tmp_path / name, store=tmp_path / "store", run="other", step=step)
    with ckpt.Run(tmp_path / "store" / "other") as run:
        into = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        run.load(1, into=into)
        assert all(torch.equal(into[name], value) for name, value in model.state_dict().items())
        with pytest.raises(ckpt.NotFound, match="lacks other"):
            run.load(1, into={**into, "other": torch.zeros(1)})
        state = {"model": {name: torch.zeros_like(value, dtype=torch.bfloat16 if value.is_floating_point() else None) for name, value in into.items()}, "step": 0}
        report = run.load(2, into=state, strict=False)
        assert state["step"] == 7 and not report.missing and "optimizer.state.0.exp_avg" in report.unexpected
        assert torch.equal(state["model"]["first.weight"], model.state_dict()["first.weight"].bfloat16())
        with pytest.raises(ckpt.Usage, match="into="):
            run.load(2)


def test_a_weight_that_optimizer_state_shares_is_a_weight(tmp_path):
    weight, other = torch.ones(2, 2), torch.zeros(2)
    tree = {"optimizer": {"state": {0: {"master": weight, "exp_avg": torch.ones(3)}}, "param_groups": [{"params": [0]}]},
            "model": {"first": other, "w": weight}}
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, tree)
    torch.save(tree, tmp_path / "tree.pt")
    for source in ("run", "tree.pt"):
        with ckpt.open(tmp_path / source) as checkpoint:
            assert checkpoint.torch("model.").keys() == {"first", "w"} and checkpoint.ties == {"optimizer.state.0.master": "model.w"}
            assert [name for name in checkpoint][:2] == ["model.first", "model.w"]  # the order of the model
        ckpt.convert(tmp_path / source, tmp_path / f"{source}.safetensors", only="weights")
        assert set(ckpt.open(tmp_path / f"{source}.safetensors")) == {"first", "w"}


def test_weights_alone_leave_out_what_lies_beside_them(tmp_path):
    numpy = pytest.importorskip("numpy")
    ones = numpy.ones(2)
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, {"model": {"w": ones}, "optimizer": {"state": {}, "param_groups": []}, "rng": {"numpy": ones + 1}, "scheduler": {"base": ones + 2}, "ema": {"w": ones * 2}})
        run.save(2, {"params": {"w": ones}, "opt_state": ({"mu": {"w": ones + 1}}, {"count": ones + 2})})
    done = ckpt.convert(tmp_path / "run@1", tmp_path / "one.safetensors", only="weights")
    assert any("left out: rng.numpy, scheduler.base" in note["text"] for note in done.notes)
    assert set(ckpt.open(tmp_path / "one.safetensors")) == {"w", "ema.w"}
    ckpt.convert(tmp_path / "run@2", tmp_path / "two.safetensors", only="weights")
    assert set(ckpt.open(tmp_path / "two.safetensors")) == {"params.w"}


def test_integers_have_any_length(tmp_path):
    tree = {"w": torch.ones(1), "n": 10 ** 4000, "m": -(1 << 64), "k": (1 << 63) - 1}
    with ckpt.Run(tmp_path / "run") as run:
        run.save(1, tree)
        with pytest.raises(ckpt.Unsupported, match="surrogates"):
            run.save(2, {"x": "\ud83d\ude00", "w": torch.ones(1)})
    ckpt.convert(tmp_path / "run", tmp_path / "tree.pt")
    assert same(torch.load(tmp_path / "tree.pt", weights_only=False), tree)  # torch's own loader of plain values takes 255 bytes
    assert ckpt.open(tmp_path / "run").objects["n"] == 10 ** 4000


@pytest.mark.parametrize("text, reason", [
    ('{"dict": [["k" , 1], ["k", 2]]}', "two equal keys"), ('{"dict": [[[1], 1]]}', "neither text nor"), ('{"dict": [["a", {"float": "1.5"}]]}', "float"),
    ('{"dict": [["' + "k" * 1000000 + '", {"list": [' + ", ".join(["1"] * 500) + ']}]]}', "too much memory")])
def test_a_tree_that_is_none_is_refused_in_little_memory(text, reason):
    from ckpt import _tree
    with pytest.raises(ckpt.Corrupt, match=reason):
        _tree.parse(_tree.build(text))
