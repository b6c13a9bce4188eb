"""Run.save uses the plan of the save before: it must notice every change of the tree. A wrong hit would store other bytes, or lose an array."""
import contextlib
import copy
import ctypes
import gc
import json
import pickle
import random
import threading
import weakref

import numpy
import pytest
import torch

import ckpt
from ckpt import _arrays, _saving, _shares, _tree, errors

SEEDS = 25
STEPS = 40


def strings(data, count):
    return [each.decode() for each in data.split(b"\0")][:count]


def added(content):
    """What libckpt is given, read from memory as C reads it: bytes by name, and the tree as JSON."""
    struct = content.table.struct(content.addresses)
    names, dtypes = (strings(text, struct.count) for text in content.table._texts)
    parts, at = {}, 0
    for i, (name, dtype) in enumerate(zip(names, dtypes)):
        ndim = (ctypes.c_uint32 * struct.count).from_address(struct.ndims)[i]
        shape = tuple((ctypes.c_uint64 * ndim).from_address(struct.shapes + 8 * at)) if ndim else ()
        at += ndim
        address, nbytes = ((ctypes.c_uint64 * struct.count).from_address(each)[i] for each in (struct.data, struct.bytes))
        parts[name] = dtype, shape, ctypes.string_at(address, nbytes)
    for name, kind, (part,) in content.others:
        memory = _arrays.dense(part.value, kind.library)
        assert name not in parts
        parts[name] = kind.dtype, kind.shape, ctypes.string_at(memory.address, memory.nbytes)
    return parts, content.text


def truth(tree, name="", found=None):
    """The arrays of a tree by name, read without the code under test."""
    found = {} if found is None else found
    if isinstance(tree, (dict, list, tuple)):
        for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree):
            part = str(key).replace("%", "%25").replace(".", "%2E")
            truth(each, f"{name}.{part}" if name else part, found)
    elif isinstance(tree, torch.Tensor):
        value = torch.empty(tree.shape, dtype=tree.dtype).copy_(tree.detach())
        found[name] = tuple(value.shape), bytes(value.reshape(-1).view(torch.uint8).tolist()) if value.numel() else b""
    elif isinstance(tree, numpy.ndarray):
        found[name] = tree.shape, tree.tobytes()
    return found


def outcome(make):
    try:
        return added(make())
    except errors.Error as reason:
        return str(reason)


def check(planner, tree, note):
    expected, got = outcome(lambda: _saving.Planner().content(tree)), outcome(lambda: planner.content(tree))
    assert got == expected, note
    if isinstance(got, str):
        return
    parts, ties = got[0], _tree.flatten(tree, is_saved=True).ties
    arrays = truth(tree)
    assert set(arrays) == set(parts) | set(ties), note
    for name, each in arrays.items():
        assert parts[ties.get(name, name)][1:] == each, (note, name)


def fresh(rng):
    """An array or plain value that can be stored."""
    shape = rng.choice([(), (1,), (4,), (2, 2), (2, 3), (3, 2), (0,), (2, 0, 3)])
    kind = rng.randrange(12)
    if kind < 5:
        dtype = rng.choice([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float64])
        return (torch.rand(shape) * 9).to(dtype)
    if kind < 8:
        return (numpy.random.default_rng(rng.randrange(99)).random(shape) * 9).astype(rng.choice(["f4", "i8", "c8", "u1"]))
    return rng.choice([1, True, 0, False, 1.0, 0.0, -0.0, None, "", "1", "a.b", float("nan"), float("inf"), 1 << 70, "\ud800"])


def containers(tree):
    found = [tree]
    for each in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(each, (dict, list)):
            found += containers(each)
    return found


def a_leaf(rng, tree, kind=torch.Tensor):
    """A container with a key in it that holds such a leaf, or None."""
    places = [(of, key) for of in containers(tree) for key in (of if isinstance(of, dict) else range(len(of)))
              if isinstance(of[key], kind)]
    return rng.choice(places) if places else (None, None)


def of_leaf(kind, change):
    """Changes an array in place, or puts there the one that `change` returns; nothing if the array cannot be changed so."""
    def apply(rng, tree):
        of, key = a_leaf(rng, tree, kind)
        if of is not None:
            with torch.no_grad(), contextlib.suppress(RuntimeError, ValueError, TypeError):
                made = change(rng, of[key])
                if isinstance(made, kind):
                    of[key] = made
    return apply


def of_torch(change):
    return of_leaf(torch.Tensor, change)


def of_numpy(change):
    return of_leaf((numpy.ndarray, torch.Tensor), lambda rng, value: change(rng, value) if isinstance(value, numpy.ndarray) else None)


def replace_any(rng, tree):
    of = rng.choice([each for each in containers(tree) if each] or [tree])
    if of:
        of[rng.choice(list(of) if isinstance(of, dict) else range(len(of)))] = fresh(rng)


def id_again(rng, tree):
    """A new array at the address of an object that has just died, often with the same id."""
    of, key = a_leaf(rng, tree)
    if of is not None:
        shape = tuple(of[key].shape)
        of[key] = None
        of[key] = (torch.rand(shape) * 9).to(rng.choice([torch.float32, torch.int32, torch.float64]))


def add_key(rng, tree):
    of = rng.choice(containers(tree))
    value = fresh(rng) if rng.random() < 0.7 else rng.choice([{}, [], {"x": fresh(rng)}, [fresh(rng)], (fresh(rng), 1)])
    if isinstance(of, dict):
        of[rng.choice(["a", "b", "c", 1, 2, "1", "x.y", "%"])] = value
    else:
        of.insert(rng.randrange(len(of) + 1), value)


def drop_key(rng, tree):
    of = rng.choice([each for each in containers(tree) if each] or [tree])
    if of:
        del of[rng.choice(list(of) if isinstance(of, dict) else range(len(of)))]


def rename_key(rng, tree):
    of = rng.choice([each for each in containers(tree) if isinstance(each, dict) and each] or [tree])
    if of:
        key = rng.choice(list(of))
        of[rng.choice([1, True, "1", "z", "python%2Ejson", "", 1.0])] = of.pop(key)


def reorder(rng, tree):
    of = rng.choice([each for each in containers(tree) if isinstance(each, dict)])
    pairs = list(of.items())
    rng.shuffle(pairs)
    of.clear()
    of.update(pairs)


def tie(rng, tree):
    of, key = a_leaf(rng, tree)
    other, place = a_leaf(rng, tree)
    if of is not None:
        other[place] = rng.choice([of[key], of[key].detach(), of[key].view(of[key].shape)])


def swap(rng, tree):
    of, key = a_leaf(rng, tree)
    other, place = a_leaf(rng, tree)
    if of is not None:
        of[key], other[place] = other[place], of[key]


def exchange_container(rng, tree):
    """Another container with the same content."""
    of = rng.choice(containers(tree))
    places = [key for key in (of if isinstance(of, dict) else range(len(of))) if isinstance(of[key], (dict, list, tuple))]
    if places:
        key = rng.choice(places)
        content = list(of[key].values()) if isinstance(of[key], dict) else list(of[key])
        of[key] = rng.choice([content, tuple(content), dict(enumerate(content)), {str(i): each for i, each in enumerate(content)}])


def set_data(rng, value):
    value.data = (torch.rand(tuple(value.shape)) * 9).to(rng.choice([torch.float32, torch.float64, torch.int32]))


def set_other_shape(rng, value):
    value.data = torch.rand(rng.choice([(2, 2), (4,), (1, 4), (3,), (0,)]))


def transpose(rng, value):
    if value.dim() == 2:
        return rng.choice([value.t(), value.t_()])


def restride(rng, value):
    """Same shape, dtype and address; other elements."""
    if value.numel() > 1:
        value.as_strided_(value.shape, tuple(0 for _ in value.shape))


def in_own_storage(rng, value):
    """Same storage, another address."""
    if value.dim() == 1 and value.numel() > 1:
        return value[1:]


def views(rng, value):
    if value.is_complex():
        return rng.choice([value.conj(), torch.view_as_real(value), value.conj().imag])
    return rng.choice([value.view(-1), value.unsqueeze(0), value.detach()])


def read_only(rng, value):
    value.flags.writeable = False


MUTATIONS = {
    "in place": of_torch(lambda rng, value: value.copy_(torch.rand(value.shape) * 9)),
    "replaced": replace_any, "id again": id_again, "key added": add_key, "key dropped": drop_key, "key renamed": rename_key,
    "reordered": reorder, "tied": tie, "swapped": swap, "container": exchange_container,
    "untied": of_torch(lambda rng, value: value.clone()), ".data": of_torch(set_data), ".data of another shape": of_torch(set_other_shape),
    "resize_": of_torch(lambda rng, value: value.resize_(rng.choice([(1,), (2,), (2, 1)])) if value.numel() > 1 else None),
    "transposed": of_torch(transpose), "strides": of_torch(restride), "part": of_torch(in_own_storage), "view": of_torch(views),
    "Parameter": of_torch(lambda rng, value: torch.nn.Parameter(value.detach().clone(), requires_grad=value.is_floating_point())),
    "requires_grad": of_torch(lambda rng, value: value.requires_grad_()),
    "meta": of_torch(lambda rng, value: value.to("meta")), "sparse": of_torch(lambda rng, value: value.to_sparse()),
    "as numpy": of_torch(lambda rng, value: value.detach().resolve_conj().resolve_neg().numpy()),
    "as torch": of_numpy(lambda rng, value: torch.tensor(value.tolist())),
    "numpy: in place": of_numpy(lambda rng, value: value.fill(1)),
    "numpy: read-only": of_numpy(read_only), "numpy: transposed": of_numpy(lambda rng, value: value.T),
    "numpy: byte order": of_numpy(lambda rng, value: value.astype(value.dtype.newbyteorder())),
    "numpy: strides": of_numpy(lambda rng, value: value[::-1] if value.ndim else value),
    "numpy: subclass": of_numpy(lambda rng, value: value.view(numpy.matrix) if value.ndim == 2 else value.view(numpy.recarray)),
    "object": lambda rng, tree: tree.__setitem__("o", object()), "nothing": lambda rng, tree: None,
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_plan_notices_every_change(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tree = {"a": fresh(rng), "n": {"w": torch.rand(2, 2), "b": torch.rand(4), "s": 3}, "l": [torch.rand(2), numpy.ones((2, 2), "f4"), {"x": torch.ones(2)}]}
    planner, notes = _saving.Planner(), []
    for _ in range(STEPS):
        before = copy.copy(tree)
        notes.append(rng.choice(list(MUTATIONS)))
        MUTATIONS[notes[-1]](rng, tree)
        check(planner, tree, f"seed {seed}: {notes}")
        if isinstance(outcome(lambda: _saving.Planner().content(tree)), str):  # what cannot be stored goes
            tree.clear()
            tree.update(before if not isinstance(outcome(lambda: _saving.Planner().content(before)), str) else {"w": torch.rand(2, 2), "n": [numpy.ones(3)]})
        check(planner, tree, f"seed {seed}: {notes}, again")


class Ranks:
    """Two ranks in threads, as _comm.Ranks."""

    ranks = 2

    def __init__(self, rank, meeting, place):
        self.rank, self._meeting, self._place = rank, meeting, place

    def gathered(self, value):
        self._place[self.rank] = pickle.dumps(value)
        self._meeting.wait(60)
        told = [pickle.loads(each) for each in self._place]
        self._meeting.wait(60)
        return told


def saves_of(ranks, planner, divider, step, tree):
    """What a rank adds, and the tree of all; the reason if a rank cannot."""
    try:
        local, reason = planner.local(tree), None
    except errors.Error as failure:
        local, reason = None, str(failure)
    reasons = ranks.gathered(reason)
    if any(reasons):
        return str(reasons)
    return outcome(lambda: local.content(divider.divide(step, local.description, local.values)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ranks_with_a_plan_agree_on_what_ranks_without_one_do(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)

    def tree():
        return {"a": torch.ones(2, 2), "n": {"w": torch.ones(2), "s": 3}, "l": [torch.ones(2), numpy.ones((2, 2), "f4"), 0.5]}
    trees, notes, failures = [{**tree(), "own0": torch.rand(3)}, {**tree(), "own1": torch.rand(3), "value": 1}], [], []
    meeting, place = threading.Barrier(2, action=lambda: None), [None, None]
    turn = threading.Barrier(3)

    def rank(number):
        ranks = Ranks(number, meeting, place)
        planner, divider = _saving.Planner(is_group=True), _shares.Divider(ranks)
        for step in range(2 * STEPS):
            turn.wait(60)
            got = saves_of(ranks, planner, divider, step, trees[number])
            expected = saves_of(ranks, _saving.Planner(is_group=True), _shares.Divider(ranks), step, trees[number])
            if got != expected:
                failures.append((number, step, list(notes), got, expected))
            turn.wait(60)
    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for step in range(2 * STEPS):
        if step % 2:  # each change is saved twice
            changed = rng.randrange(2)
            notes.append((changed, rng.choice(list(MUTATIONS))))
            MUTATIONS[notes[-1][1]](rng, trees[changed])
            if rng.random() < 0.3 or any(isinstance(outcome(lambda each=each: _saving.Planner().content(each)), str) for each in trees):
                trees[1 - changed].clear()
                trees[1 - changed].update(tree())
                trees[changed].clear()
                trees[changed].update(tree())
        turn.wait(60)
        turn.wait(60)
    for each in threads:
        each.join()
    assert not failures, failures[0]


def test_ranks_flatten_their_trees_once(flattened):
    meeting, place, texts = threading.Barrier(2), [None, None], [[], []]

    def rank(number):
        ranks = Ranks(number, meeting, place)
        planner, divider = _saving.Planner(is_group=True), _shares.Divider(ranks)
        tree = {"w": torch.ones(4), "strided": torch.ones(4, 4)[:, 1], f"own{number}": torch.ones(2), "step": 0, "lr": [0.5]}
        for step in range(4):
            tree["step"] = step
            parts, text = saves_of(ranks, planner, divider, step, tree)
            texts[number].append((sorted(parts), json.loads(text)))
    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(flattened) == 2
    for step in range(4):
        (first, tree), (second, same) = texts[0][step], texts[1][step]
        assert tree == same and ["step", step] in tree["dict"] and sorted(first + second) == ["own0", "own1", "strided", "w"]


@pytest.fixture
def flattened(monkeypatch):
    """How often a tree was flattened."""
    calls, flatten = [], _tree.flatten
    monkeypatch.setattr(_saving._tree, "flatten", lambda *arguments, **options: calls.append(1) or flatten(*arguments, **options))
    return calls


def state():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_training_loop_flattens_its_tree_once(flattened):
    model, optimizer = state()
    planner, others = _saving.Planner(), []
    for step in range(4):
        optimizer.step()
        other = torch.ones(4, 4)[:, 1]  # at another address each time
        others.append(other)
        tree = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": numpy.arange(4), "strided": other, "empty": torch.ones(0),
                "reversed": numpy.arange(3)[::-1], "tied": other.detach(), "step": step, "loss": step / 3}
        content = planner.content(tree)
        assert f'["step", {step}]' in content.text and added(content) == added(_saving.whole(_tree.flatten(tree, is_saved=True)))
    assert len(flattened) == 1 + 4  # the test itself does it each time


@pytest.mark.parametrize("change", [
    lambda tree: tree["w"].t_(), lambda tree: setattr(tree["w"], "data", tree["w"].data.double()), lambda tree: tree["w"].resize_(1, 2),
    lambda tree: tree.update(w=torch.nn.Parameter(tree["w"])), lambda tree: tree.update(v=tree["w"]), lambda tree: tree.update({True: tree.pop(1)}),
    lambda tree: tree.update(w=tree["w"].to_sparse().to_dense()[:, :1]), lambda tree: setattr(tree["n"], "shape", (4, 1)),
    lambda tree: tree.update(c=tree["c"].conj()), lambda tree: tree.update(w=torch._neg_view(tree["w"])), lambda tree: tree.update(n=tree["n"].T),
    lambda tree: setattr(tree["n"], "dtype", "i4"), lambda tree: tree.update(p=1.0), lambda tree: tree["w"].untyped_storage().resize_(0)])
def test_each_of_these_changes_needs_a_new_plan(flattened, change):
    tree = {"w": torch.rand(2, 2), "v": torch.rand(2, 2), "n": numpy.ones((2, 2), "f4"), "p": 1, "c": torch.rand(2, dtype=torch.complex64), 1: torch.ones(1)}
    planner = _saving.Planner()
    planner.content(tree)
    planner.content(tree)
    assert len(flattened) == 1
    change(tree)
    outcome(lambda: planner.content(tree))
    assert len(flattened) == 2


def test_a_list_is_not_the_tuple_of_its_items(flattened):
    planner, arrays = _saving.Planner(), [torch.ones(1), torch.rand(2)]
    assert '"list"' in planner.content(arrays).text and '"tuple"' in planner.content(tuple(arrays)).text


def test_a_plan_keeps_no_array_alive():
    planner = _saving.Planner()
    tree = {"w": torch.rand(2, 2), "strided": torch.rand(4, 4)[:, 0], "n": numpy.ones(2)}
    alive = [weakref.ref(each) for each in tree.values()]
    planner.content(tree)
    planner.content(tree)
    tree.clear()
    gc.collect()
    assert [each() for each in alive] == [None] * 3


def test_a_dict_that_makes_its_values_anew_has_no_plan(flattened):
    class Lazy(dict):
        def items(self):
            return [(key, torch.full((2,), float(value))) for key, value in super().items()]

        def values(self):
            return [value for _, value in self.items()]

    planner = _saving.Planner()
    for step in range(3):
        parts, _ = added(planner.content({"lazy": Lazy(a=step, b=7)}))
        assert parts["lazy.a"][2] == numpy.float32([step] * 2).tobytes() and parts["lazy.b"][2] == numpy.float32([7] * 2).tobytes()


def test_saves_of_a_changing_tree_are_what_is_loaded(run_path):
    tree = {"w": torch.rand(2, 2), "v": torch.rand(2, 2), "n": numpy.ones(3), "step": 0}
    with ckpt.Run(run_path) as run:
        for step, change in enumerate([lambda: None, lambda: tree["w"].fill_(7), lambda: tree["w"].t_(), lambda: tree.update(v=tree["w"]),
                                       lambda: tree.update(v=tree["w"].clone()), lambda: tree.pop("n"), lambda: tree.update(w=torch.rand(3))]):
            change()
            tree["step"] = step
            run.save(step, tree)
            loaded = run.load().tree
            assert list(loaded) == list(tree) and loaded["step"] == step
            assert all(bool((loaded[name] == value).all()) for name, value in tree.items() if name != "step")
            assert (loaded["v"] is loaded["w"]) == (tree["v"] is tree["w"])
