"""`.metadata` of torch.distributed.checkpoint: a pickle, read without running anything that it names."""

from __future__ import annotations

import builtins
import collections
import enum
import pathlib
import pickle
from typing import Any, Dict, Tuple

import torch
from torch.distributed.checkpoint import filesystem, metadata

from . import errors

_OF_TORCH = ("ChunkStorageMetadata", "TensorProperties", "TensorStorageMetadata", "BytesStorageMetadata", "Metadata",
             "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")


def _member(kind: Any, name: str) -> Any:
    """A member of an enum: early releases of Python 3.11, such as 3.11.2, pickle it as getattr(kind, name)."""
    if not (isinstance(kind, type) and issubclass(kind, enum.Enum) and isinstance(name, str)):
        raise pickle.UnpicklingError(f"getattr of {kind!r}, which is no enum")
    return kind[name]


def _allowed() -> Dict[Tuple[str, str], Any]:
    """The classes of the metadata of all releases, by module and name."""
    known: Dict[Tuple[str, str], Any] = {
        ("torch", "Size"): torch.Size,
        ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): filesystem._StorageInfo,
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("builtins", "set"): builtins.set,
        ("builtins", "frozenset"): builtins.frozenset,
        ("builtins", "getattr"): _member,
    }
    for module in ("pathlib", "pathlib._local"):
        known[(module, "PosixPath")] = known[(module, "PurePosixPath")] = pathlib.PurePosixPath
    for name in _OF_TORCH:
        if hasattr(metadata, name):
            known[("torch.distributed.checkpoint.metadata", name)] = getattr(metadata, name)
    sharded = "torch.distributed._shard.sharded_tensor.metadata"  # until torch 2.2
    known[(sharded, "TensorProperties")] = metadata.TensorProperties
    known[(sharded, "MEM_FORMAT_ENCODING")] = metadata._MEM_FORMAT_ENCODING
    for each in getattr(torch.serialization, "get_safe_globals", list)():
        value, name = each if isinstance(each, tuple) else (each, f"{each.__module__}.{each.__qualname__}")
        module, _, last = name.rpartition(".")
        known[(module, last)] = value
    return known


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, path: str) -> None:
        super().__init__(stream)
        self._path = path
        self._known = _allowed()

    def find_class(self, module: str, name: str) -> Any:
        found = self._known.get((module, name))
        if found is None and module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            found = getattr(torch, name)
        if found is None:
            raise errors.unsupported(f"{self._path}: it names {module}.{name}, which torch does not put there",
                                     hint=f"if you trust the file: torch.serialization.add_safe_globals([{name}])")
        return found


def read(path: str) -> Any:
    """The Metadata in a file.

    errors   FileNotFoundError; Corrupt: no such pickle; Unsupported: it names other classes
    """
    with open(path, "rb") as stream:
        try:
            document = _Unpickler(stream, path).load()
        except errors.Error:
            raise
        except Exception as reason:  # whatever a damaged pickle raises
            raise errors.Corrupt(f"{path}: not what torch writes: {reason}", id="CKPT-E1500", code=15, file=path) from None
    if not isinstance(document, metadata.Metadata) or document.storage_data is None:
        raise errors.Corrupt(f"{path}: not the metadata of a checkpoint", id="CKPT-E1500", code=15, file=path)
    return document
