"""What a save adds to a checkpoint, for `Run.save`: the arrays of a tree, and its structure.

A trainer saves the same tree again and again. What follows from its structure and from the dtypes and shapes of its arrays (names,
the table of parts, the JSON) is a `Plan`, which the next save uses again. Nothing is assumed: each save reads the keys and types
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
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _arrays, _device, _dtypes, _library, _shares, _tree

_PLAIN = frozenset((bool, int, float, str, type(None)))
_CONTAINERS = (dict, list, tuple)
Other = Tuple[str, _arrays.Kind, Any, Optional[List[int]]]


@dataclass
class Content:
    """What one save adds.

    table      of the arrays whose memory is added as it is
    addresses  of these
    others     other arrays: name, kind, array, and the indices of the parts that are added, None for all
    text       the tree as JSON
    owners     keep the memory of `addresses` alive
    """

    table: Table
    addresses: Any
    others: List[Other]
    text: str
    owners: Any


class Table:
    """Names, dtypes and shapes of parts as ckpt_add_parts takes them: whole arrays, or boxes."""

    def __init__(self, names: Sequence[str], kinds: Sequence[_arrays.Kind], boxes: Sequence[_arrays.Part] = ()) -> None:
        sizes = {id(kind): _dtypes.size_bytes(kind.dtype, kind.shape) for kind in {id(kind): kind for kind in kinds}.values()}
        shapes, offsets, extents = (array("Q", itertools.chain.from_iterable(each)) for each in (
            [kind.shape for kind in kinds], [box.offset for box in boxes], [box.extent for box in boxes]))
        nbytes = ([_dtypes.size_bytes(kind.dtype, box.extent) for kind, box in zip(kinds, boxes)] if boxes else
                  [sizes[id(kind)] for kind in kinds])
        self._count = len(names)
        self._texts = ["\0".join(each).encode() for each in (names, [kind.dtype for kind in kinds])]
        self._numbers = [array("I", [len(kind.shape) for kind in kinds]), shapes, offsets, extents]
        self._nbytes = array("Q", nbytes)

    def struct(self, addresses: Any) -> _library.PartsStruct:
        """The C structure. It points into the table and to `addresses`, an array of uint64: keep both alive."""
        pointers = [each.buffer_info()[0] if each else None for each in (*self._numbers, addresses, self._nbytes)]
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


def _look(value: Any) -> Tuple[Any, int]:
    """All that a save of an array depends on, besides its elements, and its address; 0 if it has no elements."""
    if isinstance(value, _numpy_array()):
        return (value.dtype, value.shape, value.strides), _arrays.address(value) if value.size else 0
    if value.layout is not sys.modules["torch"].strided:
        return None, 0  # refused
    return ((value.dtype, value.shape, value.stride(), value.device, value.is_conj(), value.is_neg()),
            value.data_ptr() if value.numel() else 0)


def _looks(arrays: Sequence[Any]) -> Tuple[List[Any], Dict[int, int]]:
    """Of arrays that are not dense: all that a save of them depends on, and their ties."""
    pairs = list(map(_look, arrays))
    looks = [look for look, _ in pairs]
    return looks, _ties([address or -i for i, (_, address) in enumerate(pairs, 1)], looks)


def _torch_tensors() -> Tuple[Any, ...]:
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None and hasattr(torch, "nn") else ()


def _numpy_array() -> Tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (numpy.ndarray,) if numpy is not None else ()


class Plan:
    """What all saves of trees like one have in common. Keeps none of its arrays alive."""

    def __init__(self, flat: _tree.Flat, gathered: Gathered) -> None:
        """Of a tree and its leaves, for which `is_possible`."""
        leaves, of_torch, of_numpy = gathered.leaves, _torch_tensors(), _numpy_array()
        arrays, values = iter(flat.arrays), iter(flat.values)
        is_value = [type(each) in _PLAIN for each in leaves]
        names = [next(values) if is_plain else next(arrays) for is_plain in is_value]
        is_dense = [name in flat.addresses for name in names]
        masks = [[dense and type(each) in of for dense, each in zip(is_dense, leaves)] for of in (of_torch, of_numpy)]
        is_other = [not any(each) for each in zip(is_value, *masks)]
        self._structure = gathered.structure
        self._texts = flat.texts
        self._is_value, self._is_other = bytes(is_value), bytes(is_other)
        self._others = [(name, flat.kinds[name], name not in flat.ties) for name in itertools.compress(names, is_other)]
        self._looks = _looks(list(itertools.compress(leaves, is_other)))
        self._dense = (_DenseTorch(leaves, masks[0]), _DenseNumpy(leaves, masks[1]))
        dense = [name for mask in masks for name in itertools.compress(names, mask)]
        kinds = [flat.kinds[name] for name in dense]
        self._unique = {id(kind): kind for kind in kinds}  # alive, so that no other Kind has their ids
        self._kinds = list(map(id, kinds))
        self._addresses: Any = array("Q", [flat.addresses[name] for name in dense])
        self._ties = _ties(self._addresses, self._kinds)
        self._is_first = bytes(i not in self._ties for i in range(len(dense)))
        self._table = Table(list(itertools.compress(dense, self._is_first)), list(itertools.compress(kinds, self._is_first)))

    @staticmethod
    def is_possible(flat: _tree.Flat, gathered: Gathered) -> bool:
        """Whether the tree gave the same objects twice, and all its arrays are plain ones of torch and numpy."""
        known = {*_PLAIN, *_torch_tensors(), *_numpy_array()}
        return gathered.is_whole and known.issuperset(map(type, gathered.leaves)) and all(map(
            operator.is_, [each for each in gathered.leaves if type(each) not in _PLAIN], flat.arrays.values()))

    def content(self, gathered: Gathered) -> Optional[Content]:
        """What a save of a tree adds; None if it is not like the one that the plan was made for."""
        leaves = gathered.leaves
        if not gathered.is_whole or gathered.structure != self._structure:
            return None
        others = list(itertools.compress(leaves, self._is_other))
        if _looks(others) != self._looks:
            return None
        addresses = array("Q")
        for dense in self._dense:
            found = dense.addresses(leaves)
            if found is None:
                return None
            addresses += found
        if addresses != self._addresses:
            if not all(addresses) or _ties(addresses, self._kinds) != self._ties:
                return None
            self._addresses = addresses
        added: List[Other] = [(name, kind, value, None) for (name, kind, is_first), value in zip(self._others, others) if is_first]
        text = _tree.written(self._texts, itertools.compress(leaves, self._is_value))
        firsts = array("Q", itertools.compress(addresses, self._is_first)) if self._ties else addresses
        return Content(self._table, firsts, added, text, leaves)


class Planner:
    """The contents of a run's saves, by the plan of the last one."""

    def __init__(self) -> None:
        self._plan: Optional[Plan] = None

    def content(self, tree: Any) -> Content:
        """errors   as of `_tree.flatten`"""
        plan, gathered = self._plan, Gathered(tree)
        made = None if plan is None else plan.content(gathered)
        if made is None:
            self._plan = None  # before the new one is made
            flat = _tree.flatten(tree, is_saved=True)
            made = whole(flat)
            if Plan.is_possible(flat, gathered):
                self._plan = Plan(flat, gathered)
        return made


def whole(flat: _tree.Flat) -> Content:
    """All of a tree."""
    names = [name for name in flat.addresses if name not in flat.ties]
    others: List[Other] = [(name, flat.kinds[name], value, None) for name, value in flat.arrays.items()
                           if name not in flat.addresses and name not in flat.ties]
    return Content(Table(names, [flat.kinds[name] for name in names]), array("Q", [flat.addresses[name] for name in names]), others,
                   flat.text, flat.arrays)


def divided(flat: _tree.Flat, shares: _shares.Shares) -> Content:
    """This rank's share of a tree."""
    others: List[Other] = [(name, flat.kinds[name], flat.arrays[name], indices) for name, indices in shares.parts.items()]
    return Content(Table([], []), array("Q"), others, shares.text, flat.arrays)


def add(save: c_void_p, content: Content, has_tree: bool) -> List[Any]:
    """Adds the content to a save. The result keeps its memory alive: drop it after commit.

    has_tree   this rank adds the tree's structure and plain values
    """
    library = _library.library()
    owners: List[Any] = [content.owners]
    _add_parts(save, content.table, content.addresses)
    parts = [(name, kind, part) for name, kind, value, indices in content.others
             for i, part in enumerate(_arrays.parts_of(value, kind)) if indices is None or i in indices]
    on_device = [i for i, (_, _, part) in enumerate(parts)
                 if _arrays.library_of(part.value) == "torch" and _device.is_cuda(part.value)]
    copied = dict(zip(on_device, _device.to_cpu([parts[i][2].value for i in on_device])))
    memories = [_arrays.dense(copied.get(i, part.value), kind.library) for i, (_, kind, part) in enumerate(parts)]
    owners += [memory.owner for memory in memories]
    table = Table([name for name, _, _ in parts], [kind for _, kind, _ in parts], [part for _, _, part in parts])
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
