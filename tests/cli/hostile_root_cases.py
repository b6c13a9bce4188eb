"""Root deletes and repairs in a store of another user, who meanwhile replaces directories by links: nothing outside the
store is changed, and the store still belongs to that user. Only as root; skipped otherwise."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

from other_user import AS_OTHER, OTHER, make_store, own, reason_to_skip
from runner import check, main

DECOYS = 2000


def store(sh, steps=(1, 2, 3, 4)):
    """A store of another user, which that user filled."""
    make_store(sh)
    for step in steps:
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "r", "--step", str(step),
               launcher=AS_OTHER)
    victim = sh.path("victim")
    victim.mkdir(mode=0o700)
    (victim / "precious").write_text("precious")
    return sh.path("store/r"), victim


def decoys(folder):
    folder.mkdir(parents=True)
    for n in range(DECOYS):
        (folder / f"a{n:05}").touch()
        (folder / f"zz{n:05}").touch()
    (folder / "precious").touch()
    own(folder)


def lead_away(folder, victim, watched):
    """Waits until one of the watched names is removed, then replaces the folder by a link. The order of removal is
    unknown, so the wanted name is between two sets of decoys."""
    while not os.path.isdir(folder):
        pass
    while os.path.isdir(folder) and all(os.path.exists(folder / name) for name in watched):
        pass
    os.rename(folder, f"{folder}-away")
    os.symlink(victim, folder)


@contextlib.contextmanager
def race(folder, victim):
    """Another user does this while the body runs. Gives a list, which then holds whether he was in time."""
    watched = [f"{letter}{n:05}" for letter in ("a", "zz") for n in (0, DECOYS - 1)]
    in_time = []
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            lead_away(folder, victim, watched)
        except OSError:
            os._exit(1)
        os._exit(0)
    try:
        yield in_time
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        in_time.append(os.waitpid(child, 0)[1] == 0)


def case_a_folder_that_is_swapped_while_root_purges_it_leads_nowhere(sh):
    _, victim = store(sh)
    newer = sh.path("store/f/checkpoint-2000")
    shutil.copytree(sh.checkpoint("safetensors/single"), newer)
    decoys(newer / "D")
    own(newer.parent)
    for attempt in range(10):
        older = sh.path("store/f/checkpoint-1000")  # another tool's: all that is in it goes
        shutil.copytree(sh.checkpoint("safetensors/single"), older)
        decoys(older / "D")
        own(older)
        for file in sh.path("store/f").rglob("*"):
            os.utime(file, (1, 1))  # long finished
        # It is renamed into the trash first: the race is about its place there.
        with race(sh.path("store/.ckpt/trash/f/checkpoint-1000/D"), victim) as in_time:
            done = subprocess.run([sh.program, "prune", "f", "--store", "store", "--keep-last", "1", "--max-delete", "100%", "--apply",
                                   "-y", "--grace", "0"], cwd=sh.directory, env=sh.environment(), timeout=300, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True)
        check((victim / "precious").read_text() == "precious", f"the victim lost a file\n{done.stdout}{done.stderr}")
        check(done.returncode in (0, 3), f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        check(not older.exists(), f"not deleted: the race was about nothing\n{done.stdout}{done.stderr}")
        if in_time[0]:
            return
        shutil.rmtree(sh.path("store/.ckpt/trash"), ignore_errors=True)
    print("skipped: the other user was too late ten times")


def case_links_lead_root_nowhere(sh):
    run, victim = store(sh)
    for name in ("marks", "index", "shards"):
        folder = run / "step-000000002.g2" / name
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.symlink_to(victim)
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns="*"\nkeep={last=1}\ndrop_optimizer_after="1s"\n[trash]\npurge_early_when_free_below = "0%"\nrecycle=2\n')
    own(sh.path("store"))
    words = (("verify", "--all", "--store", "store"), ("pin", "r@2", "--store", "store"), ("repair", "store", "--apply"),
             ("prune", "--store", "store", "--apply", "-y", "--max-delete", "100%", "--grace", "0"))
    for verb in words:
        subprocess.run([sh.program, *verb], cwd=sh.directory, env=sh.environment(), timeout=300, stdin=subprocess.DEVNULL,
                       capture_output=True)
        check([p.name for p in victim.iterdir()] == ["precious"], f"{verb}: {list(victim.iterdir())}")


def case_the_store_stays_its_owners(sh):
    store(sh)
    sh.run("list", "--store", "store")
    sh.run("prune", "--store", "store", "--keep-last", "2", "--max-delete", "100%", "--apply", "-y")
    sh.run("verify", "--all", "--store", "store")
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "r", "--step", "5")
    others = [str(p) for p in sh.path("store").rglob("*") if p.lstat().st_uid != OTHER or p.lstat().st_gid != OTHER]
    check(not others, f"not the owner's any more: {others[:5]}")
    sh.run("undelete", "r@2", "--store", "store", launcher=AS_OTHER)
    sh.run("list", "--store", "store", launcher=AS_OTHER, not_err="readonly")
    sh.run("pin", "r@5", "--store", "store", launcher=AS_OTHER)
    sh.run("prune", "--store", "store", "--keep-last", "1", "--max-delete", "100%", "--apply", "-y", launcher=AS_OTHER)


def case_a_groups_store_stays_the_groups(sh):
    """Two users of one group, each with umask 022."""
    make_store(sh)
    sh.path("store").chmod(0o2775)
    second = ("setpriv", "--reuid=65533", f"--regid={OTHER}", "--clear-groups")
    before = os.umask(0o022)
    try:
        for step, who in ((1, AS_OTHER), (2, second), (3, AS_OTHER)):
            sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "r", "--step", str(step),
                   launcher=who)
        words = ("--store", "store", "--max-delete", "100%", "--apply", "-y")
        sh.run("prune", *words, "--keep-last", "2", launcher=AS_OTHER)
        sh.run("prune", *words, "--keep-last", "1", launcher=second)
        sh.run("undelete", "r@1", "--store", "store", launcher=second)
        sh.run("pin", "r@1", "--store", "store", launcher=second)
    finally:
        os.umask(before)


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(77)
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
