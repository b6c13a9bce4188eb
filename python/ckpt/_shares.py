"""Which rank stores which part of a tree that the ranks of a job hold together, and the tree that all of them describe.

Every rank describes its arrays (dtype, whole shape, its boxes) and its plain values. Equal boxes are replicas: one rank
stores them. Names that only some ranks have are stored as those have them; plain values must be equal where several have them.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Set, Tuple

from . import _arrays, _comm, _dtypes, _tree, errors

Box = Tuple[Tuple[int, ...], Tuple[int, ...]]  # offset and extent, in elements
_SHOWN = 10  # problems in one message
_PLACE = re.compile(r'\{"value": \[\d+, \d+\]\}')  # of a plain value, while trees are merged


@dataclass
class Described:
    """An array on one rank. `tie`: the name that it has the elements of; `is_empty`: no elements, so that is not known; `is_slot`:
    it is optimizer state."""

    dtype: str
    shape: Tuple[int, ...]
    boxes: List[Box]
    tie: Optional[str]
    is_empty: bool
    is_slot: bool


@dataclass
class Description:
    """What a rank has: its arrays, and its tree as JSON, cut where plain values are (`_tree.Flat.texts`)."""

    arrays: Dict[str, Described]
    texts: List[str]

    def __post_init__(self) -> None:
        self.digests = tuple(hashlib.sha256(pickle.dumps(each)).digest() for each in (self.arrays, self.texts))


def describe(flat: _tree.Flat) -> Description:
    """Of a tree with own names."""
    slots = flat.slots
    return Description({name: _describe(flat, name, name in slots) for name in flat.arrays}, flat.texts)


@dataclass
class Shares:
    """What this rank stores, by name, as indices of the array's parts; the tree as JSON; and the names that are optimizer state."""

    parts: Dict[str, List[int]] = field(default_factory=dict)
    text: str = ""
    slots: Set[str] = field(default_factory=set)


class Divider:
    """Divides the trees of a run's saves. Descriptions are exchanged only when one has changed."""

    def __init__(self, ranks: _comm.Ranks) -> None:
        self._ranks = ranks
        self._digests: List[Any] = []
        self._ties: Dict[str, str] = {}
        self._parts: Dict[str, List[int]] = {}
        self._slots: Set[str] = set()
        self._merged: Optional[_Merged] = None

    def divide(self, step: int, mine: Description, values: List[str]) -> Shares:
        """Collective. While no rank's description changes, the `parts` of the result are the same object.

        values   as JSON: one between each two of the texts
        errors   on all ranks: Usage: the ranks save different steps, shapes, dtypes or plain values
        """
        told = self._ranks.gathered((step, mine.digests, hashlib.sha256(pickle.dumps(values)).digest()))
        if len({each[0] for each in told}) > 1:
            raise errors.usage("the ranks save different steps: " + ", ".join(str(each[0]) for each in told))
        digests = [each[1] for each in told]
        has_one_tree = len({texts for _, texts in digests}) == 1
        if digests != self._digests:
            self._digests = []  # until all below has held
            described = self._ranks.gathered(mine.arrays)
            self._ties = _common_ties(described)
            self._parts = self._assigned(described)
            self._slots = _common_slots(described, self._ties)
            self._merged = _Merged(self._ties, [mine.texts] if has_one_tree else self._ranks.gathered(mine.texts))
            self._digests = digests
        is_same = has_one_tree and len({each[2] for each in told}) == 1
        assert self._merged is not None
        return Shares(self._parts, self._merged.text([values] if is_same else self._ranks.gathered(values)), self._slots)

    def _assigned(self, everyone: List[Dict[str, Described]]) -> Dict[str, List[int]]:
        """The parts of this rank. Of replicas, the rank with the fewest bytes so far stores the next one."""
        loads = [0] * self._ranks.ranks
        mine: Dict[str, List[int]] = {}
        problems: List[str] = []
        for name in dict.fromkeys(name for described in everyone for name in described):
            if name in self._ties:
                continue
            holders: Dict[Box, List[Tuple[int, int]]] = {}
            first: Optional[Described] = None
            for rank, described in enumerate(everyone):
                array = described.get(name)
                if array is None:
                    continue
                first = first or array
                if (array.dtype, array.shape) != (first.dtype, first.shape):
                    problems.append(f"{name}: {array.dtype} {list(array.shape)} on rank {rank}, "
                                    f"{first.dtype} {list(first.shape)} on another")
                for index, box in enumerate(array.boxes):
                    holders.setdefault(box, []).append((rank, index))
            for (_, extent), places in holders.items():
                rank, index = min(places, key=lambda place: loads[place[0]])
                loads[rank] += _dtypes.size_bytes(first.dtype, extent) if first else 0
                if rank == self._ranks.rank:
                    mine.setdefault(name, []).append(index)
        _raise(problems)
        return mine


def _describe(flat: _tree.Flat, name: str, is_slot: bool) -> Described:
    kind = flat.kinds[name]
    parts = _arrays.parts_of(flat.arrays[name], kind)
    return Described(kind.dtype, kind.shape, [(part.offset, part.extent) for part in parts], flat.ties.get(name),
                     all(0 in part.extent for part in parts), is_slot)


def _common_ties(described: List[Dict[str, Described]]) -> Dict[str, str]:
    """Second names of arrays, where no rank that has elements of them sees two arrays."""
    ties: Dict[str, str] = {}
    apart = set()
    for each in described:
        for name, array in each.items():
            if array.tie is not None and ties.setdefault(name, array.tie) != array.tie:
                apart.add(name)
            elif array.tie is None and not array.is_empty:
                apart.add(name)
    return {name: target for name, target in ties.items() if name not in apart}


def _common_slots(described: List[Dict[str, Described]], ties: Dict[str, str]) -> Set[str]:
    """What is optimizer state on all ranks that have it, by all of its names."""
    weights = {name for each in described for name, array in each.items() if not array.is_slot}
    weights |= {ties[name] for name in weights if name in ties}
    return {name for each in described for name in each} - weights


class _Merged:
    """The trees of all ranks as one: its JSON, cut where plain values are, and which ranks have each of these.

    trees   as JSON, cut where their plain values are: of every rank, or the one that all have
    """

    def __init__(self, ties: Dict[str, str], trees: List[List[str]]) -> None:
        self._ties = ties
        self._problems: List[str] = []
        self._names: List[str] = []  # of the values
        self._holders: List[List[Tuple[int, int]]] = []  # of each value: trees, and where it is among their values
        self._is_one = len(trees) == 1
        nodes = [json.loads(_tree.written(texts, (f'{{"value": [{tree}, {i}]}}' for i in range(len(texts) - 1))))
                 for tree, texts in enumerate(trees)]
        self._texts = _PLACE.split(json.dumps(self._merge(nodes, "")))  # in text, quotes are escaped
        _raise(self._problems)

    def text(self, values: List[List[str]]) -> str:
        """The JSON of everything.

        values   as JSON, of each rank; one list, if all have one tree with equal values
        errors   Usage: ranks have different values under one name
        """
        for name, holders in zip(self._names, self._holders):
            places = [(tree, holders[0][1]) for tree in range(len(values))] if self._is_one else holders
            if len({values[tree][i] for tree, i in places}) > 1:
                self._problems.append(f"{name}: different values on the ranks: give each rank's a name of its own")
        problems, self._problems = self._problems, []
        _raise(problems)
        return _tree.written(self._texts, [values[holders[0][0]][holders[0][1]] for holders in self._holders])

    def _merge(self, nodes: List[Any], name: str) -> Any:
        kinds = {next(iter(node)) for node in nodes}
        if len(kinds) > 1:
            self._problems.append(f"{name or 'the tree'}: a {' on one rank, a '.join(sorted(kinds))} on another")
            return nodes[0]
        kind, = kinds
        if kind == "tensor":
            return {**nodes[0], "tensor": self._ties.get(name, name)}
        if kind == "dict":
            groups: Dict[Any, List[Any]] = {}
            for node in nodes:
                for key, each in node["dict"]:
                    groups.setdefault(key, []).append(each)
            names = {_tree.joined(name, key) for key in groups}
            if len(names) < len(groups):
                self._problems.append(f"{name or 'the tree'}: keys that are text on one rank and numbers on another")
            return {"dict": [[key, self._merge(group, _tree.joined(name, key))] for key, group in groups.items()]}
        if kind in ("list", "tuple"):
            if len({len(node[kind]) for node in nodes}) > 1:
                self._problems.append(f"{name or 'the tree'}: {kind}s of different lengths")
                return nodes[0]
            return {kind: [self._merge(list(group), _tree.joined(name, i))
                           for i, group in enumerate(zip(*(node[kind] for node in nodes)))]}
        self._names.append(name)
        self._holders.append([(tree, i) for tree, i in (node["value"] for node in nodes)])
        return nodes[0]


def _raise(problems: List[str]) -> None:
    if problems:
        more = len(problems) - _SHOWN
        text = "\n  ".join(problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))
        raise errors.usage(f"the ranks hold different trees:\n  {text}", tensor=problems[0].split(":")[0])
