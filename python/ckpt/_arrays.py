"""Arrays of torch and numpy as memory of a dtype and shape. Neither is imported: who has an array has imported it."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional, Tuple, Union

from . import _dtypes, errors


class Kind(NamedTuple):
    """What an array is.

    library  "torch" or "numpy"
    dtype    as safetensors names it
    shape    in elements
    """

    library: str
    dtype: str
    shape: Tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Memory(NamedTuple):
    """Dense, row-major bytes. `owner` keeps them alive."""

    address: int
    nbytes: int
    owner: Any


def library_of(value: Any) -> Optional[str]:
    """"torch" or "numpy" if the value is an array of it, else None."""
    for name, array in (("torch", "Tensor"), ("numpy", "ndarray")):
        module = sys.modules.get(name)
        if module is not None and isinstance(value, getattr(module, array, ())):
            return name
    return None


def kind_of(value: Any, library: str) -> Union[Kind, str]:
    """The kind of an array, or why it cannot be stored."""
    if library == "torch":
        return _kind_of_torch(value)
    dtype = _dtypes.of_numpy(value.dtype)
    if dtype is None:
        return f"numpy dtype {value.dtype} cannot be stored"
    return Kind(library, dtype, tuple(value.shape))


def _kind_of_torch(value: Any) -> Union[Kind, str]:
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(value).__module__}.{type(value).__qualname__} is not supported, only plain tensors"
    if value.layout is not torch.strided or value.is_quantized:
        return "sparse and quantized tensors are not supported"
    if value.device.type == "meta":
        return "a tensor on the meta device has no data"
    dtype = _dtypes.of_torch(value.dtype)
    if dtype is None:
        return f"{value.dtype} cannot be stored"
    shape = tuple(value.shape)
    if dtype == "F4" and shape:  # torch counts pairs of elements
        shape = (*shape[:-1], shape[-1] * 2)
    return Kind("torch", dtype, shape)


def identity(value: Any, library: str) -> Optional[Tuple[Any, ...]]:
    """Equal for two arrays that are the same elements in the same memory; None for arrays without elements."""
    if library == "torch":
        if value.numel() == 0:
            return None
        return ("torch", str(value.device), value.data_ptr(), tuple(value.shape), value.stride(), value.dtype,
                value.is_conj(), value.is_neg())
    if value.size == 0:
        return None
    return ("numpy", value.ctypes.data, value.shape, value.strides, value.dtype.str)


def dense(value: Any, library: str) -> Memory:
    """The bytes of an array: its own memory if that is dense and on the CPU, else a copy."""
    if library == "torch":
        data = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return Memory(data.data_ptr(), data.numel() * data.element_size(), data)
    import numpy

    data = numpy.require(value, requirements="C")
    return Memory(data.ctypes.data, data.nbytes, data)


class Target:
    """Where an array is loaded to: its own memory if that is dense and on the CPU, else a buffer that `finish` copies."""

    def __init__(self, value: Any, kind: Kind) -> None:
        self._value = value
        self._library = kind.library
        self.memory = self._memory(kind)

    def _memory(self, kind: Kind) -> Memory:
        value = self._value
        if kind.library == "torch":
            is_own = value.device.type == "cpu" and value.is_contiguous() and not value.is_conj() and not value.is_neg()
            data = value.detach() if is_own else value.detach().new_empty(value.shape, device="cpu")
            return Memory(data.data_ptr(), data.numel() * data.element_size(), None if is_own else data)
        if value.flags.c_contiguous:
            return Memory(value.ctypes.data, value.nbytes, None)
        import numpy

        copy = numpy.empty(value.shape, value.dtype)
        return Memory(copy.ctypes.data, copy.nbytes, copy)

    def finish(self) -> None:
        """Copies the buffer, if there is one, to the array."""
        if self.memory.owner is None:
            return
        if self._library == "torch":
            import torch

            with torch.no_grad():
                self._value.copy_(self.memory.owner)
        else:
            self._value[...] = self.memory.owner


def refusal_to_load(value: Any, library: str) -> Optional[str]:
    """Why nothing can be loaded into this array, or None."""
    if library == "numpy":
        return None if value.flags.writeable else "the array is read-only"
    overlaps = any(stride == 0 and length > 1 for stride, length in zip(value.stride(), value.shape))
    return "elements of the tensor share memory (expand)" if overlaps else None


def empty(kind: Kind) -> Any:
    """A new array without values. unsupported: the library has no such dtype."""
    if kind.library == "torch":
        import torch

        dtype = _dtypes.torch_dtype(kind.dtype)
        shape = kind.shape
        if kind.dtype == "F4" and shape:
            shape = (*shape[:-1], shape[-1] // 2)
        return torch.empty(_dtypes.size_bytes(kind.dtype, kind.shape), dtype=torch.uint8).view(dtype).view(shape)
    if kind.library == "numpy":
        import numpy

        return numpy.empty(kind.shape, _dtypes.numpy_dtype(kind.dtype))
    raise errors.unsupported(f"arrays of {kind.library} are not known to this release")
