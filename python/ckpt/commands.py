"""The commands of `ckpt` as functions: each runs the command with --json and returns the data of its document.

Keyword arguments are the command's options: keep_last=3 is --keep-last=3, True a flag, a list one option for each item; None
and False are left out. Ctrl-C stops the command and waits for its end. All of them take `progress`:

progress   True: a bar, if tqdm is installed. A function: called in this thread about twice a second with a document
           (schemas/progress.schema.json): `phase`, `done_bytes`, `total_bytes`, `eta_s` ...; if it raises, the command is
           stopped as by Ctrl-C and the exception is passed on. A stopped conversion keeps what it has written beside its
           target: the same call continues there, and starts over with restart=True
errors     of each: those of the command; KeyboardInterrupt. The answer "no" (exit code 1) is a result that is not ok,
           "partly done" (3) also a Python warning
"""

from __future__ import annotations

import html
import importlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _program, errors

PathLike = Union[str, "os.PathLike[str]"]
Progress = Union[bool, Callable[[Mapping[str, Any]], object]]
_PROGRESS = b'{"schema":"ckpt.progress/'
_STOPPED = (130, 143)  # by SIGINT, SIGTERM
_MOST_ROWS = 50  # of a table in a notebook


class Result(Mapping[str, Any]):
    """The data of a command's JSON document (schemas/VERB.schema.json), by attribute or by key.

    ok         whether the exit code is 0: for `verify`, that nothing is damaged
    exit_code  of the command
    warnings   documents with a `text`
    """

    def __init__(self, data: Mapping[str, Any], verb: str = "", exit_code: int = 0,
                 warnings: Sequence[Mapping[str, Any]] = ()) -> None:
        self._data = dict(data)
        self._verb = verb
        self.exit_code = exit_code
        self.ok = exit_code == 0
        self.warnings = [Result(warning) for warning in warnings]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._data:
            raise AttributeError(f"the document has no member {name!r}")
        return _shown(self._data[name])

    def __getitem__(self, name: str) -> Any:
        return _shown(self._data[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        lines = [f"  {name} = {_short(value)}" for name, value in self._data.items()]
        head = f"ckpt {self._verb}: {'ok' if self.ok else f'exit code {self.exit_code}'}" if self._verb else "Result"
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        """For notebooks: a table of the members, and one of each list of documents."""
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{_html(value)}</td></tr>" for name, value in self._data.items())
        head = html.escape(repr(self).split("\n", 1)[0])
        return f"<table><caption>{head}</caption>{rows}</table>"

    def raise_if_bad(self) -> None:
        """Does nothing if the result is ok.

        errors   Corrupt: `verify` found damage, or `diff` a difference
        """
        if self.ok:
            return
        found = self._data.get("damage") or [{}]
        raise errors.Corrupt(f"ckpt {self._verb}: {found[0].get('text', f'exit code {self.exit_code}')}",
                             id="CKPT-E100", code=self.exit_code, file=found[0].get("file"),
                             tensor=found[0].get("tensor"), offset=found[0].get("offset"))


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return Result(value)
    return [_shown(each) for each in value] if isinstance(value, list) else value


def _html(value: Any) -> str:
    """A list of documents as a table of their plain members; everything else as text."""
    if not (isinstance(value, list) and value and all(isinstance(each, dict) for each in value)):
        return html.escape(_short(value))
    names = [name for name, member in value[0].items() if not isinstance(member, (dict, list))]
    cells = ["".join(f"<td>{html.escape(_short(each.get(name)))}</td>" for name in names) for each in value[:_MOST_ROWS]]
    more = f"<tr><td>{len(value) - _MOST_ROWS} more</td></tr>" if len(value) > _MOST_ROWS else ""
    return ("<table><tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>" +
            "".join(f"<tr>{row}</tr>" for row in cells) + more + "</table>")


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 3:
        return f"[{len(value)} items]"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."


def options(given: Mapping[str, Any]) -> List[str]:
    """Keyword arguments as options: keep_last=3 is --keep-last=3, True a flag, a list one option for each item; None
    and False are left out.
    """
    words: List[str] = []
    for name, value in given.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                words.append(flag)
            elif each is not None and each is not False:
                words.append(f"{flag}={os.fspath(each) if isinstance(each, pathlib.PurePath) else each}")
    return words


class _Bar:
    """Progress as a bar of tqdm, one for each phase; nothing where tqdm is not installed."""

    def __init__(self) -> None:
        try:
            self._tqdm: Any = importlib.import_module("tqdm.auto").tqdm
        except ImportError:
            self._tqdm = None
        self._bar: Any = None
        self._phase: Optional[str] = None

    def __call__(self, at: Mapping[str, Any]) -> None:
        if self._tqdm is None:
            return
        if at["phase"] != self._phase:
            self.close()
            self._phase = at["phase"]
            self._bar = self._tqdm(total=at["total_bytes"], desc=at["phase"], unit="B", unit_scale=True, unit_divisor=1024)
        self._bar.update(at["done_bytes"] - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _finish(child: "subprocess.Popen[bytes]", report: Optional[Callable[[Mapping[str, Any]], object]]) -> Tuple[bytes, bytes]:
    """What the child printed, without its lines of progress, which `report` gets. On KeyboardInterrupt, or an exception of
    `report`, stops it with SIGINT, waits for its end, and raises again.
    """
    try:
        if report is None:
            return child.communicate()
        assert child.stdout is not None and child.stderr is not None
        document: List[bytes] = []
        reader = threading.Thread(target=lambda out=child.stdout: document.append(out.read()), daemon=True)
        reader.start()
        messages = b""
        for line in child.stderr:
            if line.startswith(_PROGRESS):
                report(json.loads(line))
            else:
                messages += line
        reader.join()
        child.wait()
        return b"".join(document), messages
    except BaseException:
        child.send_signal(signal.SIGINT)
        child.communicate()
        raise


def run(verb: str, *positional: PathLike, progress: Progress = False, **given: Any) -> Result:
    """Runs `ckpt VERB POSITIONAL... OPTIONS --json` in a process of its own.

    progress  True: a bar, if tqdm is installed. A function: is called in this thread about twice a second with a document
              (schemas/progress.schema.json): `phase`, `done_bytes`, `total_bytes`, `eta_s` ...; if it raises, the command
              is stopped as by Ctrl-C and the exception is passed on.
    errors   those of the command. Answers "no" (exit code 1) and "partly done" (3) are results; the latter is also a
             Python warning.
    """
    program = _program.program()
    if program is None:
        raise errors.unsupported("the command ckpt is not installed", hint="install the package with pip, or set CKPT")
    bar = _Bar() if progress is True else None
    report = bar or (progress if callable(progress) else None)
    words = [program, verb, "--json", f"--progress={'json' if report else 'none'}", *options(given), "--",
             *(os.fspath(word) for word in positional)]
    try:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**os.environ, "CKPT_PROGRESS_EVERY": "500ms"} if report else None,
                                 start_new_session=True)  # Ctrl-C reaches it once, through _finish
    except OSError as reason:
        raise errors.unsupported(f"the command {program} cannot be started: {reason.strerror}",
                                 hint="install the package with pip, or set CKPT") from None
    try:
        text, messages = _finish(child, report)
    finally:
        if bar is not None:
            bar.close()
    if child.returncode in _STOPPED:
        raise KeyboardInterrupt(f"ckpt {verb} was stopped")
    document = _parsed(text, messages, verb, child.returncode)
    if document["errors"] or document["data"] is None:
        first = document["errors"][0] if document["errors"] else {}
        raise errors.from_document(first, child.returncode)
    result = Result(document["data"], verb, child.returncode, document["warnings"])
    if child.returncode == 3:
        for warning in document["warnings"]:
            warnings.warn(f"ckpt {verb}: {warning.get('text')}", stacklevel=3)
    return result


def _parsed(text: bytes, messages: bytes, verb: str, code: int) -> Dict[str, Any]:
    try:
        document: Dict[str, Any] = json.loads(text.decode("utf-8"))
        return document
    except ValueError:
        said = messages.decode("utf-8", "replace").strip()
        raise errors.Error(f"ckpt {verb} ended with code {code} and without a document: {said}", code=code) from None


def convert(src: PathLike, dst: PathLike, **given: Any) -> Result:
    """Converts a checkpoint to another format or layout.

    src      a checkpoint of any format
    dst      where to write; the name or `to` selects the format. Complete, or not there, whatever happens
    given    options of `ckpt convert`: to="safetensors", only="weights", shard_size="5GB"
    errors   NotFound, Unsupported, Incomplete, Corrupt: of `src`; Usage: `dst` exists; NoSpace, IOFailure
    """
    return run("convert", src, dst, **given)


def verify(path: PathLike, **given: Any) -> Result:
    """Checks completeness and checksums. Damage is a result that is not ok, with a list `damage`: see Result.raise_if_bad.

    path     a checkpoint of any format, or a run
    given    options of `ckpt verify`
    errors   NotFound, Unsupported; IOFailure
    """
    return run("verify", path, **given)


def diff(a: PathLike, b: PathLike, **given: Any) -> Result:
    """Compares the tensors of two checkpoints of any formats bit for bit, or within rtol=0.01, atol=1e-8 as numpy.allclose.
    A difference is a result that is not ok.

    a, b     two checkpoints
    given    options of `ckpt diff`
    errors   NotFound, Unsupported, Incomplete; IOFailure
    """
    return run("diff", a, b, **given)


def stats(path: PathLike, **given: Any) -> Result:
    """Minimum, maximum, mean, standard deviation, norm, zeros, NaN and Inf of each tensor.

    path     a checkpoint of any format
    given    options of `ckpt stats`: only="weights"
    errors   NotFound, Unsupported, Incomplete, Corrupt: of `path`; IOFailure
    """
    return run("stats", path, **given)


def inspect(path: PathLike, **given: Any) -> Result:
    """What a file or directory contains: format, step, parallel sizes, tensors by dtype, bytes.

    path     a file or directory, or the name of a checkpoint in a store
    given    options of `ckpt inspect`
    errors   NotFound; Corrupt: the file is damaged; IOFailure
    """
    return run("inspect", path, **given)


def list_checkpoints(store: Optional[PathLike] = None, **given: Any) -> Result:
    """The checkpoints of a store.

    store    its directory; None: the enclosing store, or the current directory
    given    options of `ckpt list`: run="exp*", sort="size", limit=20
    errors   NotFound: no such directory; IOFailure
    """
    return run("list", *([] if store is None else [store]), **given)


def plan(checkpoint: Optional[PathLike] = None, **given: Any) -> Result:
    """How often to save, and what it costs.

    checkpoint   whose size counts; None: params="7B" says it
    given        options of `ckpt plan`: bw="2G", mtbf="50h", stall="1.9s"
    errors       Usage: a number is missing; NotFound
    """
    return run("plan", *([] if checkpoint is None else [checkpoint]), **given)


def prune(*runs: str, **given: Any) -> Result:
    """Moves the checkpoints that no rule keeps to the trash. Without apply=True, which needs yes=True too, it is only a plan.

    runs     names of runs in the store, or patterns; none: all runs
    given    options of `ckpt prune`: store="runs", keep_last=3, grace="1h"
    errors   Usage: an unknown rule; NotFound: no such run; IOFailure
    """
    return run("prune", *runs, **given)


def save(src: PathLike, **given: Any) -> Result:
    """Imports a checkpoint into a store.

    src      a checkpoint of any format
    given    options of `ckpt save`: store="runs", run="llama8b", step=1000, metric="loss=1.7"
    errors   NotFound, Unsupported, Incomplete, Corrupt: of `src`; Usage: `run` is missing, or the step is unknown; NoSpace, IOFailure
    """
    return run("save", src, **given)
