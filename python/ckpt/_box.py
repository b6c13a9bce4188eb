"""Indices into a tensor that was not read: which elements they choose, and the smallest box that holds them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple


@dataclass(frozen=True)
class Axis:
    """Elements begin, begin + step, ... of one dimension, `length` of them; `dropped` by an integer index."""

    begin: int
    length: int
    step: int = 1
    dropped: bool = False

    @property
    def extent(self) -> int:
        """From the first chosen element to the last, in elements."""
        return 0 if self.length == 0 else (self.length - 1) * self.step + 1

    def at(self, index: Any, dimension: int) -> Axis:
        """The axis after one more index, an integer or a slice with a positive step."""
        if isinstance(index, slice):
            if index.step is not None and operator.index(index.step) <= 0:
                raise IndexError("slices of a tensor that was not read have positive steps: read it first")
            begin, end, step = index.indices(self.length)
            length = len(range(begin, end, step))
            return Axis(self.begin + begin * self.step if length else 0, length, self.step * step)
        try:
            number = operator.index(index)
        except TypeError:
            raise IndexError(f"{type(index).__name__} is no index of a tensor that was not read: integers, slices and "
                             "'...' are; read it first") from None
        if not -self.length <= number < self.length:
            raise IndexError(f"index {number} is out of range for dimension {dimension} of length {self.length}")
        return Axis(self.begin + (number % self.length) * self.step, 1, 1, True)


def whole(shape: Sequence[int]) -> Tuple[Axis, ...]:
    """All elements."""
    return tuple(Axis(0, length) for length in shape)


def shape_of(axes: Sequence[Axis]) -> Tuple[int, ...]:
    """The shape of what the axes choose, without dropped dimensions."""
    return tuple(axis.length for axis in axes if not axis.dropped)


def chosen(axes: Sequence[Axis], index: Any) -> Tuple[Axis, ...]:
    """The axes after one more index, as numpy applies it. IndexError: out of range, or no basic index."""
    parts: List[Any] = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(part, bool) for part in parts):
        raise IndexError("bool is no index of a tensor that was not read: read it first")
    kept = sum(not axis.dropped for axis in axes)
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have only one '...'")
    if len(parts) - len(dots) > kept:
        raise IndexError(f"too many indices: {len(parts) - len(dots)} for {kept} dimensions")
    fill = [slice(None)] * (kept - len(parts) + len(dots))
    at = dots[0] if dots else len(parts)
    parts[at:at + len(dots)] = fill
    left = iter(enumerate(parts))
    return tuple(axis if axis.dropped else axis.at(part, dimension)
                 for axis in axes
                 for dimension, part in ([(-1, None)] if axis.dropped else [next(left)]))


def steps(axes: Sequence[Axis]) -> Tuple[slice, ...]:
    """What to take of the box that the axes span."""
    return tuple(slice(None, None, axis.step) for axis in axes)


def has_steps(axes: Sequence[Axis]) -> bool:
    """Whether the box holds elements that were not chosen."""
    return any(axis.extent != axis.length for axis in axes)
