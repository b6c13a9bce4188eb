"""libckpt.so.1 over ctypes: include/ckpt/ckpt.h describes each function. ctypes releases the GIL during calls."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, List, Sequence, Tuple

from . import _program, errors

ABI_VERSION = 1
LIBRARY = "libckpt.so.1"


class TensorStruct(Structure):
    _fields_ = [("size", c_uint64), ("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(c_uint64)),
                ("ndim", c_uint32), ("role", c_char_p), ("parameter", c_char_p), ("slot", c_char_p)]


class OptionsStruct(Structure):
    _fields_ = [("size", c_uint64), ("comm", c_void_p), ("staging_memory", c_uint64), ("copy_threads", c_uint32),
                ("write_threads", c_uint32), ("patience_ms", c_int64), ("io", c_char_p), ("every_steps", c_uint64),
                ("every_seconds", c_double), ("time_limit_s", c_double), ("catch_signals", c_int32),
                ("verify_all", c_int32), ("framework", c_char_p), ("framework_version", c_char_p), ("log", c_void_p),
                ("log_user", c_void_p)]


class ReadStruct(Structure):
    _fields_ = [("size", c_uint64), ("name", c_char_p), ("offset", POINTER(c_uint64)), ("extent", POINTER(c_uint64)),
                ("ndim", c_uint32), ("out", c_void_p), ("bytes", c_uint64)]


class ReportStruct(Structure):
    _fields_ = [(name, c_uint64) for name in (
        "size", "step", "needed_bytes", "read_bytes", "verified_leaves", "unverified_bytes", "missing", "skipped",
        "received_bytes")]


class StatsStruct(Structure):
    _fields_ = [("size", c_uint64), ("bytes", c_uint64), ("plan_s", c_double), ("stage_s", c_double),
                ("write_s", c_double), ("commit_s", c_double), ("drain_s", c_double)]


_OUT = POINTER(c_void_p)
_FUNCTIONS: List[Tuple[str, Any, Sequence[Any]]] = [
    ("ckpt_abi_version", c_uint32, []),
    ("ckpt_last_error_json", c_char_p, []),
    ("ckpt_run_open", c_int, [c_char_p, POINTER(OptionsStruct), _OUT]),
    ("ckpt_run_close", c_int, [c_void_p]),
    ("ckpt_should_save", c_int, [c_void_p, c_uint64, POINTER(c_int)]),
    ("ckpt_stop_requested", c_int, [c_void_p]),
    ("ckpt_begin", c_int, [c_void_p, c_uint64, _OUT]),
    ("ckpt_set", c_int, [c_void_p, c_char_p, c_char_p]),
    ("ckpt_metric", c_int, [c_void_p, c_char_p, c_double]),
    ("ckpt_add_part", c_int, [c_void_p, POINTER(TensorStruct), POINTER(c_uint64), POINTER(c_uint64), c_void_p,
                              c_uint64]),
    ("ckpt_add_blob", c_int, [c_void_p, c_char_p, c_void_p, c_uint64]),
    ("ckpt_commit", c_int, [c_void_p, _OUT]),
    ("ckpt_save_drop", None, [c_void_p]),
    ("ckpt_wait", c_int, [c_void_p, c_int64]),
    ("ckpt_poll", c_int, [c_void_p, POINTER(c_int)]),
    ("ckpt_pending_name", c_char_p, [c_void_p]),
    ("ckpt_pending_stats", c_int, [c_void_p, POINTER(StatsStruct)]),
    ("ckpt_pending_free", None, [c_void_p]),
    ("ckpt_load", c_int, [c_void_p, POINTER(ReadStruct), c_uint64, c_int32, POINTER(ReportStruct)]),
    ("ckpt_latest_usable", c_int, [c_void_p, _OUT]),
    ("ckpt_checkpoint_open", c_int, [c_char_p, POINTER(OptionsStruct), _OUT]),
    ("ckpt_checkpoint_free", None, [c_void_p]),
    ("ckpt_checkpoint_json", c_int, [c_void_p, POINTER(c_char_p)]),
    ("ckpt_read_plan", c_int, [c_void_p, POINTER(ReadStruct), c_uint64, POINTER(ReportStruct)]),
]


def library_path() -> str:
    """CKPT_LIBRARY if it is set, else the library installed with this package, else by the loader's search path."""
    given = os.environ.get("CKPT_LIBRARY")
    if given:
        return given
    installed = os.path.join(_program.INSTALLED, "lib", LIBRARY)
    return installed if os.path.exists(installed) else LIBRARY


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded library. unsupported: it cannot be loaded, or has another ABI."""
    path = library_path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as reason:
        raise errors.unsupported(f"{path}: cannot load libckpt: {reason}",
                                 hint="install the package with pip, or set CKPT_LIBRARY to libckpt.so.1") from None
    for name, result, arguments in _FUNCTIONS:
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise errors.unsupported(f"{path}: too old for this package: it has no {name}") from None
        function.restype = result
        function.argtypes = arguments
    if loaded.ckpt_abi_version() != ABI_VERSION:
        raise errors.unsupported(f"{path}: ABI version {loaded.ckpt_abi_version()}, this package needs {ABI_VERSION}")
    return loaded


def check(code: int) -> None:
    """Raises the failure of the last call by this thread, if `code` is not 0."""
    if code != 0:
        text: bytes = library().ckpt_last_error_json()
        raise errors.from_document(json.loads(text.decode("utf-8", "replace")), code)


def numbers(values: Sequence[int]) -> Any:
    """A C array of uint64; the caller keeps it alive during the call."""
    return (c_uint64 * len(values))(*values)


def text(value: str) -> bytes:
    """A name or path for C. usage: it contains a null character, which would end it."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise errors.usage(f"{value!r}: a null character in a name")
    return data


def read_struct(name: str, offset: Sequence[int], extent: Sequence[int], address: int, nbytes: int) -> ReadStruct:
    """A box to read: `nbytes` at `address`, the caller's memory, dense and row-major."""
    if len(offset) == 0:  # a scalar: the whole tensor
        return ReadStruct(ctypes.sizeof(ReadStruct), text(name), None, None, 0, address, nbytes)
    return ReadStruct(ctypes.sizeof(ReadStruct), text(name), numbers(offset), numbers(extent), len(offset), address,
                      nbytes)


__all__ = ["OptionsStruct", "ReadStruct", "ReportStruct", "StatsStruct", "TensorStruct", "byref",
           "check", "library", "numbers", "read_struct", "text"]
