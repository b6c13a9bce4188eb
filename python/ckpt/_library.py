"""libckpt.so.1 over ctypes: include/ckpt/ckpt.h and dcp.h describe each function. ctypes releases the GIL during calls."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, List, Sequence, Tuple

from . import _program, errors

ABI_VERSION = 1
LIBRARY = "libckpt.so.1"


class PartsStruct(Structure):
    _fields_ = [("size", c_uint64), ("count", c_uint64), ("names", c_char_p), ("dtypes", c_char_p), ("ndims", c_void_p),
                ("shapes", c_void_p), ("offsets", c_void_p), ("extents", c_void_p), ("data", c_void_p), ("bytes", c_void_p),
                ("roles", c_void_p)]


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


class DcpItemStruct(Structure):
    _fields_ = [("size", c_uint64), ("dtype", c_char_p), ("shape", POINTER(c_uint64)), ("ndim", c_uint32),
                ("data", c_void_p), ("bytes", c_uint64), ("offset", c_uint64), ("length", c_uint64)]


PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)  # ckpt_dcp_progress

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
    ("ckpt_add_parts", c_int, [c_void_p, POINTER(PartsStruct)]),
    ("ckpt_add_blob", c_int, [c_void_p, c_char_p, c_void_p, c_uint64]),
    ("ckpt_commit", c_int, [c_void_p, _OUT]),
    ("ckpt_save_drop", None, [c_void_p]),
    ("ckpt_wait", c_int, [c_void_p, c_int64]),
    ("ckpt_poll", c_int, [c_void_p, POINTER(c_int)]),
    ("ckpt_pending_name", c_char_p, [c_void_p]),
    ("ckpt_pending_stats", c_int, [c_void_p, POINTER(StatsStruct)]),
    ("ckpt_pending_free", None, [c_void_p]),
    ("ckpt_load", c_int, [c_void_p, POINTER(ReadStruct), c_uint64, c_int32, POINTER(ReportStruct)]),
    ("ckpt_load_step", c_int, [c_void_p, c_uint64, POINTER(ReadStruct), c_uint64, c_int32, POINTER(ReportStruct)]),
    ("ckpt_latest_usable", c_int, [c_void_p, _OUT]),
    ("ckpt_step_usable", c_int, [c_void_p, c_uint64, _OUT]),
    ("ckpt_checkpoint_open", c_int, [c_char_p, POINTER(OptionsStruct), _OUT]),
    ("ckpt_checkpoint_free", None, [c_void_p]),
    ("ckpt_checkpoint_json", c_int, [c_void_p, POINTER(c_char_p)]),
    ("ckpt_dcp_begin", c_int, [c_char_p, c_int32, _OUT]),
    ("ckpt_dcp_write", c_int, [c_char_p, c_char_p, POINTER(DcpItemStruct), c_uint64, c_uint32, PROGRESS, c_void_p]),
    ("ckpt_dcp_publish", c_int, [c_void_p, c_char_p, c_uint64]),
    ("ckpt_dcp_free", None, [c_void_p]),
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


def stoppable(call: Callable[[Any], int]) -> None:
    """Runs a long call so that Ctrl-C stops it: `call` gets a ckpt_dcp_progress that asks it to stop. Signals reach only the
    main thread, which then waits for another one.

    errors   those of the call; KeyboardInterrupt, when the call has ended
    """
    if threading.current_thread() is not threading.main_thread():
        check(call(PROGRESS()))
        return
    stop = threading.Event()
    raised: List[BaseException] = []
    progress = PROGRESS(lambda user, done, total: int(stop.is_set()))

    def run() -> None:
        try:
            check(call(progress))
        except BaseException as reason:
            raised.append(reason)

    thread = threading.Thread(target=run, name="ckpt")
    thread.start()
    try:
        thread.join()
    except BaseException:  # a signal's
        stop.set()
        thread.join()
        raise
    if raised:
        raise raised[0]


def numbers(values: Sequence[int]) -> Any:
    """A C array of uint64; the caller keeps it alive during the call."""
    return (c_uint64 * len(values))(*values)


def absolute(path: Any) -> Any:
    """The path from the root, as the process may change its directory. Unlike os.path.abspath it keeps "..", which a link before it changes."""
    path = os.fspath(path)
    return os.path.join(os.getcwdb() if isinstance(path, bytes) else os.getcwd(), path)


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


__all__ = ["PROGRESS", "DcpItemStruct", "OptionsStruct", "PartsStruct", "ReadStruct", "ReportStruct", "StatsStruct", "byref",
           "check", "library", "numbers", "read_struct", "text"]
