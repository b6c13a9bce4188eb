"""Runs ckpt as a user does and checks exit code, standard output and standard error.

A case file defines functions named `case_*` with one parameter, the Shell. `main` runs those whose names begin with a
prefix, or all, each in a separate empty directory.
"""
import argparse
import functools
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import traceback

from schema import Schemas


class Skipped(Exception):
    """A case that this machine cannot run; the text is the reason."""


@functools.cache
def is_sanitized(program):
    data = pathlib.Path(program).read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


class Result:
    def __init__(self, words, code, out, err):
        self.words, self.code, self.out, self.err = words, code, out, err

    def __str__(self):
        return f"$ ckpt {' '.join(map(str, self.words))}\n[exit {self.code}]\n--- stdout\n{self.out}--- stderr\n{self.err}---"


class Shell:
    """One empty directory, the program, and the golden checkpoints."""

    def __init__(self, options, directory):
        self.program, self.golden = os.path.abspath(options.ckpt), pathlib.Path(options.golden).absolute()
        self.directory = pathlib.Path(directory)
        self.schemas, self.speed_limit_ms = Schemas(options.schemas), options.speed_limit_ms
        self.mpirun, self.build, self.pages = options.mpirun, options.build, options.pages
        self.examples = options.examples
        self.mpi_environment = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # which containers forbid
            "ASAN_OPTIONS": "detect_leaks=0"}  # OpenMPI unloads parts of itself, so their leaks have no symbol names

    def environment(self, extra=None):
        kept = {k: v for k, v in os.environ.items() if not re.match(r"CKPT_|OMPI_COMM|PMI|SLURM|NO_COLOR|CLICOLOR|COLUMNS", k)}
        return {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm", **(extra or {})}

    def needs_free(self, mebibytes):
        """Skips the case if its files would not fit."""
        free = shutil.disk_usage(self.directory).free >> 20
        if free < mebibytes:
            raise Skipped(f"needs {mebibytes} MiB of free space in {tempfile.gettempdir()}, which has {free}")

    def measures_memory(self):
        """Skips the case where memory that is measured, or processes that are counted, are not the program's alone."""
        if is_sanitized(self.program):
            raise Skipped("a sanitizer takes memory and threads of its own")

    def run(self, *words, code=0, out=(), err=(), not_out=(), not_err=(), env=None, launcher=(), id=None):
        """Runs `ckpt WORDS`; `out` and `err` are patterns that must be found (one, or several); `code` may be several. With `id` ("E1503") it runs
        with -v, and this must be the error's id."""
        if id:
            env = {"CKPT_VERBOSE": "1", **(env or {})}
            err = [rf"^exit {code} · ckpt explain {id}$", "^error: ", *([err] if isinstance(err, str) else err)]
        words = [os.fspath(w) for w in words]
        run = subprocess.run([*launcher, self.program, *words], cwd=self.directory, env=self.environment(env), timeout=600,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        result = Result([w.encode(errors="replace").decode() for w in words], run.returncode,
                        run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))
        check(result.code in (code if isinstance(code, tuple) else (code,)), f"exit {result.code}, not {code}", result)
        check("\r" not in result.out + result.err, "a carriage return outside a terminal", result)
        check("\x1b" not in result.out + result.err, "an escape sequence outside a terminal", result)
        for patterns, text, wanted in ((out, result.out, True), (err, result.err, True), (not_out, result.out, False),
                                       (not_err, result.err, False)):
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                found = re.search(pattern, text, re.M) is not None
                check(found == wanted, f"{'no ' if wanted else ''}{pattern!r} in the output", result)
        return result

    def document(self, *words, code=0, schema=None, env=None, launcher=()):
        """Runs `ckpt WORDS --json`: one document of the right schema on standard output, nothing on standard error."""
        result = self.run(*words, "--json", code=code, env=env, launcher=launcher)
        check(result.err == "", "standard error is not empty under --json", result)
        check(result.out.endswith("}\n"), "no document", result)
        document = json.loads(result.out)  # fails on a second document or on anything beside the first
        findings = self.schemas.findings(schema or str(words[0]), document)
        check(not findings, "\n".join(findings), result)
        check(document["exit_code"] == code and document["ok"] == (code == 0), "the document tells another exit code", result)
        check(bool(document["errors"]) == (code not in (0, 1, 3)), "errors do not go with the exit code", result)
        return document

    def terminal(self, *words, env=None, columns=100):
        """Runs `ckpt WORDS` with a terminal as standard output and error; returns (exit code, terminal output)."""
        main, side = pty.openpty()
        process = subprocess.Popen([self.program, *map(os.fspath, words)], cwd=self.directory, stdin=subprocess.DEVNULL,
                                   stdout=side, stderr=side, env=self.environment({"COLUMNS": str(columns), **(env or {})}))
        os.close(side)
        got = b""
        while True:
            ready, _, _ = select.select([main], [], [], 60)
            try:
                piece = os.read(main, 65536) if ready else b""
            except OSError:  # the side end is closed
                piece = b""
            if not piece:
                break
            got += piece
        os.close(main)
        return process.wait(timeout=120), got.decode(errors="replace")

    def path(self, name):
        return self.directory / name

    def checkpoint(self, name):
        """The path of a golden checkpoint, such as deepspeed/zero2_bf16_dp4."""
        return self.golden / name / "ckpt"


def check(condition, message, result=""):
    if not condition:
        raise AssertionError(f"{message}\n{result}")


def main(cases):
    parser = argparse.ArgumentParser()
    for name in ("ckpt", "golden", "schemas"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mpirun", default="")
    parser.add_argument("--build", default="", help="the build folder, for cmake --install")
    parser.add_argument("--examples", default="", help="the folder of the examples' programs")
    parser.add_argument("--pages", action="store_true", help="man pages are built")
    parser.add_argument("--speed-limit-ms", type=float, default=0, help="0: not measured against a limit")
    parser.add_argument("--only", default="", help="run the cases whose names begin with this")
    options = parser.parse_args()
    failed = ran = skipped = 0
    for name, case in cases.items():
        if not name.startswith("case_" + options.only):
            continue
        ran += 1
        directory = tempfile.mkdtemp(prefix="ckpt-cli-")
        deep = os.path.join(directory, "a", "b", "c", "d")  # no store is found above it, whatever is next to `directory`
        os.makedirs(deep)
        for above in range(5):  # as mkdtemp leaves a directory; other users may pass through those above it
            os.chmod(os.path.normpath(os.path.join(deep, *[".."] * above)), 0o711 if above else 0o700)
        try:
            case(Shell(options, deep))
            print(f"ok      {name}")
        except Skipped as reason:
            skipped += 1
            print(f"skip    {name}: {reason}")
        except Exception as error:
            failed += 1
            where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            print(f"FAILED  {name}\n{' '.join(where[1:])}\n{type(error).__name__}: {error}\n")
        finally:
            subprocess.run(["rm", "-rf", directory], check=False)  # deeper than shutil supports
    print(f"{ran} cases, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not ran else 0)
