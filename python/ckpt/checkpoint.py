"""Reading a checkpoint of any format: `ckpt.open`."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import threading
from ctypes import byref, c_char_p, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _box, _dtypes, _library, _tree, errors

if TYPE_CHECKING:  # Tensor has methods of the names numpy and torch
    from numpy import ndarray as NumpyArray
    from torch import Tensor as TorchTensor

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Info:
    """What a checkpoint says about itself; unknown members are None.

    path               of the checkpoint that was opened
    format, variant    such as "deepspeed" and "zero-3"
    chosen             which of several checkpoints was opened, and why
    step               of training
    framework          that wrote it, and `framework_version`
    metadata           texts stored with it, by name
    metrics            numbers stored with it, by name; None where the number was not finite
    """

    path: str
    format: str
    variant: Optional[str]
    chosen: Optional[str]
    step: Optional[int]
    framework: Optional[str]
    framework_version: Optional[str]
    metadata: Dict[str, str] = field(default_factory=dict)
    metrics: Dict[str, Optional[float]] = field(default_factory=dict)


class Tensor:
    """A tensor of an open checkpoint, or a part of one. Nothing is read before .numpy(), .torch() or .read().

    Index it with integers, slices with positive steps and `...`: the result is a Tensor again, and reading it reads
    only the smallest box that holds it. A Tensor keeps its checkpoint open; it cannot be read after `Checkpoint.close`.

    name   in the checkpoint; of a tied name the tensor that it is tied to
    """

    def __init__(self, checkpoint: Checkpoint, document: Mapping[str, Any], name: str,
                 axes: Sequence[_box.Axis]) -> None:
        self._checkpoint = checkpoint
        self._document = document
        self._axes = tuple(axes)
        self.name = name

    @property
    def dtype(self) -> str:
        """The dtype as safetensors names it: "F32", "BF16", ..."""
        return str(self._document["dtype"])

    @property
    def true_dtype(self) -> Optional[str]:
        """"complex128" if the tensor is stored as F64 with a last dimension of 2, else None."""
        value: Optional[str] = self._document["true_dtype"]
        return value

    @property
    def shape(self) -> Tuple[int, ...]:
        """The lengths of the dimensions, in elements."""
        return _box.shape_of(self._axes)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes, densely stored."""
        return _dtypes.size_bytes(self.dtype, self.shape)

    @property
    def role(self) -> str:
        """"param", "buffer" or "slot" (optimizer state)."""
        return str(self._document["role"])

    @property
    def parameter(self) -> Optional[str]:
        """Of a slot: the name of its parameter, where known; else None."""
        value: Optional[str] = self._document["parameter"]
        return value

    @property
    def slot(self) -> Optional[str]:
        """Of a slot: "master", "exp_avg", ..., or the framework's own name; else None."""
        value: Optional[str] = self._document["slot"]
        return value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    __contains__ = None  # of values: ask an array

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> NumpyArray[Any, Any]:
        """For numpy: reads the tensor."""
        if copy is False:
            raise ValueError("a tensor of a checkpoint is read: it cannot be given without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self._checkpoint, self._document, self.name, _box.chosen(self._axes, index))

    def __repr__(self) -> str:
        return f"<ckpt.Tensor {self.name} {self.dtype} {list(self.shape)}>"

    def read(self) -> bytearray:
        """The bytes of the elements in new memory: dense, row-major, little-endian.

        errors   Usage: the slice has steps, or the checkpoint is closed; Corrupt, IOFailure
        """
        if _box.has_steps(self._axes):
            raise errors.usage(f"{self.name}: the bytes of a slice with steps: use .numpy() or .torch()")
        data = bytearray(self._box_bytes)
        if data:
            self._read_to(ctypes.addressof(ctypes.c_char.from_buffer(data)))
        return data

    def numpy(self) -> NumpyArray[Any, Any]:
        """The elements as a new array of numpy, of the shape `self.shape`; BF16 and F8 have dtypes of ml_dtypes.

        errors   Unsupported: numpy has no such dtype, and ml_dtypes is not installed; Usage: the checkpoint is closed;
                 Corrupt, IOFailure
        """
        import numpy

        dtype = _dtypes.numpy_dtype(self.dtype)
        data = numpy.empty(self._extent, dtype)
        if data.nbytes:
            self._read_to(data.ctypes.data)
        if _box.has_steps(self._axes):
            data = numpy.ascontiguousarray(data[_box.steps(self._axes)])
        shaped: NumpyArray[Any, Any] = data.reshape(self.shape)
        return shaped

    def torch(self) -> TorchTensor:
        """The elements as a new tensor of torch in CPU memory, of the shape `self.shape`; F4 has half as many elements in the
        last dimension, because torch packs two in one.

        errors   Unsupported: torch has no such dtype; Usage: the checkpoint is closed; Corrupt, IOFailure
        """
        data = self._torch_buffer()
        if data.nbytes:
            self._read_to(data.data_ptr())
        return self._torch_view(data)

    @property
    def _extent(self) -> Tuple[int, ...]:
        return tuple(axis.extent for axis in self._axes)

    @property
    def _box_bytes(self) -> int:
        return _dtypes.size_bytes(self.dtype, self._extent)

    def _request(self, address: int) -> _library.ReadStruct:
        return _library.read_struct(self.name, [axis.begin for axis in self._axes], self._extent, address,
                                    self._box_bytes)

    def _read_to(self, address: int) -> None:
        self._checkpoint._read([self._request(address)])

    def _torch_buffer(self) -> Any:
        import torch

        _dtypes.torch_dtype(self.dtype)  # before anything is read
        return torch.empty(self._box_bytes, dtype=torch.uint8)

    def _torch_view(self, data: Any) -> TorchTensor:
        shape: Tuple[int, ...] = self._extent
        if self.dtype == "F4":
            if _box.has_steps(self._axes) or any(axis.dropped for axis in self._axes[-1:]):
                raise errors.unsupported(f"{self.name}: torch packs two F4 elements in one: no steps, no single ones")
            shape = (*shape[:-1], shape[-1] // 2)
        value: TorchTensor = data.view(_dtypes.torch_dtype(self.dtype)).view(shape)
        if _box.has_steps(self._axes):
            value = value[_box.steps(self._axes)].contiguous()
        kept = [length for length, axis in zip(value.shape, self._axes) if not axis.dropped]
        return value.view(kept)


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of tensor names, tied ones too, to tensors that are read when asked for. A name that it
    lacks is a NotFound, which is a KeyError.

    Holds a lease on the checkpoint until it is closed, so that no policy deletes it: use it in a `with` block. Threads may
    share it; they read one after the other.

    info      what the checkpoint says about itself
    ties      second names of tensors, and the name of the tensor that each is tied to
    objects   values stored beside the tensors, by name: numbers, text, None, bytes, and lists, tuples, sets and dicts of them;
              objects of other classes as text
    blobs     sizes in bytes of opaque data, by name: see `blob`
    """

    def __init__(self, handle: int) -> None:
        """handle   a ckpt_checkpoint, owned from here on"""
        self._handle: Optional[int] = handle
        self._lock = threading.Lock()
        try:
            document = self._describe()
            self._tensors: Dict[str, Mapping[str, Any]] = {t["name"]: t for t in document["tensors"]}
            self.blobs: Dict[str, int] = {b["name"]: b["bytes"] for b in document["blobs"]}
            self.ties: Dict[str, str] = {t["name"]: t["target"] for t in document["ties"]}
            self.objects: Dict[str, Any] = {o["name"]: _object_of(o) for o in document["objects"]}
            self.info = _info_of(document)
            self._stored = self._tree()
            self.ties.update(self._stored.ties)
            self.objects.update(self._stored.values)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Tensor:
        document = self._tensors.get(self.ties.get(name, name)) if isinstance(name, str) else None
        if document is None:
            raise errors.not_found(f"{name}: the checkpoint has no such tensor", tensor=str(name))
        return Tensor(self, document, str(document["name"]), _box.whole(document["shape"]))

    def __iter__(self) -> Iterator[str]:
        yield from self._tensors
        yield from self.ties

    def __len__(self) -> int:
        return len(self._tensors) + len(self.ties)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a ckpt.Checkpoint cannot be copied or sent: open it again")

    def __repr__(self) -> str:
        step = "" if self.info.step is None else f", step {self.info.step}"
        return f"<ckpt.Checkpoint {self.info.path}: {self.info.format}{step}, {len(self._tensors)} tensors>"

    def blob(self, name: str) -> bytes:
        """Opaque bytes that were stored with the checkpoint.

        errors   NotFound: `blobs` has no such `name`; Usage: the checkpoint is closed; Corrupt, IOFailure
        """
        if name not in self.blobs:
            raise errors.not_found(f"{name}: the checkpoint has no such blob", tensor=name)
        data = ctypes.create_string_buffer(max(self.blobs[name], 1))
        self._read([_library.read_struct(name, [0], [self.blobs[name]], ctypes.addressof(data), self.blobs[name])])
        return data.raw[:self.blobs[name]]

    def torch(self, prefix: str = "", roles: Sequence[str] = ("param", "buffer")) -> Dict[str, TorchTensor]:
        """A state dict: the tensors whose names begin with `prefix`, which is removed, as torch tensors.

        roles    which tensors: "param", "buffer", "slot" (optimizer state)
        returns  new tensors in CPU memory, read in one pass; tied names share one tensor
        errors   Unsupported: torch has no such dtype; Usage: the checkpoint is closed; Corrupt, IOFailure
        """
        unknown = set(roles) - {"param", "buffer", "slot"}
        if unknown:
            raise errors.usage(f"roles: {sorted(unknown)[0]!r} is none of param, buffer and slot")
        wanted = {name: self[name] for name in self if name.startswith(prefix)}
        wanted = {name: tensor for name, tensor in wanted.items() if tensor.role in roles}
        unique = {tensor.name: tensor for tensor in wanted.values()}
        buffers = {name: tensor._torch_buffer() for name, tensor in unique.items()}
        self._read([tensor._request(buffers[name].data_ptr()) for name, tensor in unique.items()
                    if buffers[name].nbytes])
        values = {name: tensor._torch_view(buffers[name]) for name, tensor in unique.items()}
        return {name[len(prefix):]: values[tensor.name] for name, tensor in wanted.items()}

    def close(self) -> None:
        """Releases the lease and the files. Tensors that were not read cannot be read afterwards."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                _library.library().ckpt_checkpoint_free(handle)

    def _tree(self) -> _tree.Stored:
        """The tree that `Run.save` stored; of other checkpoints one without structure."""
        if _tree.BLOB in self.blobs:
            return _tree.parse(self.blob(_tree.BLOB))
        return _tree.Stored(tensors={**{name: name for name in self._tensors}, **self.ties})

    def _describe(self) -> Dict[str, Any]:
        document = c_char_p()
        _library.check(_library.library().ckpt_checkpoint_json(self._handle, byref(document)))
        parsed: Dict[str, Any] = json.loads((document.value or b"").decode("utf-8"))
        return parsed

    def _read(self, reads: List[_library.ReadStruct]) -> _library.ReportStruct:
        report = _library.ReportStruct(size=ctypes.sizeof(_library.ReportStruct))
        array = (_library.ReadStruct * len(reads))(*reads)
        with self._lock:
            if self._handle is None:
                raise errors.usage("the checkpoint is closed")
            _library.check(_library.library().ckpt_read_plan(self._handle, array, len(reads), byref(report)))
        return report


def _object_of(document: Mapping[str, Any]) -> Any:
    try:
        return _value_of(document["data"])
    except (KeyError, TypeError):  # no plain value, or a dict or set of what Python cannot hash
        return document["value"]


def _value_of(data: Any) -> Any:
    """A value as FORMAT.md section 7.1 writes it."""
    if isinstance(data, list):
        return [_value_of(each) for each in data]
    if not isinstance(data, dict):
        return data
    (kind, content), = data.items()
    if kind == "int":
        return int(content)
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if kind == "text":
        return bytes.fromhex(content).decode("utf-8", "surrogatepass")
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "dict":
        return {_value_of(key): _value_of(value) for key, value in content}
    return {"tuple": tuple, "set": set}[kind](map(_value_of, content))


def _info_of(document: Mapping[str, Any]) -> Info:
    texts = ("path", "format", "variant", "chosen", "step", "framework", "framework_version")
    return Info(**{name: document[name] for name in texts},
                metadata={m["key"]: m["text"] for m in document["metadata"]},
                metrics={m["name"]: m["value"] for m in document["metrics"]})


def open(path: PathLike) -> Checkpoint:
    """Opens the checkpoint at `path`, of any format that ckpt reads; the newest of a run's directory. Reads its metadata, no
    tensors.

    errors   NotFound; Unsupported: the format is unknown or newer; Incomplete: files are missing; Corrupt; IOFailure
    """
    handle = c_void_p()
    _library.check(_library.library().ckpt_checkpoint_open(_library.text(_library.absolute(path)), None, byref(handle)))
    assert handle.value is not None
    return Checkpoint(handle.value)
