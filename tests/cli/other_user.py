"""For cases that root runs in a store of another user."""
import os
import shutil
import subprocess
import sys

OTHER = 65534  # an unprivileged user
AS_OTHER = ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups")


def own(path):
    for p in (path, *path.rglob("*")):
        os.lchown(p, OTHER, OTHER)


def make_store(sh):
    """An empty one of that user, which reaches it."""
    sh.directory.chmod(0o755)
    sh.path("store").mkdir()
    os.chown(sh.path("store"), OTHER, OTHER)


def reason_to_skip():
    if os.geteuid() != 0:
        return "only root can act in another user's store"
    if shutil.which("setpriv") is None:
        return "no setpriv"
    seen = subprocess.run([*AS_OTHER, "test", "-x", sys.argv[sys.argv.index("--ckpt") + 1]])
    return "another user cannot run the program where it was built" if seen.returncode else ""
