"""What a save adds to a checkpoint, for `Run.save`: the arrays of a tree, and its structure.

A trainer saves the same tree again and again. What follows from its structure and from the dtypes and shapes of its arrays (names,
the table of parts, the JSON, what the ranks of a group tell each other) is a `Plan`, which the next save uses again. Nothing is assumed: each save reads the keys and types
of the whole tree, and of each array dtype, shape, device, layout and address, and compares them with those of the plan. It does so
by `map` with functions of C: a Python loop takes three times as long for many small arrays.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import sys
from array import array
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from . import _arrays, _device, _dtypes, _library, _shares, _tree

_PLAIN = frozenset((bool, int, float, str, type(None)))
_CONTAINERS = (dict, list, tuple)
_PARAM, _SLOT = 0, 2  # CKPT_PARAM, CKPT_SLOT
Other = Tuple[str, _arrays.Kind, List[_arrays.Part]]


@dataclass
class Content:
    """What one save adds.

    table      of the arrays whose memory is added as it is
    addresses  of these
    others     other arrays: name, kind, and the parts that are added
    text       the tree as JSON
    slots      names that are optimizer state
    owners     keep the memory of `addresses` alive
    """

    table: Table
    addresses: Any
    others: List[Other]
    text: str
    slots: Container[str]
    owners: Any


class Table:
    """Names, dtypes and shapes of parts as ckpt_add_parts takes them: whole arrays, or boxes."""

    def __init__(self, names: Sequence[str], kinds: Sequence[_arrays.Kind], slots: Container[str], boxes: Sequence[_arrays.Part] = ()) -> None:
        """slots   the names that are optimizer state"""
        sizes = {id(kind): _dtypes.size_bytes(kind.dtype, kind.shape) for kind in {id(kind): kind for kind in kinds}.values()}
        shapes, offsets, extents = (array("Q", itertools.chain.from_iterable(each)) for each in (
            [kind.shape for kind in kinds], [box.offset for box in boxes], [box.extent for box in boxes]))
        nbytes = ([_dtypes.size_bytes(kind.dtype, box.extent) for kind, box in zip(kinds, boxes)] if boxes else
                  [sizes[id(kind)] for kind in kinds])
        self._count = len(names)
        self._texts = ["\0".join(each).encode() for each in (names, [kind.dtype for kind in kinds])]
        self._numbers = [array("I", [len(kind.shape) for kind in kinds]), shapes, offsets, extents]
        self._nbytes = array("Q", nbytes)
        self._roles = array("B", [_SLOT if name in slots else _PARAM for name in names])

    def struct(self, addresses: Any) -> _library.PartsStruct:
        """The C structure. It points into the table and to `addresses`, an array of uint64: keep both alive."""
        pointers = [each.buffer_info()[0] if each else None for each in (*self._numbers, addresses, self._nbytes, self._roles)]
        return _library.PartsStruct(ctypes.sizeof(_library.PartsStruct), self._count, *self._texts, *pointers)


class Gathered:
    """A tree's structure and its leaves, in the order of `_tree.flatten`.

    structure  the type and length of each container, its keys, their types, and the types of what it holds
    leaves     the rest
    is_whole   false if it is nested too deep
    """

    def __init__(self, tree: Any) -> None:
        self.structure: List[Any] = []
        self.leaves: List[Any] = []
        self.is_whole = True
        self._is_container: Dict[type, bool] = {}
        self._gather(tree, 0)

    def _gather(self, value: Any, level: int) -> None:
        structure = self.structure
        structure.append(type(value))
        children: Any = value
        if isinstance(value, dict):
            keys = list(value)
            children = list(value.values()) if type(value).values is dict.values else [each for _, each in value.items()]
            structure += keys
            structure += map(type, keys)
        structure.append(len(children))
        types = list(map(type, children))
        structure += types
        if not any(map(self._holds, set(types))):
            self.leaves += children
            return
        for each in children:
            if not isinstance(each, _CONTAINERS):
                self.leaves.append(each)
            elif level < _tree.MOST_LEVELS:
                self._gather(each, level + 1)
            else:
                self.is_whole = False

    def _holds(self, kind: type) -> bool:
        known = self._is_container.get(kind)
        if known is None:
            known = self._is_container[kind] = issubclass(kind, _CONTAINERS)
        return known


class _Dense:
    """Arrays of one library whose memory holds their elements as they are: their dtypes and shapes, and where they are among the leaves."""

    def __init__(self, leaves: Sequence[Any], mask: Sequence[bool]) -> None:
        self.mask = bytes(mask)
        self.count = sum(self.mask)
        shapes: Dict[Any, Any] = {}
        arrays = self._of(leaves)
        self._dtypes = [each.dtype for each in arrays]
        self._shapes = [shapes.setdefault(each.shape, each.shape) for each in arrays]

    def _of(self, leaves: Sequence[Any]) -> List[Any]:
        return list(leaves) if self.count == len(leaves) else list(itertools.compress(leaves, self.mask))

    def addresses(self, leaves: Sequence[Any]) -> Any:
        """Of the same arrays in another tree, whose leaves have the same types; None if one has another dtype or shape, or is not dense."""
        raise NotImplementedError


class _DenseTorch(_Dense):
    def __init__(self, leaves: Sequence[Any], mask: Sequence[bool]) -> None:
        super().__init__(leaves, mask)
        self._complex = bytes(dtype.is_complex for dtype in self._dtypes)

    def addresses(self, leaves: Sequence[Any]) -> Any:
        if not self.count:
            return array("Q")
        torch: Any = sys.modules["torch"]
        of, arrays = torch.Tensor, self._of(leaves)
        same = (all(map(of.is_cpu.__get__, arrays))
                and all(map(operator.is_, map(of.layout.__get__, arrays), itertools.repeat(torch.strided)))
                and all(map(operator.is_, map(of.dtype.__get__, arrays), self._dtypes))
                and all(map(operator.eq, map(of.shape.__get__, arrays), self._shapes))
                and all(map(of.is_contiguous, arrays)) and not any(map(of.is_neg, arrays))
                and not any(map(of.is_conj, itertools.compress(arrays, self._complex))))
        return array("Q", map(of.data_ptr, arrays)) if same else None


class _DenseNumpy(_Dense):
    def addresses(self, leaves: Sequence[Any]) -> Any:
        if not self.count:
            return array("Q")
        arrays = self._of(leaves)
        same = (all(map(operator.attrgetter("flags.c_contiguous"), arrays))
                and all(map(operator.eq, map(operator.attrgetter("dtype"), arrays), self._dtypes))
                and all(map(operator.eq, map(operator.attrgetter("shape"), arrays), self._shapes)))
        if not same:
            return None
        try:  # fast, but not for read-only arrays, and dtypes that the buffer protocol lacks
            return array("Q", map(ctypes.addressof, map(ctypes.c_char.from_buffer, arrays)))
        except (TypeError, ValueError):
            return array("Q", map(_arrays.address, arrays))


def _ties(addresses: Any, kinds: Sequence[Any]) -> Dict[int, int]:
    """Arrays that are the same elements in the same memory as an earlier one: index, and index of the first."""
    if len(set(addresses)) == len(addresses):
        return {}
    first: Dict[Tuple[int, Any], int] = {}
    firsts = [first.setdefault(key, i) for i, key in enumerate(zip(addresses, kinds))]
    return {i: of for i, of in enumerate(firsts) if of != i}


def _look(value: Any) -> Tuple[Any, Any, Any]:
    """All that a save of an array depends on, besides its elements; its address, 0 if it has no elements; and of a distributed one its pieces."""
    if isinstance(value, _numpy_array()):
        return (value.dtype, value.shape, value.strides), _arrays.address(value) if value.size else 0, None
    if _arrays.is_distributed(value):
        try:
            pieces = _arrays.pieces_of(value)
        except Exception:  # what torch says of placements such as Partial
            return None, 0, None  # refused
        looks = [_look(local) for _, local in pieces]
        if any(look is None for look, _, _ in looks):
            return None, 0, None
        addresses = tuple(address for _, address, _ in looks)
        return ((value.dtype, value.size(), tuple((offset, look) for (offset, _), (look, _, _) in zip(pieces, looks))),
                addresses if any(addresses) else 0, pieces)
    if value.layout is not sys.modules["torch"].strided:
        return None, 0, None  # refused
    return ((value.dtype, value.shape, value.stride(), value.device, value.is_conj(), value.is_neg()),
            value.data_ptr() if value.numel() else 0, None)


class _Looks:
    """Arrays that are not dense: all that a save of them depends on, their ties, and the pieces of distributed ones."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        found = list(map(_look, arrays))
        self._looks = [look for look, _, _ in found]
        self._ties = _ties([address or -i for i, (_, address, _) in enumerate(found, 1)], self._looks)
        self.pieces = [pieces for _, _, pieces in found]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Looks) and (self._looks, self._ties) == (other._looks, other._ties)


def _torch_tensors() -> Tuple[Any, ...]:
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None and hasattr(torch, "nn") else ()


def _numpy_array() -> Tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (numpy.ndarray,) if numpy is not None else ()


@dataclass
class Found:
    """What is in a tree that a plan fits.

    leaves     in their order
    addresses  of the dense arrays
    pieces     of the others, where they are distributed
    """

    leaves: List[Any]
    addresses: Any
    pieces: List[Any]


class Plan:
    """What all saves of trees like one have in common. Keeps none of its arrays alive."""

    def __init__(self, flat: _tree.Flat, gathered: Gathered, description: Optional[_shares.Description]) -> None:
        """Of a tree and its leaves, for which `is_possible`.

        description   of a tree that several ranks save together, where `assign` is called before `content`
        """
        leaves, of_torch, of_numpy = gathered.leaves, _torch_tensors(), _numpy_array()
        arrays, values = iter(flat.arrays), iter(flat.values)
        is_value = [type(each) in _PLAIN for each in leaves]
        names = [next(values) if is_plain else next(arrays) for is_plain in is_value]
        is_dense = [name in flat.addresses for name in names]
        masks = [[dense and type(each) in of for dense, each in zip(is_dense, leaves)] for of in (of_torch, of_numpy)]
        is_other = [not any(each) for each in zip(is_value, *masks)]
        self.description = description
        self._structure = gathered.structure
        self._texts = flat.texts
        self._is_value, self._is_other = bytes(is_value), bytes(is_other)
        self._others = [(name, flat.kinds[name]) for name in itertools.compress(names, is_other)]
        self._looks = _Looks(list(itertools.compress(leaves, is_other)))
        self._looks.pieces.clear()
        self._dense = (_DenseTorch(leaves, masks[0]), _DenseNumpy(leaves, masks[1]))
        self._names = [name for mask in masks for name in itertools.compress(names, mask)]
        self._kinds = [flat.kinds[name] for name in self._names]  # one Kind for all of a kind
        self._ids = list(map(id, self._kinds))
        self._addresses: Any = array("Q", [flat.addresses[name] for name in self._names])
        self._ties = _ties(self._addresses, self._ids)
        self._parts: Optional[Dict[str, List[int]]] = None
        if description is None:
            self.assign({name: [] for name in flat.arrays if name not in flat.ties}, flat.slots)

    def assign(self, parts: Dict[str, List[int]], slots: Set[str]) -> None:
        """What is added, by name: the indices of the parts of arrays; without indices all of them. `slots`: what of it is optimizer
        state."""
        if self._parts is not parts:
            self._parts, self._slots = parts, slots
            is_added = [name in parts for name in self._names]
            self._is_added = bytes(is_added)
            self._table = Table(list(itertools.compress(self._names, is_added)), list(itertools.compress(self._kinds, is_added)),
                                slots)

    @staticmethod
    def is_possible(flat: _tree.Flat, gathered: Gathered) -> bool:
        """Whether the tree gave the same objects twice, and all its arrays are of torch and numpy."""
        known = {*_PLAIN, *_torch_tensors(), *_numpy_array()}
        return gathered.is_whole and all(_arrays.is_distributed(each) for each in gathered.leaves if type(each) not in known) and all(map(
            operator.is_, [each for each in gathered.leaves if type(each) not in _PLAIN], flat.arrays.values()))

    def found(self, gathered: Gathered) -> Optional[Found]:
        """None if the tree is not like the one that the plan was made for."""
        leaves = gathered.leaves
        if not gathered.is_whole or gathered.structure != self._structure:
            return None
        looks = _Looks(list(itertools.compress(leaves, self._is_other)))
        if looks != self._looks:
            return None
        addresses = array("Q")
        for dense in self._dense:
            these = dense.addresses(leaves)
            if these is None:
                return None
            addresses += these
        if addresses != self._addresses:
            if not all(addresses) or _ties(addresses, self._ids) != self._ties:
                return None
            self._addresses = addresses
        return Found(leaves, addresses, looks.pieces)

    def values(self, found: Found) -> List[str]:
        """Plain values as JSON."""
        return _tree.value_texts(itertools.compress(found.leaves, self._is_value))

    def content(self, found: Found, text: Optional[str] = None) -> Content:
        """What a save of the tree adds. `text`: of all ranks' trees."""
        assert self._parts is not None
        added = array("Q", itertools.compress(found.addresses, self._is_added))
        others = [(name, kind, _chosen(_arrays.parts_of(value, kind, pieces), self._parts[name]))
                  for (name, kind), value, pieces in zip(self._others, itertools.compress(found.leaves, self._is_other), found.pieces)
                  if name in self._parts]
        return Content(self._table, added, others, _tree.written(self._texts, self.values(found)) if text is None else text,
                       self._slots, found.leaves)


def _chosen(parts: List[_arrays.Part], indices: List[int]) -> List[_arrays.Part]:
    return [parts[i] for i in indices] if indices else parts


@dataclass
class Local:
    """What one of several ranks has.

    values   plain ones, as JSON
    content  what it adds, of what the ranks have agreed on
    """

    description: _shares.Description
    values: List[str]
    content: Callable[[_shares.Shares], Content]


class Planner:
    """The contents of a run's saves, by the plan of the last one."""

    def __init__(self, is_group: bool = False) -> None:
        """is_group   several ranks save together: `local`, else `content`"""
        self._is_group = is_group
        self._plan: Optional[Plan] = None

    def content(self, tree: Any) -> Content:
        """errors   as of `_tree.flatten`"""
        seen = self._look(tree)
        return whole(seen) if isinstance(seen, _tree.Flat) else seen[0].content(seen[1])

    def local(self, tree: Any) -> Local:
        """errors   as of `_tree.flatten`"""
        seen = self._look(tree)
        if isinstance(seen, _tree.Flat):
            flat = seen
            return Local(_shares.describe(flat), _tree.value_texts(flat.values.values()), lambda shares: divided(flat, shares))
        plan, found = seen

        def content(shares: _shares.Shares) -> Content:
            plan.assign(shares.parts, shares.slots)
            return plan.content(found, shares.text)
        assert plan.description is not None
        return Local(plan.description, plan.values(found), content)

    def _look(self, tree: Any) -> Union[Tuple[Plan, Found], _tree.Flat]:
        """A plan and what it found; of a tree for which there can be none, its leaves."""
        _tree.check_type(tree)
        plan, gathered = self._plan, Gathered(tree)
        found = None if plan is None else plan.found(gathered)
        if found is None:
            self._plan = plan = None  # before the new one is made
            flat = _tree.flatten(tree, own_names=self._is_group, is_saved=True)
            if not Plan.is_possible(flat, gathered):
                return flat
            plan = Plan(flat, gathered, _shares.describe(flat) if self._is_group else None)
            found = plan.found(gathered)
            if found is None:  # what it depends on is changing
                return flat
            self._plan = plan
        assert plan is not None
        return plan, found


def whole(flat: _tree.Flat) -> Content:
    """All of a tree."""
    names = [name for name in flat.addresses if name not in flat.ties]
    others: List[Other] = [(name, flat.kinds[name], _arrays.parts_of(value, flat.kinds[name])) for name, value in flat.arrays.items()
                           if name not in flat.addresses and name not in flat.ties]
    slots = flat.slots
    return Content(Table(names, [flat.kinds[name] for name in names], slots), array("Q", [flat.addresses[name] for name in names]), others,
                   flat.text, slots, flat.arrays)


def divided(flat: _tree.Flat, shares: _shares.Shares) -> Content:
    """This rank's share of a tree."""
    others: List[Other] = [(name, flat.kinds[name], _chosen(_arrays.parts_of(flat.arrays[name], flat.kinds[name]), indices))
                           for name, indices in shares.parts.items()]
    return Content(Table([], [], ()), array("Q"), others, shares.text, shares.slots, flat.arrays)


def add(save: c_void_p, content: Content, has_tree: bool) -> List[Any]:
    """Adds the content to a save. The result keeps its memory alive: drop it after commit.

    has_tree   this rank adds the tree's structure and plain values
    """
    library = _library.library()
    owners: List[Any] = [content.owners]
    _add_parts(save, content.table, content.addresses)
    parts = [(name, kind, part) for name, kind, those in content.others for part in those]
    on_device = [i for i, (_, _, part) in enumerate(parts)
                 if _arrays.library_of(part.value) == "torch" and _device.is_cuda(part.value)]
    copied = dict(zip(on_device, _device.to_cpu([parts[i][2].value for i in on_device])))
    memories = [_arrays.dense(copied.get(i, part.value), kind.library) for i, (_, kind, part) in enumerate(parts)]
    owners += [memory.owner for memory in memories]
    table = Table([name for name, _, _ in parts], [kind for _, kind, _ in parts], content.slots, [part for _, _, part in parts])
    _add_parts(save, table, array("Q", [memory.address for memory in memories]))
    if has_tree:
        blob = _tree.build(content.text)
        owners.append(blob)
        _library.check(library.ckpt_add_blob(save, _tree.BLOB.encode(), blob, len(blob)))
    return owners


def _add_parts(save: c_void_p, table: Table, addresses: Any) -> None:
    struct = table.struct(addresses)
    _library.check(_library.library().ckpt_add_parts(save, byref(struct)))


def describe(save: c_void_p, meta: Mapping[str, str], metrics: Mapping[str, float]) -> None:
    """Adds texts and numbers to a save."""
    library = _library.library()
    for key, value in meta.items():
        _library.check(library.ckpt_set(save, _library.text(key), _library.text(value)))
    for name, number in metrics.items():
        _library.check(library.ckpt_metric(save, _library.text(name), float(number)))
