"""Storage for torch.distributed.checkpoint, as torch's FileSystemWriter and FileSystemReader:

    dcp.save(state, checkpoint_id=path, storage_writer=ckpt.dcp.Writer())
    dcp.load(state, checkpoint_id=path, storage_reader=ckpt.dcp.Reader())
    dcp.async_save(state, checkpoint_id=path, storage_writer=ckpt.dcp.Writer(), async_stager=stager)   # ckpt.dcp.AsyncStager()

The files are those of torch: `.metadata` and `__RANK_NUMBER.distcp`, which FileSystemReader and every command of ckpt read.
Planning, deduplication and the agreement of the ranks are torch's; libckpt writes the files and publishes them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import io
import os
import pickle
import uuid
import weakref
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple, cast

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.planner import WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from . import _arrays, _device, _dtypes, _library, _metadata, errors
from ._staging import AsyncStager
from .checkpoint import Checkpoint, PathLike
from .checkpoint import open as open_checkpoint

__all__ = ["AsyncStager", "Reader", "Writer"]

_MOST_COPIED = 1 << 30  # bytes copied for one file from devices or from strided tensors: twice that is in memory
_MOST_FILE = 16 << 30  # bytes of a file: until then, what the planner returned stays in memory
_LOCKED = 11  # the code of a save that another one is in the way of
_MOST_READ = 1 << 30  # bytes read into buffers at a time, for tensors that cannot be read into directly


@dataclass
class _Part:
    """What is written for one item: a tensor, or bytes."""

    item: WriteItem
    tensor: Optional[torch.Tensor] = None
    data: Optional[io.BytesIO] = None


@dataclass
class _Batch:
    """The items of one file. Copies from devices are in flight until `ready`."""

    parts: List[_Part] = field(default_factory=list)
    copies: Optional[_device.Copies] = None

    def start(self) -> _Batch:
        self.copies = _device.Copies([part.tensor for part in self.parts
                                      if part.tensor is not None and _device.is_cuda(part.tensor)])
        return self

    def ready(self) -> List[_Part]:
        assert self.copies is not None
        copied = iter(self.copies.wait())
        for part in self.parts:
            if part.tensor is not None and _device.is_cuda(part.tensor):
                part.tensor = next(copied)
        return self.parts


class Writer(StorageWriter):  # type: ignore[misc, unused-ignore]
    """`storage_writer` for dcp.save and dcp.async_save, in threads and in processes.

    A checkpoint is written beside its path and published by one rename when all ranks have written and synced their files:
    readers see the old checkpoint or the complete new one. A save that fails, on any rank, leaves nothing there.

    path       of the checkpoint, unless dcp.save gets checkpoint_id
    threads    how many threads of each rank copy, hash and write
    overwrite  replaces a DCP checkpoint at the path; an empty directory is always replaced. Directories that hold other
               files are refused before anything is written
    errors     raised by dcp.save on all ranks, in CheckpointException.failures by rank: Usage, NoSpace, IOFailure;
               Unsupported: use_collectives=False, in which no rank knows when all have written
    """

    def __init__(self, path: Optional[PathLike] = None, *, threads: int = 2, overwrite: bool = True) -> None:
        super().__init__()
        if threads < 1:
            raise errors.usage(f"threads is {threads}, less than 1")
        self._path: Optional[str] = None if path is None else _library.absolute(path)
        self._threads = threads
        self._overwrite = overwrite
        self._save_id = ""
        self._begun: Optional[weakref.finalize[..., Any]] = None
        self._handle: Optional[int] = None

    @property
    def checkpoint_id(self) -> Optional[str]:
        """The path of the checkpoint; None until it is given."""
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
        """Called by torch: whether `checkpoint_id` is a path, not a URL."""
        return "://" not in str(checkpoint_id)

    def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
        """Called by torch before each save."""
        self._drop()
        if checkpoint_id is not None:
            self._path = _library.absolute(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by torch on all ranks.

        errors   Unsupported: use_collectives=False
        """
        if not kwargs.get("use_collectives", True):
            raise errors.unsupported("ckpt.dcp.Writer: use_collectives=False: a checkpoint is published when all ranks have "
                                     "written", hint="leave use_collectives out, or use torch's FileSystemWriter")
        self._drop()
        self._save_id = str(uuid.uuid4())

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Called by torch on all ranks."""
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        """Called by torch on the coordinator, before any rank writes: begins the checkpoint."""
        path = self._target()
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        try:
            self._begin(path)
        except errors.Error as reason:
            if reason.code != _LOCKED:
                raise
            gc.collect()  # a writer whose save has failed may live on in the cycle of its exception and their frames
            self._begin(path)
        # Prefixes depend on nothing but the rank, because planners may use the plan of an earlier save again.
        return [dataclasses.replace(plan, storage_data=filesystem._StoragePrefix(f"__{rank}_"))
                for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[List[WriteResult]]:
        """Called by torch on all ranks. Copies of the next file's tensors from a device run while a file is written."""
        results: List[WriteResult] = []
        last: Optional[_Batch] = None
        count = 0
        for batch in _batches(plan, planner):
            if last is not None:
                results += self._write(f"{plan.storage_data.prefix}{count}.distcp", last.ready())
                count += 1
            last = batch
        if last is not None:
            results += self._write(f"{plan.storage_data.prefix}{count}.distcp", last.ready())
        done: Future[List[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        """Called by torch on the coordinator when all ranks have written: publishes the checkpoint."""
        if hasattr(metadata, "version"):
            metadata.version = getattr(filesystem, "CURRENT_DCP_VERSION", None)
        metadata.storage_data = {result.index: result.storage_data for each in results for result in each}
        metadata.storage_meta = self.storage_meta()
        data = pickle.dumps(metadata)
        _library.check(_library.library().ckpt_dcp_publish(self._handle, data, len(data)))
        self._drop()

    def storage_meta(self) -> Optional[StorageMeta]:
        """Called by torch: the path and an id of the save, for the metadata."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def __getstate__(self) -> Dict[str, Any]:
        """For dcp.async_save in a process: a save is begun there."""
        return {**self.__dict__, "_handle": None, "_begun": None}

    def _target(self) -> str:
        if self._path is None:
            raise errors.usage("no path: give it to ckpt.dcp.Writer, or as checkpoint_id to dcp.save")
        return self._path

    def _begin(self, path: str) -> None:
        handle = c_void_p()
        library = _library.library()
        _library.check(library.ckpt_dcp_begin(_library.text(path), int(self._overwrite), byref(handle)))
        self._handle = handle.value
        self._begun = weakref.finalize(self, library.ckpt_dcp_free, handle.value)

    def _drop(self) -> None:
        """Releases the save; removes it if it was not published."""
        begun, self._begun, self._handle = self._begun, None, None
        if begun is not None:
            begun()

    def _write(self, name: str, parts: List[_Part]) -> List[WriteResult]:
        """One file, by the library."""
        items, owners = _item_structs(parts)
        _library.stoppable(lambda progress: _library.library().ckpt_dcp_write(
            _library.text(self._target()), name.encode(), items, len(parts), self._threads, progress, None))
        del owners
        return [WriteResult(index=part.item.index, size_in_bytes=struct.length,
                            storage_data=filesystem._StorageInfo(name, struct.offset, struct.length))
                for part, struct in zip(parts, items)]


def _batches(plan: SavePlan, planner: SavePlanner) -> Iterator[_Batch]:
    """The items of each file, bytes before tensors as torch orders them."""
    batch = _Batch()
    copied = total = 0
    for item in sorted(plan.items, key=lambda each: each.type is not WriteItemType.BYTE_IO):
        part = _part(item, planner.resolve_data(item))
        nbytes = 0 if part.tensor is None else part.tensor.numel() * part.tensor.element_size()
        is_copied = part.tensor is not None and not (part.tensor.is_cpu and part.tensor.is_contiguous())
        if part.tensor is not None and is_copied and not _device.is_cuda(part.tensor):
            part.tensor = part.tensor.cpu().contiguous()
        if batch.parts and (copied + nbytes * is_copied > _MOST_COPIED or total + nbytes > _MOST_FILE):
            yield batch.start()
            batch = _Batch()
            copied = total = 0
        batch.parts.append(part)
        copied += nbytes * is_copied
        total += nbytes
    if batch.parts:
        yield batch.start()


def _part(item: WriteItem, data: Any) -> _Part:
    """What is written for the planner's data. Tensors that libckpt does not know are written by torch.save."""
    if isinstance(data, io.BytesIO):
        return _Part(item, data=data)
    tensor = data.detach()
    if (type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized
            and (_dtypes.of_torch(tensor.dtype) or tensor.dtype is torch.complex128)):
        return _Part(item, tensor=tensor.resolve_conj().resolve_neg())
    stream = io.BytesIO()
    torch.save(tensor.cpu(), stream)
    return _Part(item, data=stream)


def _item_structs(parts: List[_Part]) -> Tuple[Any, List[Any]]:
    """The items for the library, and what keeps their memory alive."""
    items = (_library.DcpItemStruct * len(parts))()
    owners: List[Any] = []
    size = ctypes.sizeof(_library.DcpItemStruct)
    for part, item in zip(parts, items):
        item.size = size
        if part.tensor is not None:
            tensor = part.tensor.contiguous()
            owners.append(tensor)
            item.dtype = str(tensor.dtype).rpartition(".")[2].encode()
            item.shape = _library.numbers(tensor.shape)
            item.ndim = tensor.dim()
            item.data = tensor.data_ptr()
            item.bytes = tensor.numel() * tensor.element_size()
        elif part.data is not None and part.data.getbuffer().nbytes:
            memory = ctypes.c_char.from_buffer(part.data.getbuffer())
            owners.append(memory)
            item.data = ctypes.addressof(memory)
            item.bytes = part.data.getbuffer().nbytes
    return items, owners


class Reader(FileSystemReader):  # type: ignore[misc, unused-ignore]
    """`storage_reader` for dcp.load: reads what Writer and torch's FileSystemWriter wrote, at any number of ranks.

    libckpt reads the tensors, in file order and straight into the memory of dense CPU tensors. Python objects, compressed
    items and tensors with layouts that it does not know are read by torch. Classes in `.metadata` are those that torch
    puts there; others are refused unless torch.serialization.add_safe_globals allows them.

    path    of the checkpoint, unless dcp.load gets checkpoint_id
    errors  raised by dcp.load on all ranks: Corrupt, Incomplete, IOFailure
    """

    def __init__(self, path: Optional[PathLike] = None) -> None:
        super().__init__("" if path is None else _library.absolute(path))
        self._metadata: Optional[Metadata] = None

    def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
        """Called by torch before each load."""
        super().reset(None if checkpoint_id is None else _library.absolute(checkpoint_id))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Called by torch on all ranks."""
        rank = kwargs.get("rank")
        metadata: Any = _metadata.read(os.path.join(self.path, ".metadata" if rank is None else f"__{rank}.metadata"))
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        self._metadata = metadata
        return cast(Metadata, metadata)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Called by torch on all ranks."""
        tensors = [item for item in plan.items if item.type is not LoadItemType.BYTE_IO]
        others = [item for item in plan.items if item.type is LoadItemType.BYTE_IO]
        try:
            checkpoint = open_checkpoint(os.fspath(self.path)) if tensors else None
        except errors.Unsupported:
            checkpoint = None
        if checkpoint is None:
            others += tensors
        else:
            with checkpoint:
                others += self._read_tensors(checkpoint, tensors, planner)
        return super().read_data(dataclasses.replace(plan, items=others), planner)

    def _read_tensors(self, checkpoint: Checkpoint, items: List[ReadItem], planner: LoadPlanner) -> List[ReadItem]:
        """Reads what the library can read; the rest is returned."""
        left: List[ReadItem] = []
        reads = _Reads(checkpoint, planner, left)
        for item in items:
            stored = self._stored_dtype(checkpoint, item.storage_index)
            if stored is None or item.storage_index.offset is None:
                left.append(item)
            else:
                reads.add(item, stored)
        reads.finish()
        return left

    def _stored_dtype(self, checkpoint: Checkpoint, index: MetadataIndex) -> Optional[torch.dtype]:
        """The dtype of a tensor whose elements are the same for torch and the library."""
        assert self._metadata is not None
        stored: Any = self._metadata.state_dict_metadata[index.fqn]
        if index.fqn not in checkpoint:
            return None
        tensor = checkpoint[index.fqn]
        dtype: torch.dtype = stored.properties.dtype
        is_same = tensor.dtype == _dtypes.of_torch(dtype) and tensor.shape == tuple(stored.size)
        return dtype if is_same and tensor.dtype != "F4" else None


class _Reads:
    """Collects reads of boxes, and carries them out in file order. `left` gets items that only torch can read."""

    def __init__(self, checkpoint: Checkpoint, planner: LoadPlanner, left: List[ReadItem]) -> None:
        self._checkpoint = checkpoint
        self._planner = planner
        self._left = left
        self._structs: List[_library.ReadStruct] = []
        self._targets: List[Tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        self._buffered = 0

    def add(self, item: ReadItem, dtype: torch.dtype) -> None:
        target = self._planner.resolve_tensor(item).detach()
        if target.size() != item.lengths:
            raise errors.usage(f"{item.storage_index.fqn}: a target of {list(target.size())} for a part of "
                               f"{list(item.lengths)}", tensor=item.storage_index.fqn)
        is_direct = (type(target) is torch.Tensor and target.is_cpu and target.is_contiguous() and target.dtype is dtype
                     and not target.is_conj() and not target.is_neg())
        memory = target if is_direct else torch.empty(item.lengths, dtype=dtype)
        nbytes = memory.numel() * memory.element_size()
        self._targets.append((item, target, memory))
        if nbytes:
            begin = [a + b for a, b in zip(item.storage_index.offset or (), item.storage_offsets)]
            self._structs.append(_library.read_struct(item.storage_index.fqn, begin, item.lengths, memory.data_ptr(),
                                                      nbytes))
        self._buffered += 0 if is_direct else nbytes
        if self._buffered > _MOST_READ:
            self.finish()

    def finish(self) -> None:
        """Reads what was collected so far."""
        structs, targets = self._structs, self._targets
        self._structs, self._targets, self._buffered = [], [], 0
        try:
            self._checkpoint._read(structs)
        except errors.Unsupported:  # which items hold more than plain tensors, only their files say
            self._left += [item for item, _, _ in targets]
            return
        for item, target, memory in targets:
            if memory is not target:
                target.copy_(memory)
            self._planner.commit_tensor(item, target)
