"""ckpt list --watch and ckpt status --watch: redrawn in place on a terminal, refused elsewhere."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from prune_cases import store
from runner import check, main


def watch(sh, *words, rows=0, frames=2, end=signal.SIGINT, between=lambda: None, env=None):
    """Ends `ckpt WORDS` after so many frames; returns (exit code, terminal output)."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
    process = subprocess.Popen([sh.program, *map(os.fspath, words)], cwd=sh.directory, stdin=subprocess.DEVNULL, stdout=far,
                               stderr=far, env=sh.environment(env))
    os.close(far)
    got, stop, begun = b"", time.monotonic() + 60, time.monotonic()
    asked = False
    while time.monotonic() < stop:
        try:
            piece = os.read(near, 65536) if select.select([near], [], [], 0.1)[0] else None
        except OSError:  # the other end is closed
            break
        got += piece or b""
        shown = got.count(b"\x1b[?7h")
        if shown == 1 and frames > 1:
            between()
            between = lambda: None
        if shown >= frames and not asked:
            process.send_signal(end)
            asked = True
    os.close(near)
    return process.wait(timeout=60), got.decode(errors="replace"), time.monotonic() - begun


def frames_of(text):
    return [re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", part) for part in text.split("\x1b[?7h")[:-1]]


def case_a_watch_redraws_in_place_until_ctrl_c(sh):
    store(sh)
    code, text, seconds = watch(sh, "list", "store", "--watch", "1", between=lambda: sh.run("pin", "llama@1", "--store", "store"))
    first, second, *_ = frames_of(text)
    check(code == 0, f"exit {code}\n{text}")
    check(text.startswith("\x1b[2J\x1b[H") and text.count("\x1b[2J") == 1 and text.count("\x1b[H") == 2, "not in place\n" + repr(text))
    check("PIN" not in first and "PIN" in second and "6 checkpoints" in first and "every 1 s · Ctrl-C ends" in first, second)
    check(1 <= seconds < 20, f"{seconds} s")
    code, text, _ = watch(sh, "status", "--watch", "--store", "store", frames=1)
    check(code == 0 and "every 5 s" in text and "llama" in text, text)
    code, text, _ = watch(sh, "status", "--watch=2s", "--store", "store", frames=1, end=signal.SIGTERM)
    check(code == 143 and "every 2 s" in text, f"{code} {text}")


def case_a_small_terminal_shows_the_first_lines(sh):
    store(sh, range(1, 30))
    _, text, _ = watch(sh, "list", "store", "--watch", "1", rows=12, frames=1)
    lines = text.split("\r\n")[:-1]
    check(len(lines) == 11 and "every 1 s" in lines[0], repr(text))


def case_a_watch_ends_with_the_first_failure(sh):
    store(sh)
    code, text, _ = watch(sh, "list", "store", "--watch", "1", between=lambda: os.rename(sh.path("store"), sh.path("gone")))
    check(code == 10 and re.search("error:.* store: no such directory", text) and len(frames_of(text)) == 1, f"{code}\n{text}")


def case_a_watch_ends_with_its_terminal(sh):
    store(sh)
    near, far = pty.openpty()
    process = subprocess.Popen([sh.program, "list", "store", "--watch", "1"], cwd=sh.directory, stdin=subprocess.DEVNULL, stdout=far,
                               stderr=subprocess.DEVNULL, env=sh.environment(), start_new_session=True)  # no SIGHUP reaches it
    os.close(far)
    select.select([near], [], [], 60)
    os.close(near)
    check(process.wait(timeout=30) == 16, f"exit {process.returncode}")


def case_a_watch_is_refused_where_nobody_looks(sh):
    store(sh)
    for verb in ("list", "status"):
        sh.run(verb, "store", "--watch", code=2, err=r"^error: --watch needs a terminal")
        for other in ("--json", "-q"):
            sh.run(verb, "store", "--watch", other, code=2)
        code, text = sh.terminal(verb, "store", "--watch", "-q")
        check(code == 2 and "--watch and --quiet cannot be used together" in text, text)
        check(sh.document(verb, "store", "--watch", "3", code=2)["errors"][0]["message"] == "--watch and --json cannot be used together", verb)
    for other in ("--csv", "--tsv"):
        code, text = sh.terminal("list", "store", "--watch", other)
        check(code == 2 and f"--watch and {other} cannot be used together" in text, text)
    for wrong in ("0", "2x", "3d"):
        sh.run("list", "store", "--watch", wrong, code=2, err="--watch: ")
    sh.run("list", "--watch", "store", code=2, err="--watch needs a terminal")  # a store, not a time
    sh.run("ls", "store", "--watch", code=2, err="'--watch' is an option of 'ckpt list'")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
