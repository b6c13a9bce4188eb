"""Loading a checkpoint into a tree, for `Run.load`."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from . import _arrays, _comm, _dtypes, _jax, _library, _tree, errors
from .checkpoint import Checkpoint


@dataclass(frozen=True)
class LoadReport:
    """What `Run.load` did.

    step, path        of the checkpoint that was loaded
    tree              the tree that was filled, or the new one
    missing           names of the tree that the checkpoint lacks; their values are unchanged
    unexpected        names of the checkpoint that the tree lacks, in a group the trees of all ranks; they were not loaded
    skipped           the number of newer checkpoints that are damaged
    read_bytes        bytes that this process read from files
    unverified_bytes  how many of these were read without comparing a hash: of leaves of 4 MiB of which only a part was needed
    """

    step: int
    path: str
    tree: Any = field(repr=False)
    missing: List[str]
    unexpected: List[str]
    skipped: int
    read_bytes: int
    unverified_bytes: int


class Loading:
    """Loads one checkpoint into a tree. The constructor and `check` check everything and change nothing."""

    def __init__(self, checkpoint: Checkpoint, into: Any) -> None:
        self._checkpoint = checkpoint
        self._stored, self._dropped = checkpoint._stored.without_absent(checkpoint._tensors)
        self._tree = self._new_tree() if into is None else into
        self._flat = _tree.flatten(self._tree)
        if self._stored.node is None:
            self._stored = self._stored.of_paths(self._flat, checkpoint.objects)
        names = {**self._flat.arrays, **self._flat.values}
        stored = {**self._stored.tensors, **self._stored.values}
        self._missing = [name for name in names if name not in stored]
        self.unexpected = [name for name in stored if name not in names]
        self._check_kinds()
        self._check_memory()
        self._first: Dict[Any, str] = {}
        self._same: Dict[str, str] = {}  # names of jax arrays, and the name that has the same one
        self._targets = self._make_targets()

    def _new_tree(self) -> Any:
        if self._dropped:
            raise errors.not_found(f"step {self._checkpoint.info.step} lacks {_some(self._dropped)}", tensor=self._dropped[0],
                                   hint="a policy may have dropped its optimizer state (ckpt list): load the rest with into= and strict=False, or by ckpt.open")
        libraries = self._stored.libraries
        made: Dict[str, Any] = {}

        def array(name: str) -> Any:
            tensor = self._checkpoint[self._stored.tensors[name]]
            if tensor.name not in made:
                made[tensor.name] = _arrays.empty(
                    _arrays.Kind(libraries.get(name, "torch"), tensor.dtype, tensor.shape))
            return made[tensor.name]

        if self._stored.node is not None:
            return _tree.rebuilt(self._stored.node, array)
        raise errors.usage(f"{self._checkpoint.info.path}: Run.save did not write this checkpoint, so it has no tree",
                           hint="give the tree to fill with into=, or use ckpt.open(...).torch()")

    def check(self, strict: bool, ranks: Optional[_comm.Ranks]) -> None:
        """Names. Collective: what one of the ranks has, is missed by none.

        errors   as of Run.load
        """
        if ranks is not None:
            everywhere = set.intersection(*map(set, ranks.gathered(self.unexpected)))
            self.unexpected = [name for name in self.unexpected if name in everywhere]

        def check() -> None:
            if strict:
                self._check_names()
        check() if ranks is None else ranks.agree(check)

    def _check_names(self) -> None:
        where = f"step {self._checkpoint.info.step}"
        if self._missing:
            raise errors.not_found(f"{where} lacks {_some(self._missing)}", tensor=self._missing[0])
        if self.unexpected:
            raise errors.usage(f"{where} also has {_some(self.unexpected)}", tensor=self.unexpected[0],
                               hint="load without into= for the tree as it was saved, or with strict=False for a part")

    def _check_kinds(self) -> None:
        problems: List[Tuple[str, str]] = []
        for name, kind in self._flat.kinds.items():
            if name in self._stored.values:
                problems.append((name, "a plain value in the checkpoint"))
            elif name in self._stored.tensors:
                tensor = self._checkpoint[self._stored.tensors[name]]
                if (tensor.dtype, tensor.shape) != (kind.dtype, kind.shape):
                    problems.append((name, f"{kind}, in the checkpoint {tensor.dtype} {list(tensor.shape)}"))
                for part in _arrays.parts_of(self._flat.arrays[name], kind):
                    reason = _arrays.refusal_to_load(part.value, kind.library)
                    if reason:
                        problems.append((name, reason))
        problems += [(name, "a tensor in the checkpoint") for name in self._flat.values if name in self._stored.tensors]
        _raise(problems)

    def _check_memory(self) -> None:
        """Arrays in the same memory can be loaded only if they are equal in the checkpoint."""
        problems = []
        for name, first in self._flat.ties.items():
            one, other = (self._stored.tensors.get(each) for each in (name, first))
            if one and other and one != other and self._checkpoint[one].read() != self._checkpoint[other].read():
                problems.append((name, f"the same memory as {first}, which has other values in the checkpoint"))
        places = sorted((address, _dtypes.size_bytes(self._flat.kinds[name].dtype, self._flat.kinds[name].shape), name)
                        for name, address in self._flat.addresses.items() if name not in self._flat.ties and name in self._stored.tensors)
        for (address, nbytes, name), (following, _, second) in zip(places, places[1:]):
            if address + nbytes > following:
                problems.append((second, f"shares memory with {name}"))
        _raise(problems)

    def _make_targets(self) -> List[Tuple[str, _arrays.Part, _arrays.Target]]:
        return [(name, part, _arrays.Target(part.value, self._flat.kinds[name]._replace(shape=part.extent)))
                for name, array in self._flat.arrays.items()
                if name in self._stored.tensors and name not in self._flat.ties and self._is_first(name, array)
                for part in _arrays.parts_of(array, self._flat.kinds[name])]

    def _is_first(self, name: str, array: Any) -> bool:
        """False for a jax array that another name has too, here and in the checkpoint."""
        if self._flat.kinds[name].library != "jax":
            return True
        first = self._first.setdefault((self._stored.tensors[name], id(array)), name)
        self._same[name] = first
        return first == name

    def _jax_arrays(self) -> Dict[str, Any]:
        """New arrays of what was read, by name."""
        read: Dict[str, Dict[Any, Any]] = {}
        for name, part, target in self._targets:
            if name in self._same:
                read.setdefault(name, {})[part.offset, part.extent] = target.memory.owner
        made = {first: _jax.assembled(self._flat.arrays[first], read.get(first, {})) for first in set(self._same.values())}
        return {name: made[first] for name, first in self._same.items()}

    def _requests(self) -> List[_library.ReadStruct]:
        reads = []
        for name, part, target in self._targets:
            if target.memory.nbytes:
                nbytes = _dtypes.size_bytes(self._flat.kinds[name].dtype, part.extent)
                reads.append(_library.read_struct(self._stored.tensors[name], part.offset, part.extent, target.memory.address,
                                                  nbytes))
        return reads

    def read(self, skipped: int = 0) -> LoadReport:
        """Reads from this checkpoint."""
        report = self._checkpoint._read(self._requests())
        report.skipped = skipped
        return self.finish(report)

    def read_of_run(self, run: int, step: Optional[int], ranks: Optional[_comm.Ranks]) -> _library.ReportStruct:
        """Reads from the last save of a step, or the newest checkpoint of the run that verifies; the report says which."""
        reads = self._requests()
        report = _library.ReportStruct(size=ctypes.sizeof(_library.ReportStruct))
        array = (_library.ReadStruct * len(reads))(*reads)
        library = _library.library()
        if step is None:
            _comm.call(ranks, library.ckpt_load, run, array, len(reads), 0, byref(report))
        else:
            _comm.call(ranks, library.ckpt_load_step, run, step, array, len(reads), 0, byref(report))
        return report

    def finish(self, report: _library.ReportStruct) -> LoadReport:
        """After reading: arrays that are not dense, jax arrays, and plain values."""
        for _, _, target in self._targets:
            target.finish()
        tree = _tree.with_values(self._tree, {**self._stored.values, **self._jax_arrays()})
        return LoadReport(self._checkpoint.info.step or 0, self._checkpoint.info.path, tree, self._missing,
                          self.unexpected, report.skipped, report.read_bytes, report.unverified_bytes)


def _raise(problems: List[Tuple[str, str]]) -> None:
    if problems:
        raise errors.usage("the tree does not fit the checkpoint:\n  " +
                           "\n  ".join(f"{name}: {reason}" for name, reason in problems[:10]) +
                           (f"\n  and {len(problems) - 10} more" if len(problems) > 10 else ""),
                           tensor=problems[0][0])


def _some(names: List[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
