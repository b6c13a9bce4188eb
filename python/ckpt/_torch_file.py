"""A torch.save file written by libckpt: one write and sync of the tensors' own memory, and a rename when it is complete.

torch makes the records (torch.serialization._save); the archive around them is laid out here, with the data of every record at
a multiple of 64 bytes as torch does it. The library writes the pieces as one data file of a DCP save of its own, because it
has no function for other files.
"""

from __future__ import annotations

import ctypes
import glob
import io
import os
import pickle
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from typing import Any, List, NamedTuple, Tuple

import torch

from . import _library

_ALIGNMENT = 64  # of a record's data, as torch's own files have
_ROOT = "archive"
_PADDING_ID = b"FB"  # of the extra field that torch pads with


class _Piece(NamedTuple):
    """Bytes in memory; `owner` keeps them alive."""

    address: int
    nbytes: int
    owner: Any


def _piece(data: Any, nbytes: int) -> _Piece:
    """Of text, bytes, or a storage on the CPU."""
    if isinstance(data, (str, bytes)):
        data = data.encode() if isinstance(data, str) else data
        return _Piece(ctypes.cast(ctypes.c_char_p(data), c_void_p).value or 0, len(data), data)
    return _Piece(data.data_ptr(), nbytes, data)


class _Records:
    """What torch.serialization._save takes for its zip file: keeps the records."""

    def __init__(self) -> None:
        self.records: List[Tuple[str, _Piece]] = []

    def write_record(self, name: str, data: Any, nbytes: int) -> None:
        self.records.append((name, _piece(data, nbytes)))


class _Sink(io.RawIOBase):
    """A file that zipfile writes to: keeps the pieces."""

    def __init__(self) -> None:
        self.pieces: List[_Piece] = []
        self._end = 0

    def write(self, data: Any) -> int:
        self.add(_piece(bytes(data), len(data)))
        return len(data)

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self._end += piece.nbytes

    def tell(self) -> int:
        return self._end

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def _archive(value: Any, threads: int) -> List[_Piece]:
    """The pieces of the file."""
    made = _Records()
    serialization: Any = torch.serialization
    serialization._save(value, made, pickle, serialization.DEFAULT_PROTOCOL, False)
    made.write_record("version", "3\n", 2)
    with ThreadPoolExecutor(threads) as pool:
        sums = list(pool.map(_checksum, [piece for _, piece in made.records]))
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload, unused-ignore]
        for (name, piece), checksum in zip(made.records, sums):
            info: Any = zipfile.ZipInfo(f"{_ROOT}/{name}")
            info.file_size = info.compress_size = piece.nbytes
            info.CRC, info.header_offset = checksum, sink.tell()
            bare = len(info.FileHeader()) + 4  # an extra field's own header
            padding = -(sink.tell() + bare) % _ALIGNMENT
            info.extra = _PADDING_ID + padding.to_bytes(2, "little") + b"Z" * padding
            sink.write(info.FileHeader())
            info.extra = b""
            sink.add(piece)
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
        archive.start_dir = sink.tell()
        archive._didModify = True  # type: ignore[attr-defined]
    return sink.pieces


def _checksum(piece: _Piece) -> int:
    return zlib.crc32((ctypes.c_char * piece.nbytes).from_address(piece.address)) if piece.nbytes else 0


def write(value: Any, path: str, threads: int) -> None:
    """Saves `value` as torch.save does; torch.load reads it. The file is durable when this returns, and was not there or held
    its old content before. Tensors on devices are copied to the CPU first, all of them.

    errors   what torch.save raises; IOFailure, NoSpace: `path` is as it was
    """
    pieces = _archive(value, threads)
    directory, name = os.path.split(os.path.abspath(path))
    target = os.path.join(directory, f".{name}.saving")
    library = _library.library()
    handle = c_void_p()
    _library.check(library.ckpt_dcp_begin(_library.text(target), 1, byref(handle)))
    try:
        items = (_library.DcpItemStruct * len(pieces))()
        for piece, item in zip(pieces, items):
            item.size = ctypes.sizeof(_library.DcpItemStruct)
            item.data, item.bytes = piece.address, piece.nbytes
        _library.stoppable(lambda progress: library.ckpt_dcp_write(
            _library.text(target), b"__0_0.distcp", items, len(pieces), threads, progress, None))
        (written,) = glob.glob(f"{glob.escape(target)}.partial-*/__0_0.distcp")
        os.rename(written, path)
        _sync(directory)
    finally:
        library.ckpt_dcp_free(handle)


def _sync(directory: str) -> None:
    """Makes a rename in it durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
