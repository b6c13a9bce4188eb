"""Saving and loading the checkpoints of a training run: `ckpt.Run`."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import threading
import time
import warnings
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar, Union

from . import _comm, _library, _retention, _saving, _shares, errors
from ._loading import Loading, LoadReport
from .checkpoint import Checkpoint, PathLike

__all__ = ["LoadReport", "Pending", "Run"]

T = TypeVar("T")

_WAIT_MS = 200  # of one call, so that Ctrl-C ends a wait
_LOCKED = 11  # the code of a wait that timed out


class Pending:
    """A save in the background, as `Run.save` returns it: its data was copied, so the tensors may change. Its outcome is
    reported once: by `wait` or `done`, else when the run is closed. May be dropped; the save continues.

    step   of the checkpoint
    """

    def __init__(self, lock: threading.RLock, handle: int, step: int, ranks: Optional[_comm.Ranks] = None) -> None:
        """lock    of the run; handle    a ckpt_pending, owned from here on"""
        self._lock = lock
        self._ranks = ranks
        self._handle = handle
        self.step = step
        weakref.finalize(self, _library.library().ckpt_pending_free, handle)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the checkpoint is durable. Ctrl-C ends the wait, not the save. With a group: collective, with equal
        timeouts.

        timeout  seconds; None: without limit
        errors   the save's failure, such as NoSpace or IOFailure; TimeoutError: not durable yet
        """
        if self._ranks is not None and timeout is not None:  # the ranks agree when it is over
            self._wait_once(int(timeout * 1000), timeout)
            return
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left_ms = (end - time.monotonic()) * 1000
            with self._lock:
                with _comm.uninterrupted(self._ranks):
                    code = _library.library().ckpt_wait(self._handle, int(max(0, min(left_ms, _WAIT_MS))))
                if code != _LOCKED:
                    _comm.check(code, self._ranks)
                    return
            if left_ms <= _WAIT_MS:
                raise TimeoutError(f"the save of step {self.step} is not durable after {timeout} s")

    def _wait_once(self, timeout_ms: int, timeout: float) -> None:
        with self._lock, _comm.uninterrupted(self._ranks):
            code = _library.library().ckpt_wait(self._handle, timeout_ms)
        if code == _LOCKED:
            raise TimeoutError(f"the save of step {self.step} is not durable after {timeout} s")
        _comm.check(code, self._ranks)

    def done(self) -> bool:
        """Whether the checkpoint is durable. Does not wait. With a group, a save advances in the calls of the run, such as
        `should_save`.

        errors   the save's failure
        """
        answer = c_int()
        with self._lock:
            _library.check(_library.library().ckpt_poll(self._handle, byref(answer)))
        return answer.value != 0

    poll = done

    @property
    def name(self) -> str:
        """The checkpoint's name in the run's directory, such as step-000001000.g7; "" until it is durable."""
        with self._lock:
            name: bytes = _library.library().ckpt_pending_name(self._handle)
        return name.decode("utf-8", "surrogateescape")

    @property
    def seconds(self) -> Dict[str, float]:
        """Seconds of the save's phases, known when it is durable: "plan" the layout, "stage" (copy, and wait for staging memory),
        "write" (hash, write and sync, in the background) and "commit" (manifest, sync, rename).
        """
        stats = _library.StatsStruct(size=ctypes.sizeof(_library.StatsStruct))
        with self._lock:
            _library.check(_library.library().ckpt_pending_stats(self._handle, byref(stats)))
        return {part: getattr(stats, f"{part}_s") for part in ("plan", "stage", "write", "commit")}

    def __repr__(self) -> str:
        return f"<ckpt.Pending step {self.step} {self.name or 'not durable yet'}>"


class _Handle:
    """A ckpt_run, None once it is closed; and the lock of all calls for it."""

    def __init__(self, value: int) -> None:
        self.lock = threading.RLock()
        self.value: Optional[int] = value

    def take(self) -> Optional[int]:
        value, self.value = self.value, None
        return value


def _close(handle: _Handle, pid: int, ranks: Optional[_comm.Ranks]) -> None:
    """For runs that were not closed: waits for their saves, also at the end of the interpreter, when threads may still be in a call.
    `ranks` lives until then.
    """
    if os.getpid() != pid:
        return  # of a forked child: the library's own report would be of another process
    with handle.lock:
        run = handle.take()
        code = 0 if run is None else _library.library().ckpt_run_close(run)
    if code != 0:
        try:
            _library.check(code)
        except errors.Error as reason:
            warnings.warn(f"a run that was not closed: {reason}", RuntimeWarning, stacklevel=2)


class Run:
    """The checkpoints of one training run, of one process or of the ranks of a torch.distributed job.

        with ckpt.Run("runs/exp7", every=1000) as run:
            if run.latest is not None:
                run.load(into=state)
            for step in range(first, last):
                ...
                if run.should_save(step):
                    run.save(step, state, metrics={"loss": loss})

    Leaving the block waits for saves in flight and raises the failures that were not reported yet. An exception in the
    block leaves complete checkpoints only.

    With `group`, all its ranks create the run and call its methods in the same order (except Pending.done, and properties
    other than latest). Each gives the tree that it holds: DTensors and ShardedTensors are stored whole, replicas once; other
    arrays and values that several ranks have under one name must be equal, and one rank's are stored. A call that fails on
    one rank raises on all. A rank that leaves the block by an exception ends the run on all ranks, with its reason.
    """

    def __init__(self, path: PathLike, *, every: Optional[int] = None, every_seconds: Optional[float] = None,
                 staging: int = 0, keep: _retention.Keep = None, catch_signals: bool = False, group: Any = None,
                 patience: float = 300) -> None:
        """Opens the run's directory; creates it if it does not exist, and removes what a crashed save left in it.

        path           of the run's directory
        every          should_save: save every N steps
        every_seconds  should_save: save when this many seconds have passed since the last save
        staging        bytes of memory that saves are copied to, so that training continues while they are written. 0:
                       `save` returns when the checkpoint is durable
        keep           which checkpoints to keep; the others are moved to the trash by `ckpt prune --apply`, which runs in the
                       background after a newer save is durable. A number: the newest ones. Rules by the names of ckpt.toml:
                       {"last": 3, "every_steps": 5000, "best": {"metric": "loss", "n": 2}}, or as text: "last=3,6h*8".
                       True: the policy of the store. None: delete nothing. With a group, rank 0's argument counts
        catch_signals  SIGTERM and SIGUSR1 set stop_requested, until the run is closed
        group          a process group of torch.distributed, or "world": its ranks save together. Close the run before
                       destroy_process_group
        patience       seconds to wait for a rank of the group before it counts as lost
        errors         Usage: a negative number, an unknown rule of `keep`; NotFound, IOFailure: the directory cannot be
                       created
        """
        self.path = os.fspath(path)
        self._ranks = None if group is None else _comm.Ranks(None if group == "world" else group, patience)

        def checked() -> str:
            for name, value in (("every", every), ("every_seconds", every_seconds), ("staging", staging)):
                if value is not None and value < 0:
                    raise errors.usage(f"{name} is {value}, less than 0")
            return str(_library.absolute(self.path))
        directory = self._agree(checked)
        if self._ranks is not None and len(paths := set(self._ranks.gathered(directory))) > 1:
            raise errors.usage("the ranks open different runs: " + ", ".join(sorted(paths)))
        self._divider = None if self._ranks is None else _shares.Divider(self._ranks)
        self._planner = _saving.Planner(is_group=self._ranks is not None)
        options = _library.OptionsStruct(
            comm=None if self._ranks is None else self._ranks.table, patience_ms=int(patience * 1000),
            size=ctypes.sizeof(_library.OptionsStruct), staging_memory=staging, every_steps=every or 0,
            every_seconds=every_seconds or 0, catch_signals=int(catch_signals))
        handle = c_void_p()
        _comm.call(self._ranks, _library.library().ckpt_run_open, _library.text(directory), byref(options), byref(handle))
        assert handle.value is not None
        self._handle = _Handle(handle.value)
        self._lock = self._handle.lock
        self._last: Optional[Pending] = None  # the last save: what was begun earlier is durable earlier
        self._retention: Optional[_retention.Retention] = None
        self._unpruned: List[Pending] = []  # the rules are applied when one of these saves is durable
        self._finalizer = weakref.finalize(self, _close, self._handle, os.getpid(), self._ranks)
        try:
            self._retention = self._agree(lambda: self._rules(directory, keep))
        except BaseException:
            self.close()
            raise

    def save(self, step: int, tree: Any, *, metrics: Optional[Mapping[str, float]] = None,
             meta: Optional[Mapping[str, str]] = None, wait: bool = False) -> Pending:
        """Saves a tree of dict, list and tuple with torch tensors, numpy arrays, jax arrays and plain values (int, float,
        bool, str, None). An array that occurs twice is stored once.

        Returns when everything was copied (with `staging`) or is durable (without). Until then, no thread may change the
        tree or its arrays; afterwards the caller may. With a group and `staging`, the save becomes durable in a later call of
        the run: call should_save at every step.

        step     of training, 0 to 2^63 - 1
        tree     keys are text without null characters, or integers. Arrays may have any shape, strides and device
        metrics  numbers by name, stored with the checkpoint; `keep` finds the best checkpoints by them
        meta     texts by name, stored with the checkpoint
        wait     wait until it is durable in any case
        errors   Unsupported: objects that cannot be stored, named by path, before anything is written; Usage: the run is
                 closed; NoSpace, IOFailure: older checkpoints stay as they are. With `staging`, the last two come from the
                 Pending
        """
        step, content = self._content(step, tree)
        with self._lock:
            save = c_void_p()
            _comm.call(self._ranks, _library.library().ckpt_begin, self._open(), step, byref(save))

            def fill() -> List[Any]:
                _saving.describe(save, meta or {}, metrics or {})
                return _saving.add(save, content, self._ranks is None or self._ranks.rank == 0)

            try:
                owners = self._agree(fill)
            except BaseException:
                _library.library().ckpt_save_drop(save)
                raise
            pending = c_void_p()
            _comm.call(self._ranks, _library.library().ckpt_commit, save, byref(pending))
            del owners, content  # the arrays had to live until here
        assert pending.value is not None
        self._last = made = Pending(self._lock, pending.value, step, self._ranks)
        if self._retention is not None:
            self._unpruned.append(made)
        if wait:
            made.wait()
        self._retain()
        return made

    def load(self, step: Union[int, str] = "latest", into: Any = None, *, strict: bool = True) -> LoadReport:
        """Loads a checkpoint into the arrays of a tree, or into a new tree. Waits for saves in flight first.

        step     "latest": the newest checkpoint that verifies; damaged ones are skipped. Or the number of a step, to go
                 back: the first save of this job then begins a new series, which supersedes the later checkpoints; once the
                 job has saved, only a save that is not of a later step than its last one (a load may be a mere look). Of
                 several saves of a step the newest counts, superseded or not. A load that fails changes nothing of this.
                 `ckpt.open` only looks
        into     arrays are filled in place; plain values are replaced in its dicts and lists, and jax arrays by new ones with
                 the same sharding: a jax.ShapeDtypeStruct says it too. None: a new tree as it was saved, in the report,
                 with jax arrays on the default device
        strict   False: names that only the checkpoint or only the tree has are not an error; the report lists them. In a group, a
                 name that another rank's tree has is none that only the checkpoint has
        returns  what was loaded; `.tree` is `into`, or the new tree, whose arrays belong to the caller
        errors   NotFound: no such checkpoint, or a name that it lacks; Usage: a shape or dtype that differs. Nothing was
                 changed then. Corrupt, IOFailure: values of arrays are undefined
        """
        self._settle()
        with self._lock:
            wanted = self._agree(lambda: None if step == "latest" else _number_of(step))
            with self._usable(wanted) as checkpoint:
                loading = self._loading(checkpoint, into, strict)
                report = loading.read_of_run(self._open(), wanted, self._ranks)
            if report.step == checkpoint.info.step:
                return loading.finish(report)
            # The newest is damaged: its values and names may differ.
            with self._usable(report.step) as older:
                loading = self._loading(older, into, strict)
                return self._agree(lambda: loading.read(skipped=report.skipped))

    @property
    def latest(self) -> Optional[int]:
        """The step of the newest checkpoint whose files are complete; None without one. Waits for saves in flight. With a group:
        collective.
        """
        self._settle()
        with self._lock:
            try:
                with self._usable(None) as checkpoint:
                    return checkpoint.info.step
            except errors.NotFound:
                return None

    def should_save(self, step: int) -> bool:
        """Whether this step should be saved, by `every`, `every_seconds`, or because a stop was requested. Call it every
        step. With a group: collective, with one answer on all ranks.

        step   of training
        """
        answer = c_int()
        with self._lock:
            _comm.call(self._ranks, _library.library().ckpt_should_save, self._open(), _number_of(step), byref(answer))
        self._retain()
        return answer.value != 0

    @property
    def stop_requested(self) -> bool:
        """Whether the process was asked to stop by SIGTERM or SIGUSR1 (see `catch_signals`). With a group: whether a rank was, once
        all know it by `should_save`.
        """
        with self._lock:
            return bool(_library.library().ckpt_stop_requested(self._open()))

    def close(self) -> None:
        """Waits for saves in flight, and for `keep`. A second call does nothing.

        errors   the worst failure of a save that was not reported yet; the run is closed nevertheless
        """
        with self._lock:
            if self._finalizer.detach() is not None:
                handle, self._last = self._handle.take(), None
                _comm.call(self._ranks, _library.library().ckpt_run_close, handle)
                self._retain(is_durable=True)
        if self._retention is not None:
            self._retention.finish()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Optional[type], value: object = None, *rest: object) -> None:
        if kind is not None and self._ranks is not None:
            self._ranks.leave(f"{kind.__name__}: {value}")
        try:
            self.close()
        except errors.Error as reason:
            if kind is None:
                raise
            warnings.warn(f"closing {self.path}: {reason}", RuntimeWarning, stacklevel=2)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a ckpt.Run cannot be copied or sent")

    def __repr__(self) -> str:
        return f"<ckpt.Run {self.path}{'' if self._handle.value else ', closed'}>"

    def _agree(self, work: Callable[[], T]) -> T:
        """Runs `work`; with a group, on all ranks with one outcome."""
        return work() if self._ranks is None else self._ranks.agree(work)

    def _content(self, step: int, tree: Any) -> Tuple[int, _saving.Content]:
        """Collective. What a save adds on this rank; and its step, checked."""
        if self._divider is None:
            return _number_of(step), self._planner.content(tree)
        number, local = self._agree(lambda: (_number_of(step), self._planner.local(tree)))
        with self._lock:
            return number, local.content(self._divider.divide(number, local.description, local.values))

    def _loading(self, checkpoint: Checkpoint, into: Any, strict: bool) -> Loading:
        """Collective. Checked; changes nothing."""
        loading = self._agree(lambda: Loading(checkpoint, into))
        loading.check(strict, self._ranks)
        return loading

    def _open(self) -> int:
        if self._handle.value is None:
            raise errors.usage(f"{self.path}: the run is closed")
        return self._handle.value

    def _rules(self, directory: str, keep: _retention.Keep) -> Optional[_retention.Retention]:
        """On the rank that applies them."""
        if keep is None or keep is False or (self._ranks is not None and self._ranks.rank != 0):
            return None
        return _retention.Retention(directory, keep)

    def _retain(self, is_durable: bool = False) -> None:
        """Applies the rules of `keep` if a save has become durable. Does not wait.

        is_durable   all are
        """
        if self._retention is None:
            return
        durable = len(self._unpruned)  # saves become durable in their order; one that failed never does
        while durable and not (is_durable or self._unpruned[durable - 1].name):
            durable -= 1
        if durable:
            del self._unpruned[:durable]
            self._retention.saved()
        else:
            self._retention.go_on()

    def _settle(self) -> None:
        last, self._last = self._last, None
        if last is not None and self._handle.value is not None and not last.name:
            last.wait()

    def _usable(self, step: Optional[int]) -> Checkpoint:
        """The last save of a step, or the newest checkpoint. Collective."""
        handle, library = c_void_p(), _library.library()
        if step is None:
            _comm.call(self._ranks, library.ckpt_latest_usable, self._open(), byref(handle))
        else:
            _comm.call(self._ranks, library.ckpt_step_usable, self._open(), step, byref(handle))
        assert handle.value is not None
        return Checkpoint(handle.value)


def _number_of(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise errors.usage(f"step {step!r} is not a whole number") from None
    if not 0 <= number < 1 << 63:
        raise errors.usage(f"step {number} is not between 0 and 2^63 - 1")
    return number
