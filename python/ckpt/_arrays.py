"""Arrays of torch, numpy and jax as memory of a dtype and shape. None is imported: who has an array has imported it."""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _dtypes, _jax, errors


class Kind(NamedTuple):
    """What an array is.

    library  "torch", "numpy" or "jax"
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


class Part(NamedTuple):
    """The elements of an array that this process holds: a box of the whole, and a plain array of it."""

    offset: Tuple[int, ...]
    extent: Tuple[int, ...]
    value: Any


def library_of(value: Any) -> Optional[str]:
    """"torch", "numpy" or "jax" if the value is an array of it, else None."""
    return _library_of(type(value))


def _library_of(kind: type) -> Optional[str]:
    for name, array in (("torch", "Tensor"), ("numpy", "ndarray"), ("jax", "Array"), ("jax", "ShapeDtypeStruct")):
        module = sys.modules.get(name)
        if module is not None and issubclass(kind, getattr(module, array, ())):
            is_masked = name == "numpy" and issubclass(kind, module.ma.MaskedArray)  # its mask would be lost
            return None if is_masked else name
    return None


class Looks:
    """What the arrays of one tree are. Arrays of one kind get one Kind, and small ones cost little time."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._plain = (torch.Tensor, torch.nn.Parameter) if torch is not None and hasattr(torch, "nn") else ()
        self._strided = getattr(torch, "strided", None)
        self._libraries: Dict[type, Optional[str]] = {}
        self._of_torch: Dict[Any, Kind] = {}
        self._of_numpy: Dict[Any, Kind] = {}

    def library_of(self, value: Any) -> Optional[str]:
        """As the function."""
        of = type(value)
        if of not in self._libraries:
            self._libraries[of] = _library_of(of)
        return self._libraries[of]

    def at(self, value: Any, library: str) -> Tuple[Union[Kind, str], int]:
        """The kind of an array, or why it cannot be stored; and its address, where that holds its dense elements, else 0."""
        if library == "numpy":
            return self._numpy_at(value)
        if library == "jax" or type(value) not in self._plain or not value.is_cpu or value.layout is not self._strided:
            return kind_of(value, library), 0
        key = (value.dtype, value.shape)
        kind = self._of_torch.get(key)
        if kind is None:
            made = kind_of(value, library)
            if isinstance(made, str):
                return made, 0
            kind = self._of_torch[key] = made
        elif (missing := _missing_memory(value)) is not None:
            return missing, 0
        return kind, value.data_ptr() if _is_dense(value) else 0

    def _numpy_at(self, value: Any) -> Tuple[Union[Kind, str], int]:
        key = (value.dtype, value.shape)
        kind = self._of_numpy.get(key)
        if kind is None:
            made = kind_of(value, "numpy")
            if isinstance(made, str):
                return made, 0
            kind = self._of_numpy[key] = made
        return kind, address(value) if value.size and value.flags.c_contiguous else 0


def _missing_memory(value: Any) -> Optional[str]:
    """Why the storage of a strided torch tensor does not hold its elements, or None."""
    count = value.numel()
    if count == 0:
        return None
    last = count - 1 if value.is_contiguous() else sum((length - 1) * stride for length, stride in zip(value.shape, value.stride()))
    nbytes = value.untyped_storage().nbytes()
    if (value.storage_offset() + last + 1) * value.element_size() > nbytes or value.data_ptr() == 0:
        return f"its storage was resized to {nbytes} bytes, less than its elements"
    return None


def _is_dense(value: Any) -> bool:
    """Whether the memory of a strided torch tensor holds its elements as they are, row-major."""
    return bool(value.is_contiguous() and not value.is_neg() and not (value.is_complex() and value.is_conj()))


def address(value: Any) -> int:
    """Of a numpy array. `value.ctypes.data` takes three times as long."""
    if value.flags.writeable:
        try:
            return ctypes.addressof(ctypes.c_char.from_buffer(value))
        except (TypeError, ValueError):  # a dtype that the buffer protocol lacks
            pass
    return int(value.ctypes.data)


def kind_of(value: Any, library: str) -> Union[Kind, str]:
    """The kind of an array, or why it cannot be stored."""
    if library == "torch":
        return _kind_of_torch(value)
    if library == "jax":
        described = _jax.described(value)
        return described if isinstance(described, str) else Kind(library, *described)
    dtype = _dtypes.of_numpy(value.dtype)
    if dtype is None:
        return f"numpy dtype {value.dtype} cannot be stored"
    return Kind(library, dtype, tuple(value.shape))


def _kind_of_torch(value: Any) -> Union[Kind, str]:
    import torch

    if is_distributed(value):
        return _kind_of_distributed(value)
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(value).__module__}.{type(value).__qualname__} is not supported, only plain and distributed tensors"
    if value.layout is not torch.strided or value.is_quantized:
        return "sparse and quantized tensors are not supported"
    if value.device.type == "meta":
        return "a tensor on the meta device has no data"
    missing = _missing_memory(value)
    if missing is not None:
        return missing
    dtype = _dtypes.of_torch(value.dtype)
    if dtype is None:
        return f"{value.dtype} cannot be stored"
    return Kind("torch", dtype, _elements(dtype, value.shape))


def _elements(dtype: str, numbers: Sequence[int]) -> Tuple[int, ...]:
    """A shape or offset of torch in elements: torch counts pairs of F4."""
    counts = tuple(numbers)
    return (*counts[:-1], counts[-1] * 2) if dtype == "F4" and counts else counts


def is_distributed(value: Any) -> bool:
    """Whether a torch tensor is a DTensor or a ShardedTensor: each rank holds parts of it."""
    return hasattr(value, "__create_chunk_list__") or hasattr(value, "local_shards") or hasattr(value, "device_mesh")


def _kind_of_distributed(value: Any) -> Union[Kind, str]:
    try:
        pieces = pieces_of(value)
    except Exception as reason:  # what torch says of placements such as Partial
        return f"this {type(value).__name__} cannot be stored: {reason}"
    for _, local in pieces:
        kind = _kind_of_torch(local)
        if isinstance(kind, str):
            return kind
    dtype = _dtypes.of_torch(value.dtype)
    if dtype is None:
        return f"{value.dtype} cannot be stored"
    return Kind("torch", dtype, _elements(dtype, value.size()))


def pieces_of(value: Any) -> List[Tuple[Tuple[int, ...], Any]]:
    """The offsets and plain tensors of a distributed tensor here, as torch counts elements."""
    if hasattr(value, "local_shards"):
        return [(tuple(shard.metadata.shard_offsets), shard.tensor.detach()) for shard in value.local_shards()]
    import torch

    with torch.no_grad():  # faster by far
        local = value.to_local()
    offset, extent = _chunk_of(value, None if hasattr(local, "__create_chunk_list__") else getattr(value, "_spec", None))
    if hasattr(local, "wait"):  # a collective that is still running
        local = local.wait()
    return [(offset, local.detach())] if tuple(local.shape) == extent else []


_chunks: Dict[Any, Tuple[Tuple[int, ...], Tuple[int, ...]]] = {}
_MOST_CHUNKS = 100_000


def _chunk_of(dtensor: Any, spec: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The offset and extent of what is here. Kept by `spec`: mesh, placements and shape, if they say it; torch takes 40 us to compute it."""
    found = None if spec is None else _chunks.get(spec)
    if found is None:
        found = _chunk_now(dtensor)
        if spec is not None:
            if len(_chunks) >= _MOST_CHUNKS:
                _chunks.clear()
            _chunks[spec] = found
    return found


def _chunk_now(dtensor: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    if hasattr(dtensor, "__create_chunk_list__"):
        (chunk,) = dtensor.__create_chunk_list__()
        return tuple(chunk.offsets), tuple(chunk.sizes)
    module: Any = importlib.import_module("torch.distributed._tensor._utils")  # of torch 2.4
    if any(placement.is_partial() for placement in dtensor.placements):
        raise ValueError("it has a Partial placement")
    extent, offset = module.compute_local_shape_and_global_offset(dtensor.shape, dtensor.device_mesh, dtensor.placements)
    return tuple(offset), tuple(extent)


def parts_of(value: Any, kind: Kind, pieces: Optional[List[Tuple[Tuple[int, ...], Any]]] = None) -> List[Part]:
    """The parts of an array that this process holds; of a distributed one without empty parts. Of a jax array the values are
    shards.

    pieces   of a distributed one, if they are known
    """
    if kind.library == "jax":
        return [Part(*shard.box, shard) for shard in _jax.shards(value)]
    if kind.library != "torch" or not is_distributed(value):
        return [Part((0,) * len(kind.shape), kind.shape, value)]
    return [Part(_elements(kind.dtype, offset), _elements(kind.dtype, local.shape), local) for offset, local in (pieces_of(value) if pieces is None else pieces)
            if local.numel() or 0 in kind.shape]


def identity(value: Any, library: str) -> Optional[Tuple[Any, ...]]:
    """Equal for two arrays that are the same elements in the same memory; None for arrays without elements."""
    if library == "torch" and is_distributed(value):
        parts = [(offset, identity(local, library)) for offset, local in pieces_of(value)]
        return ("distributed", tuple(value.size()), *parts) if any(each for _, each in parts) else None
    if library == "torch":
        if value.numel() == 0:
            return None
        return ("torch", str(value.device), value.data_ptr(), tuple(value.shape), value.stride(), value.dtype,
                value.is_conj(), value.is_neg())
    if library == "jax":
        return ("jax", id(value))
    if value.size == 0:
        return None
    return ("numpy", address(value), value.shape, value.strides, value.dtype.str)


def dense(value: Any, library: str) -> Memory:
    """The bytes of an array: its own memory if that is dense and on the CPU, else a copy."""
    if library == "torch":
        if value.is_cpu and _is_dense(value):
            return Memory(value.data_ptr(), value.numel() * value.element_size(), value)
        data = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return Memory(data.data_ptr(), data.numel() * data.element_size(), data)
    import numpy

    data = value.dense() if library == "jax" else numpy.require(value, requirements="C")
    return Memory(data.ctypes.data, data.nbytes, data)


class Target:
    """Where an array is loaded to: its own memory if that is dense and on the CPU, else a buffer that `finish` copies. Of a jax
    array, a buffer that a new array is made of.
    """

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
        import numpy

        if kind.library == "jax":
            copy = numpy.empty(kind.shape, _dtypes.numpy_dtype(kind.dtype))
            return Memory(copy.ctypes.data, copy.nbytes, copy)
        if value.flags.c_contiguous:
            return Memory(value.ctypes.data, value.nbytes, None)
        copy = numpy.empty(value.shape, value.dtype)
        return Memory(copy.ctypes.data, copy.nbytes, copy)

    def finish(self) -> None:
        """Copies the buffer, if there is one, to the array."""
        if self.memory.owner is None or self._library == "jax":
            return
        if self._library == "torch":
            import torch

            with torch.no_grad():
                self._value.copy_(self.memory.owner)
        else:
            self._value[...] = self.memory.owner


def refusal_to_load(value: Any, library: str) -> Optional[str]:
    """Why nothing can be loaded into this array, or None."""
    if library == "jax":
        return _jax.refusal_to_load(value.whole)
    if library == "numpy":
        return None if value.flags.writeable else "the array is read-only"
    reach = 0  # of the dimensions with smaller strides
    for stride, length in sorted((stride, length) for stride, length in zip(value.stride(), value.shape) if length > 1):
        if stride <= reach:
            return "elements of the tensor share memory (expand, as_strided)"
        reach += stride * (length - 1)
    return None


def empty(kind: Kind) -> Any:
    """A new array without values, of jax a ShapeDtypeStruct. unsupported: the library has no such dtype."""
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
    if kind.library == "jax":
        try:
            return _jax.abstract(kind.dtype, kind.shape)
        except ImportError:
            raise errors.unsupported("the tree has jax arrays, and jax is not installed",
                                     hint="give a tree of numpy arrays with into=, or use ckpt.open") from None
    raise errors.unsupported(f"arrays of {kind.library} are not known to this release")
