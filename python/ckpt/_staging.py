"""A stager for torch.distributed.checkpoint.async_save: copies of the state in memory that is kept between saves.

The memory is one anonymous file of the system (memfd) for all tensors. A checkpoint process gets its descriptor and a
description of the state, and maps the same pages: nothing is copied again, and /dev/shm is not used.
"""

from __future__ import annotations

import copy
import ctypes
import inspect
import mmap
import os
import time
import weakref
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.distributed.checkpoint import state_dict_saver

from . import errors

_ALIGNMENT = 64  # of each tensor, bytes
_TRIES, _NAP = 25, 0.001  # seconds: is_free_soon


class AsyncStager:
    """`async_stager` for dcp.async_save, in threads and in processes, torch 2.9 or newer.

        stager = ckpt.dcp.AsyncStager()                     # once
        dcp.async_save(state, checkpoint_id=path, storage_writer=ckpt.dcp.Writer(), async_stager=stager)

    async_save returns when the state was copied; then tensors and objects may change. Dense and strided tensors, DTensors,
    ShardedTensors and other tensors that are made of such ones are copied to memory that the next save uses again; in CUDA
    jobs it is pinned. Everything else is copied by copy.deepcopy. If the copy of an earlier save is still being written, it is
    left as it is, and the new one gets memory of its own: there are at most as many copies as saves in flight, and one more.

    errors   Unsupported: this release of torch has no `async_stager`. Of async_save: OSError, too little memory
    """

    _synchronize_after_execute = should_synchronize_after_execute = False  # of torch's protocol: stage() has copied when it returns

    def __init__(self) -> None:
        if "async_stager" not in inspect.signature(state_dict_saver.async_save).parameters:
            raise errors.unsupported(f"ckpt.dcp.AsyncStager: dcp.async_save of torch {torch.__version__} has no async_stager",
                                     hint="leave it out: torch copies the state")
        self._memory: Optional[_Memory] = None

    def stage(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        """Called by torch. A copy that later changes of the state do not reach; keep it no longer than you need it."""
        plan = _Plan()
        described = plan.described(state_dict)
        memory = self._memory
        if memory is None or memory.nbytes < plan.nbytes or not memory.is_free_soon():
            self._memory = memory = None  # before the new one is made
            self._memory = memory = _Memory(plan.nbytes, is_pinned=any(source.is_cuda for source in plan.sources))
        lease = memory.lease()
        tensors = [each.tensor(lease) for each in plan.places]
        _copy(plan.sources, tensors)
        return _Staged(_rebuilt(described, tensors), memory, plan.places, described)

    def synchronize_staging(self) -> None:
        """Called by torch. Does nothing."""

    def close(self) -> None:
        """Releases the kept memory, as soon as no save uses it. A later save gets new memory."""
        self._memory = None


class _Memory:
    """Shared memory. It is in use while a tensor in it is alive, in this process."""

    def __init__(self, nbytes: int, is_pinned: bool = False, descriptor: Optional[int] = None) -> None:
        """descriptor   of another process's memory, owned from here on; None: new memory"""
        self.nbytes = nbytes
        self._process = os.getpid()
        self.descriptor = os.memfd_create("ckpt-staging", os.MFD_CLOEXEC) if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        if descriptor is None:
            os.posix_fallocate(self.descriptor, 0, max(nbytes, 1))  # too little memory is an OSError here, else a SIGBUS later
        self._map = mmap.mmap(self.descriptor, max(nbytes, 1))
        self._lease: Optional[weakref.ref[Any]] = None
        if is_pinned:
            self._pin()

    def is_free_soon(self) -> bool:
        """Whether no tensor uses it. The thread of a save that has just ended holds the state a little longer. A forked child
        cannot know.
        """
        if self._process != os.getpid():
            return False
        for _ in range(_TRIES):
            if self._lease is None or self._lease() is None:
                return True
            time.sleep(_NAP)
        return False

    def lease(self) -> Any:
        """The memory, for torch.frombuffer: each tensor keeps it alive."""
        lease = None if self._lease is None else self._lease()
        if lease is None:
            lease = (ctypes.c_uint8 * max(self.nbytes, 1)).from_buffer(self._map)
            self._lease = weakref.ref(lease)
        return lease

    def _pin(self) -> None:
        """Devices then copy to it at full speed. Without, copies are slower but right."""
        cuda: Any = torch.cuda
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if int(cuda.cudart().cudaHostRegister(address, self.nbytes, 0)) == 0:
            weakref.finalize(self, _unpin, address, self._map).atexit = False


def _unpin(address: int, mapping: mmap.mmap) -> None:
    cuda: Any = torch.cuda
    cuda.cudart().cudaHostUnregister(address)
    del mapping  # mapped until here


class _Place(NamedTuple):
    """Where a tensor's elements are in the memory, dense."""

    offset: int
    dtype: torch.dtype
    shape: Tuple[int, ...]

    def tensor(self, lease: Any) -> torch.Tensor:
        count = 1
        for length in self.shape:
            count *= length
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(lease, dtype=self.dtype, count=count, offset=self.offset).view(self.shape)


@dataclass
class _At:
    """A placeholder for the tensor of this number."""

    index: int


@dataclass
class _Wrapped:
    """A placeholder for a tensor that torch makes of other ones, such as a DTensor."""

    kind: Any
    inner: Dict[str, Any]
    context: Any
    size: Any
    stride: Any

    def tensor(self, inner: Dict[str, Any]) -> Any:
        return self.kind.__tensor_unflatten__(inner, self.context, self.size, self.stride)


@dataclass
class _Sharded:
    """A placeholder for a ShardedTensor: its shards here and where they are. Another process uses its own group of all ranks."""

    shards: List[Any]
    places: List[Any]
    metadata: Any
    group: Any

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "group": None}

    def tensor(self, shards: List[Any]) -> Any:
        from torch.distributed._shard import sharded_tensor

        module: Any = sharded_tensor
        return module.ShardedTensor._init_from_local_shards_and_global_metadata(
            [module.Shard(shard, place) for shard, place in zip(shards, self.places)], sharded_tensor_metadata=self.metadata,
            process_group=self.group)


class _Plan:
    """Walks a state once: which tensors are copied, and to where.

    sources  tensors as they are now, on any device
    places   of their copies
    nbytes   of all copies
    """

    def __init__(self) -> None:
        self.sources: List[torch.Tensor] = []
        self.places: List[_Place] = []
        self.nbytes = 0
        self._known: Dict[Any, _At] = {}

    def described(self, value: Any) -> Any:
        """The value with placeholders for its tensors. Containers are new; other objects are copied."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return {key: self.described(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.described(each) for each in value]
        if isinstance(value, tuple):
            made = [self.described(each) for each in value]
            return type(value)._make(made) if hasattr(value, "_make") else tuple(made)
        if value is None or type(value) in (bool, int, float, str, bytes):
            return value
        return self._sharded(value) if hasattr(value, "local_shards") else copy.deepcopy(value)

    def _tensor(self, value: Any) -> Any:
        if hasattr(value, "trigger_wait"):  # a collective that is still running
            value = value.trigger_wait()
        if hasattr(value, "__tensor_flatten__"):
            names, context = value.__tensor_flatten__()
            inner = {name: getattr(value, name) for name in names}
            return _Wrapped(type(value), {name: self._tensor(each) if isinstance(each, torch.Tensor) else each
                                          for name, each in inner.items()}, context, value.size(), value.stride())
        is_plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        if is_plain and value.layout is not torch.strided:
            return value.detach().clone()  # deepcopy knows COO of the sparse layouts only
        if not is_plain or value.is_quantized or value.is_meta:
            return copy.deepcopy(value.detach())
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
        known = self._known.get(key)
        if known is None:
            known = _At(len(self.sources))
            if value.numel():
                self._known[key] = known
            self.sources.append(value.detach())
            self.places.append(_Place(self.nbytes, value.dtype, tuple(value.shape)))
            self.nbytes += -(-value.numel() * value.element_size() // _ALIGNMENT) * _ALIGNMENT
        return known

    def _sharded(self, value: Any) -> _Sharded:
        shards = value.local_shards()
        places, metadata = copy.deepcopy([shard.metadata for shard in shards]), copy.deepcopy(value.metadata())
        for place in [*places, *metadata.shards_metadata]:
            if place.placement is not None:
                place.placement._device = torch.device("cpu")
        return _Sharded([self._tensor(shard.tensor) for shard in shards], places, metadata, value._process_group)


def _copy(sources: List[torch.Tensor], targets: List[torch.Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets):
            target.copy_(source, non_blocking=source.is_cuda)
    for device in {source.device for source in sources if source.is_cuda}:
        torch.cuda.current_stream(device).synchronize()


def _rebuilt(value: Any, tensors: List[torch.Tensor]) -> Any:
    """The value that was described, with these tensors."""
    if isinstance(value, _At):
        return tensors[value.index]
    if isinstance(value, _Wrapped):
        return value.tensor({name: _rebuilt(each, tensors) for name, each in value.inner.items()})
    if isinstance(value, _Sharded):
        return value.tensor([_rebuilt(each, tensors) for each in value.shards])
    if isinstance(value, dict):
        return {key: _rebuilt(each, tensors) for key, each in value.items()}
    if isinstance(value, list):
        return [_rebuilt(each, tensors) for each in value]
    if isinstance(value, tuple):
        made = [_rebuilt(each, tensors) for each in value]
        return type(value)._make(made) if hasattr(value, "_make") else tuple(made)
    return value


class _Staged(Dict[str, Any]):
    """A staged state. Pickled by multiprocessing, it is its description and the descriptor of its memory."""

    def __init__(self, content: Dict[str, Any], memory: _Memory, places: List[_Place], described: Any) -> None:
        super().__init__(content)
        self._memory = memory
        self._description = (places, described)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _received, (DupFd(self._memory.descriptor), self._memory.nbytes, *self._description)


def _received(descriptor: Any, nbytes: int, places: List[_Place], described: Any) -> Any:
    """The state in the process that was sent it."""
    memory = _Memory(nbytes, descriptor=descriptor.detach())
    lease = memory.lease()
    return _rebuilt(described, [place.tensor(lease) for place in places])
