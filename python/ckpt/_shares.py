"""Which rank stores which part of a tree that the ranks of a job hold together, and the tree that all of them describe.

Every rank describes its arrays (dtype, whole shape, its boxes) and its plain values. Equal boxes are replicas: one rank
stores them. Names that only some ranks have are stored as those have them; plain values must be equal where several have them.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from . import _arrays, _comm, _dtypes, _tree, errors

Box = Tuple[Tuple[int, ...], Tuple[int, ...]]  # offset and extent, in elements
_SHOWN = 10  # problems in one message


@dataclass
class Described:
    """An array on one rank. `tie`: the name that it has the elements of; `is_empty`: no elements, so that is not known."""

    dtype: str
    shape: Tuple[int, ...]
    boxes: List[Box]
    tie: Optional[str]
    is_empty: bool


@dataclass
class Shares:
    """What this rank stores, by name, as indices of the array's parts; and the tree as JSON."""

    parts: Dict[str, List[int]] = field(default_factory=dict)
    text: str = ""


class Divider:
    """Divides the trees of a run's saves. Descriptions are exchanged only when one has changed."""

    def __init__(self, ranks: _comm.Ranks) -> None:
        self._ranks = ranks
        self._digests: List[bytes] = []
        self._described: List[Dict[str, Described]] = []
        self._ties: Dict[str, str] = {}
        self._parts: Dict[str, List[int]] = {}

    def divide(self, step: int, flat: _tree.Flat) -> Shares:
        """`flat` has own names. Collective. errors, on all ranks: Usage: the ranks save different steps, shapes, dtypes or plain values"""
        mine = {name: _describe(flat, name) for name in flat.arrays}
        digest = hashlib.sha256(pickle.dumps(mine)).digest()
        told = self._ranks.gathered((step, digest, hashlib.sha256(flat.text.encode()).digest()))
        if len({each[0] for each in told}) > 1:
            raise errors.usage("the ranks save different steps: " + ", ".join(str(each[0]) for each in told))
        digests = [each[1] for each in told]
        if digests != self._digests:
            self._described = self._ranks.gathered(mine)
            self._ties = _common_ties(self._described)
            self._parts = self._assigned()
            self._digests = digests
        trees = [flat.text] if len({each[2] for each in told}) == 1 else self._ranks.gathered(flat.text)
        merged = _Merge(self._ties).merged([json.loads(each) for each in trees])
        return Shares(self._parts, json.dumps(merged, allow_nan=False))

    def _assigned(self) -> Dict[str, List[int]]:
        """The parts of this rank. Of replicas, the rank with the fewest bytes so far stores the next one."""
        loads = [0] * self._ranks.ranks
        mine: Dict[str, List[int]] = {}
        problems: List[str] = []
        for name in dict.fromkeys(name for described in self._described for name in described):
            if name in self._ties:
                continue
            holders: Dict[Box, List[Tuple[int, int]]] = {}
            first: Optional[Described] = None
            for rank, described in enumerate(self._described):
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


def _describe(flat: _tree.Flat, name: str) -> Described:
    kind = flat.kinds[name]
    parts = _arrays.parts_of(flat.arrays[name], kind)
    return Described(kind.dtype, kind.shape, [(part.offset, part.extent) for part in parts], flat.ties.get(name),
                     all(0 in part.extent for part in parts))


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


class _Merge:
    """The trees of all ranks as one."""

    def __init__(self, ties: Dict[str, str]) -> None:
        self._ties = ties
        self._problems: List[str] = []

    def merged(self, nodes: List[Any]) -> Any:
        made = self._merge(nodes, "")
        _raise(self._problems)
        return made

    def _merge(self, nodes: List[Any], name: str) -> Any:
        kinds = {next(iter(node)) if isinstance(node, dict) else "value" for node in nodes}
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
            return {"dict": [[key, self._merge(group, _tree.joined(name, key))] for key, group in groups.items()]}
        if kind in ("list", "tuple"):
            if len({len(node[kind]) for node in nodes}) > 1:
                self._problems.append(f"{name or 'the tree'}: {kind}s of different lengths")
                return nodes[0]
            return {kind: [self._merge(list(group), _tree.joined(name, i))
                           for i, group in enumerate(zip(*(node[kind] for node in nodes)))]}
        if any(json.dumps(node) != json.dumps(nodes[0]) for node in nodes):
            self._problems.append(f"{name}: different values on the ranks: give each rank's a name of its own")
        return nodes[0]


def _raise(problems: List[str]) -> None:
    if problems:
        more = len(problems) - _SHOWN
        text = "\n  ".join(problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))
        raise errors.usage(f"the ranks hold different trees:\n  {text}", tensor=problems[0].split(":")[0])
