"""Deletes the checkpoints of a run that no rule keeps: `ckpt prune --apply` in the background, after a newer save is durable."""

from __future__ import annotations

import operator
import os
import re
import shlex
import subprocess
import tempfile
import warnings
from typing import IO, Any, Dict, List, Mapping, Optional, Tuple, Union, cast

from . import _program, commands, errors

Keep = Union[None, bool, int, str, Mapping[str, Any]]

_OPTIONS = {"last": "keep_last", "first": "keep_first", "every_steps": "keep_every", "within": "keep_within",
            "hourly": "keep_hourly", "daily": "keep_daily", "weekly": "keep_weekly", "monthly": "keep_monthly",
            "yearly": "keep_yearly", "tags_any": "keep_tag", "max_size": "max_size", "min_free": "min_free",
            "grace": "grace"}
_NO_TROUBLE = (0, 3, 11)  # done; pinned or used ones stay; another process deletes in this store now


def options(keep: Keep) -> Dict[str, Any]:
    """The options of `ckpt prune` for rules, as `commands.options` takes them; none for the store's own policy.

    errors   Usage: an unknown rule, no rule at all, or no rules but another object
    """
    if keep is True:
        return {}
    if isinstance(keep, str):
        return {"keep": keep}
    if hasattr(keep, "__index__"):  # also numpy's integers
        count = operator.index(cast(int, keep))
        if count < 1:
            raise errors.usage(f"keep is {count}, less than 1")
        return {"keep_last": count}
    if not isinstance(keep, Mapping):
        raise errors.usage(f"keep is {keep!r}, not a number, a dict of rules, their text or True")
    if not keep:
        raise errors.usage("keep has no rule", hint="True stands for the policy of the store, None deletes nothing")
    made: Dict[str, Any] = {}
    for name, value in keep.items():
        if value is None or isinstance(value, bool):  # as an option it would be left out, and the policy of the store apply
            raise errors.usage(f"keep: {name} is {value!r}", hint="leave the rule out")
        if name == "best":
            made["keep_best"] = [_best(each) for each in (value if isinstance(value, list) else [value])]
        elif name in _OPTIONS:
            made[_OPTIONS[name]] = value
        else:
            raise errors.usage(f"keep: there is no rule {name!r}", hint=f"rules: best, {', '.join(_OPTIONS)}")
    return made


def _best(rule: Any) -> str:
    """{"metric": "loss", "n": 2, "lower": True} as the command takes it."""
    if not isinstance(rule, Mapping) or "metric" not in rule or set(rule) - {"metric", "n", "lower"}:
        raise errors.usage(f'keep: best is {rule!r}, not {{"metric": NAME, "n": COUNT, "lower": True}}')
    return f"{rule['metric']}:{rule.get('n', 1)}{'' if rule.get('lower', True) else ':max'}"


def _store_of(path: str) -> Tuple[str, str]:
    """The store of a run's directory and the run's name in it: the nearest parent that is a store, else the parent. Of a link,
    those of the directory that is meant: rules must never reach another run.
    """
    whole = os.path.realpath(path)
    parent = os.path.dirname(whole)
    store = parent
    while store != os.path.dirname(store):
        if os.path.isdir(os.path.join(store, ".ckpt")) or os.path.isfile(os.path.join(store, "ckpt.toml")):
            return store, os.path.relpath(whole, store)
        store = os.path.dirname(store)
    return parent, os.path.basename(whole)


class Retention:
    """The rules of one run, in the process that applies them. Never raises after it was made: a checkpoint too many must not
    end a training. Trouble is a RuntimeWarning, each kind once.
    """

    def __init__(self, path: str, keep: Keep) -> None:
        """The run's directory exists.

        errors   Usage: an unknown rule or a malformed value; Unsupported: the command is not installed
        """
        store, run = _store_of(path)
        if set(run) & set("*?[]\\"):
            raise errors.usage(f"{path}: keep: this name of a run would be a pattern of names", hint="rename the run")
        given = options(keep)
        # The guard of new policies protects what was there before this run.
        is_new = not any(name.startswith("step-") for name in os.listdir(path))
        commands.run("prune", run, store=store, **given)  # a plan, which shows what is wrong with the rules
        program = _program.program()
        assert program is not None
        self._words = [program, "prune", "--json", "--progress=none", "--apply", *(["--yes"] if is_new else []),
                       f"--store={store}", *commands.options(given), "--", run]
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._output: Optional[IO[bytes]] = None
        self._is_due = False
        self._told: List[str] = []

    def saved(self) -> None:
        """A save is durable: the rules are applied, in the background."""
        self._is_due = True
        self.go_on()

    def go_on(self) -> None:
        """Takes the result of a command that has ended, and starts the next one. Does not wait."""
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None and self._is_due:
            self._is_due = False
            self._start()

    def finish(self) -> None:
        """Waits until the rules were applied to what was saved."""
        while self._child is not None or self._is_due:
            if self._child is not None:
                self._child.wait()
            self.go_on()

    def _start(self) -> None:
        output = tempfile.TemporaryFile()
        try:
            self._child = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
                                           start_new_session=True)
            self._output = output
        except OSError as reason:
            output.close()
            self._tell(str(reason))

    def _end(self) -> None:
        assert self._child is not None and self._output is not None
        code, output, self._child, self._output = self._child.returncode, self._output, None, None
        with output:
            output.seek(0)
            text = output.read()
        if code in _NO_TROUBLE:
            return
        try:
            document = commands._parsed(text, b"", "prune", code)
            reason = errors.from_document((document["errors"] or [{}])[0], code)
            if "-y" in (reason.hint or "").split():
                words = [word for word in self._words if word not in ("--json", "--progress=none", "--yes")]
                reason.hint = f"if the rules are right, run once: {shlex.join([*words[:2], '--yes', *words[2:]])}"
            self._tell(str(reason))
        except errors.Error as reason:
            self._tell(str(reason))

    def _tell(self, trouble: str) -> None:
        kind = re.sub("[0-9]+", "", trouble)
        if kind not in self._told:
            self._told.append(kind)
            warnings.warn(f"old checkpoints were not deleted: {trouble}", RuntimeWarning, stacklevel=4)
