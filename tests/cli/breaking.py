"""Breaks a command at one system call: it fails once with an error of the system, or the program is killed there.
For break_*.py."""
import re
import shutil
import sys

# call -> the errors that it fails with
CALLS = {"openat": ["EIO", "ENOSPC"], "mkdir": ["ENOSPC"], "mkdirat": ["ENOSPC"], "fallocate": ["ENOSPC"],
         "write": ["EIO"], "pwrite64": ["EIO", "ENOSPC"], "pread64": ["EIO"], "io_uring_enter": ["EIO"],
         "ftruncate": ["EIO"], "fdatasync": ["EIO"], "fsync": ["EIO"], "rename": ["EIO"], "renameat2": ["EIO"],
         "unlink": ["EIO"], "unlinkat": ["EIO"], "rmdir": ["EIO"], "flock": ["EIO"], "getdents64": ["EIO"]}
SKIPPED = 77


def strace(log, call, how, when):
    """The words that run a command with its `when`-th call of a kind broken."""
    return ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:{how}:when={when}"]


def injected(log):
    return log.exists() and ("INJECTED" in log.read_text(errors="replace"))


def check(condition, text, *runs):
    if not condition:
        for run in runs:
            print(run.args, run.returncode, run.stdout, run.stderr, sep="\n  ")
        sys.exit(f"FAILED: {text}")


def first_call(log, call, run):
    """The number of calls that the loader makes before the program begins: libraries that cannot be opened are no concern
    of ours. `run` runs the command with words before it."""
    if call not in ("openat", "pread64"):
        return 1
    run(["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-y"])
    count = 0
    lines = log.read_text(errors="replace").splitlines()
    main = lines[0].split()[0] if lines else ""
    for line in lines:
        if line.split()[0] != main:
            continue
        if not re.search(r"ld\.so|\.so(\.\d+)*[\">]", line):
            break
        count += 1
    return count + 1


def why_skipped(log, run):
    """Why nothing can be broken here; "" where it can."""
    if shutil.which("strace") is None:
        return "skipped: strace is missing"
    probe = run(strace(log, "mkdir", "error=EIO", 9999))
    if probe.returncode == 0:
        return ""
    return "skipped: strace may not trace here" if "ptrace" in probe.stderr else f"skipped: it does not work here: {probe.stderr}"
