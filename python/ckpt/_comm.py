"""The ranks of a torch.distributed job: the table of include/ckpt/comm.h for libckpt, and agreement among the Python sides."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import itertools
import pickle
import signal
import socket
import threading
import time
from ctypes import CFUNCTYPE, Structure, c_int, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar

from . import _library, errors

T = TypeVar("T")

_ASK_EVERY = 0.5  # seconds between questions whether a rank has left
_NAP = 0.0002  # seconds between tests of a collective
_SIGN = -(1 << 63)  # int64: its order is that of uint64 with the first bit flipped

_INT = CFUNCTYPE(c_int, c_void_p)
_START_MAX = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_uint64)
_START_GATHER = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_uint64, c_void_p)
_TEST = CFUNCTYPE(c_int, c_void_p, c_void_p)
_ABANDON = CFUNCTYPE(None, c_void_p, c_void_p)
_TEXT = CFUNCTYPE(c_void_p, c_void_p)
_CLOSE = CFUNCTYPE(None, c_void_p)


class TableStruct(Structure):
    _fields_ = [("size", c_uint64), ("self", c_void_p), ("rank", _INT), ("ranks", _INT), ("local_ranks", _INT),
                ("start_max", _START_MAX), ("start_gather", _START_GATHER), ("start_broadcast", _START_MAX),
                ("test", _TEST), ("abandon", _ABANDON), ("library", _TEXT), ("close", _CLOSE),
                ("start_send", c_void_p), ("start_receive", c_void_p)]  # null: gloo cannot test messages


def _bytes_at(address: int, nbytes: int) -> Any:
    """A tensor of the bytes at an address."""
    import torch

    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)


class Ranks:
    """The ranks of a process group. Collectives are called in the same order on all of them.

    rank, ranks  in the group
    cause        why a rank has left the run, once it is known
    """

    def __init__(self, group: Any, patience: float) -> None:
        """Makes a gloo group of the same ranks, so that nothing mixes with the trainer's collectives. Collective."""
        import torch.distributed as dist

        self._members = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        self._patience = patience
        self._group = dist.new_group(self._members, timeout=datetime.timedelta(seconds=patience), backend="gloo",
                                     use_local_synchronization=len(self._members) < dist.get_world_size())
        self.rank = dist.get_rank(self._group)
        self.ranks = len(self._members)
        self.cause: Optional[str] = None
        self._requests: Dict[int, Tuple[Any, Callable[[], None], Any]] = {}
        self._numbers = itertools.count(1)
        self._asked = time.monotonic()
        self._left = False
        store: Any = dist.distributed_c10d._get_default_store()
        self._store = store
        run = self.gathered(f"{socket.gethostname()} {time.time_ns()}")
        self._key = f"ckpt/left/{run[0]}"
        hosts = [text.split()[0] for text in run]
        self._table = self._make_table(hosts.count(hosts[self.rank]))

    @property
    def table(self) -> int:
        """The address of a ckpt_comm_table, valid as long as this object."""
        return ctypes.addressof(self._table)

    def leave(self, reason: str) -> None:
        """This rank takes part in nothing more; the others learn the reason."""
        self._left = True
        try:
            self._store.set(self._key, f"rank {self.rank}: {reason}")
        except Exception:  # the store is gone: the others see that this rank is lost
            pass

    def gathered(self, value: Any) -> List[Any]:
        """The values of all ranks, in their order. IOFailure: a rank is lost, or has left."""
        import torch
        import torch.distributed as dist

        data = pickle.dumps(value)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        self._wait(lambda: dist.all_gather(sizes, torch.tensor([len(data)]), group=self._group, async_op=True))
        room = max(int(size) for size in sizes)
        mine = torch.zeros(room, dtype=torch.uint8)
        mine[:len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.zeros(room, dtype=torch.uint8) for _ in range(self.ranks)]
        self._wait(lambda: dist.all_gather(parts, mine, group=self._group, async_op=True))
        return [pickle.loads(part[:int(size)].numpy().tobytes()) for part, size in zip(parts, sizes)]

    def agree(self, work: Callable[[], T]) -> T:
        """Runs `work` on every rank; a failure of one is raised on all: its own there, on the others with its rank."""
        try:
            mine, failure = work(), None
        except Exception as reason:
            mine, failure = None, reason
        told = self.gathered(None if failure is None else _as_error(failure))
        if failure is not None:
            raise failure
        for rank, theirs in enumerate(told):
            if theirs is not None:
                theirs.message = f"rank {rank}: {theirs.message}"
                raise theirs
        return mine  # type: ignore[return-value]

    def explained(self, failure: errors.Error) -> errors.Error:
        """A failure of the library, with the cause if it is that a rank has left."""
        if failure.code == 16 and self._is_left():
            return errors.IOFailure(f"{failure.message}: {self.cause}", id=failure.id, code=failure.code)
        return failure

    def _is_left(self) -> bool:
        """Whether a rank has left the run. Asks the job's store."""
        if self.cause is None:
            try:
                if self._store.check([self._key]):
                    self.cause = self._store.get(self._key).decode("utf-8", "replace")
            except Exception:  # the store has ended
                return False
        return self.cause is not None

    def _wait(self, start: Callable[[], Any]) -> None:
        end = time.monotonic() + self._patience
        try:
            work = start()
            while not work.is_completed():
                if self._peer_has_left() or time.monotonic() > end:
                    raise errors.IOFailure(self.cause or f"not all ranks answered within {self._patience} s", id="CKPT-E1601",
                                           code=16)
                time.sleep(_NAP)
            work.wait()
        except RuntimeError as reason:
            self._is_left()
            raise errors.IOFailure(f"another rank is lost: {self.cause or reason}", id="CKPT-E1601", code=16) from None

    def _peer_has_left(self) -> bool:
        if time.monotonic() - self._asked < _ASK_EVERY:
            return False
        self._asked = time.monotonic()
        return self._is_left()

    # The functions of the table. No exception leaves them: ctypes would print and drop it.

    def _make_table(self, local_ranks: int) -> TableStruct:
        self._name = ctypes.create_string_buffer(b"torch.distributed, gloo")
        return TableStruct(
            size=ctypes.sizeof(TableStruct), rank=_INT(lambda _: self.rank), ranks=_INT(lambda _: self.ranks),
            local_ranks=_INT(lambda _: local_ranks), start_max=_START_MAX(self._start_max),
            start_gather=_START_GATHER(self._start_gather), start_broadcast=_START_MAX(self._start_broadcast),
            test=_TEST(self._test), abandon=_ABANDON(lambda _, request: None),  # stays alive in self._requests
            library=_TEXT(lambda _: ctypes.addressof(self._name)), close=_CLOSE(lambda _: self._close()))

    def _start(self, start: Callable[[], Any], finish: Callable[[], None], memory: Any) -> Optional[int]:
        if self._left:
            return None
        try:
            number = next(self._numbers)
            self._requests[number] = (start(), finish, memory)
            return number
        except Exception:
            return None

    def _start_max(self, _: int, values: int, count: int) -> Optional[int]:
        import torch
        import torch.distributed as dist

        there = _bytes_at(values, count * 8).view(torch.int64)
        own = there ^ _SIGN
        return self._start(lambda: dist.all_reduce(own, dist.ReduceOp.MAX, group=self._group, async_op=True),
                           lambda: there.copy_(own ^ _SIGN), own)

    def _start_gather(self, _: int, data: int, nbytes: int, out: Optional[int]) -> Optional[int]:
        import torch.distributed as dist

        mine = _bytes_at(data, nbytes).clone()
        there = None if out is None else list(_bytes_at(out, nbytes * self.ranks).split(nbytes))
        return self._start(lambda: dist.gather(mine, there, dst=self._members[0], group=self._group, async_op=True),
                           lambda: None, (mine, there))

    def _start_broadcast(self, _: int, data: int, nbytes: int) -> Optional[int]:
        import torch.distributed as dist

        there = _bytes_at(data, nbytes)
        return self._start(lambda: dist.broadcast(there, src=self._members[0], group=self._group, async_op=True),
                           lambda: None, there)

    def _test(self, _: int, request: int) -> int:
        try:
            work, finish, _memory = self._requests[request]
            if not work.is_completed():
                return -1 if self._left or self._peer_has_left() else 0
            del self._requests[request]
            work.wait()  # raises how it failed
            finish()
            return 1
        except Exception:
            return -1

    def _close(self) -> None:
        try:
            import torch.distributed as dist

            if not self._left and self.cause is None and dist.is_initialized():
                dist.destroy_process_group(self._group)
        except Exception:  # the job has ended before its run
            pass


def _as_error(failure: Exception) -> errors.Error:
    """A failure that can be sent to other ranks."""
    if isinstance(failure, errors.Error):
        return failure
    return errors.Error(f"{type(failure).__name__}: {failure}")


@contextlib.contextmanager
def uninterrupted(ranks: Optional[Ranks]) -> Iterator[None]:
    """For calls of the library with ranks: it calls functions of Python, and an exception of a signal's handler in them, such as
    KeyboardInterrupt, would be dropped. SIGINT has its effect when the call has returned.
    """
    before = signal.getsignal(signal.SIGINT)
    if ranks is None or not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: List[Any] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            before(*caught[0])


def call(ranks: Optional[Ranks], function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the library; raises its failure, as `check`."""
    with uninterrupted(ranks):
        code = function(*arguments)
    check(code, ranks)


def check(code: int, ranks: Optional[Ranks]) -> None:
    """Raises the failure of the last call; if a rank has left, with its reason."""
    try:
        _library.check(code)
    except errors.Error as reason:
        if ranks is None:
            raise
        raise ranks.explained(reason) from None
