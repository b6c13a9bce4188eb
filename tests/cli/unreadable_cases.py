"""What cannot be read is never called missing, empty or well: runs, the trash and marks without permission. Only as root, which
acts as another user; skipped otherwise."""
import sys

from other_user import AS_OTHER, make_store, reason_to_skip
from runner import check, main

AT = ("--store", "store")
CLOSED_RUN = "^error: store/a: cannot list: Permission denied"


def save(sh, run, *steps):
    """Saves of the other user, whose metric loss is the step."""
    if not sh.path("store").exists():
        make_store(sh)
    for step in steps:
        sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", run, "--step", str(step), "--metric", f"loss={step}",
               launcher=AS_OTHER)


def forget(sh):
    """The catalog: it remembers what can no longer be read."""
    for file in sh.path("store/.ckpt").glob("catalog.sqlite*"):
        file.unlink()


def case_a_run_that_cannot_be_read_is_not_called_missing(sh):
    save(sh, "r", 1, 2, 3, 4)
    sh.path("store/r").chmod(0o700)
    sh.path("store/.ckpt").chmod(0o755)
    third = ("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups")
    denied = ["^error: store/r: cannot list: Permission denied"]
    for words in (("list", "--run", "r"), ("status", "--run", "r"), ("verify", "r@3"), ("inspect", "r@latest"), ("why", "r@3"), ("rm", "r@3")):
        sh.run(*words, *AT, launcher=third, code=16, err=denied)
    sh.run("list", "--run", "s", *AT, launcher=third, code=10, err="no checkpoint of a run 's'")
    for words in (("list",), ("status",)):
        sh.run(*words, *AT, launcher=third, code=3, out="^no readable checkpoints", err="store/r: cannot list: Permission denied")
    # Nor is what the index remembers of it all that there is.
    sh.run("list", *AT, launcher=AS_OTHER, out="^r +4 ")
    sh.path("store/r").chmod(0o000)
    for words in (("list",), ("list", "--run", "r"), ("status",), ("status", "--run", "r")):
        sh.run(*words, *AT, launcher=AS_OTHER, code=3, err="store/r: cannot list: Permission denied", not_err=".ckpt/trash")
    # It stops no other run's prune, and loses nothing.
    sh.path("store/r").chmod(0o700)
    save(sh, "other", 1, 2)
    sh.run("list", *AT, launcher=AS_OTHER, out="^other +2 ")
    sh.path("store/r").chmod(0o000)
    sh.run("prune", *AT, "--keep-last", "1", "--max-delete", "100%", "--purge-early-below", "0", "--apply", "-y", code=3, launcher=AS_OTHER,
           out="^1 checkpoint moved to the trash", err="store/r: cannot list: Permission denied")
    sh.path("store/r").chmod(0o700)
    check(len(list(sh.path("store/r").glob("step-*"))) == 4, "of the run that cannot be read something is gone")


def case_a_command_for_a_run_that_cannot_be_read_says_so(sh):
    for run in ("a", "b", "group/x"):
        save(sh, run, 1, 2)
    sh.run("rm", "a@1", *AT, launcher=AS_OTHER, out="^deleted a@1")
    forget(sh)
    for closed in ("a", "group"):
        sh.path(f"store/{closed}").chmod(0)
    try:
        for words in (("prune", "a", "--keep-last", "1"), ("verify", "--all", "a"), ("next-save", "a", "--every", "1h"), ("inspect", "@latest"),
                      ("pin", "a@2"), ("why", "a@2"), ("rm", "a@2")):
            sh.run(*words, *AT, launcher=AS_OTHER, code=16, err=CLOSED_RUN)
        for words in (("prune", "group/x", "--keep-last", "1"), ("verify", "--all", "group/x"), ("next-save", "group/x", "--every", "1h"),
                      ("verify", "group/x@2"), ("list", "--run", "group/x")):
            sh.run(*words, *AT, launcher=AS_OTHER, code=16, err="^error: store/group: cannot list: Permission denied")
        # Of the whole store, what can be read is done, and the exit code says that this was not all.
        for words in (("prune", "--keep-last", "1"), ("verify", "--all"), ("list",), ("status",)):
            sh.run(*words, *AT, launcher=AS_OTHER, code=3, err=["store/a: cannot list", "store/group: cannot list"])
        # Nothing is missing of what was asked for.
        sh.run("prune", "b", "--keep-last", "1", *AT, launcher=AS_OTHER, code=3, out="^b +2 +1 +1 ")  # links elsewhere are unknown
        sh.run("verify", "--all", "b", *AT, launcher=AS_OTHER, out="^2 of 2 checkpoints checked")
        sh.run("list", "--run", "b", *AT, launcher=AS_OTHER, out="^b +2 ")
        sh.run("next-save", "new", "--every", "1h", *AT, launcher=AS_OTHER, out="^due ")
    finally:
        for closed in ("a", "group"):
            sh.path(f"store/{closed}").chmod(0o755)


def case_the_folder_of_rescued_files_in_a_volumes_root_is_no_run(sh):
    save(sh, "a", 1, 2)
    sh.path("store/lost+found").mkdir(mode=0o700)
    for words in (("list",), ("status",), ("prune", "--keep-last", "1"), ("verify", "--all"), ("inspect", "@latest")):
        sh.run(*words, *AT, launcher=AS_OTHER, not_err="lost")


def case_what_the_catalog_remembers_is_not_counted_as_checked(sh):
    for run in ("a", "b"):
        save(sh, run, 1, 2)
    sh.run("list", *AT, launcher=AS_OTHER)
    sh.path("store/a").chmod(0)
    sh.run("verify", "--all", *AT, launcher=AS_OTHER, code=3, out="^2 of 4 checkpoints checked · 2 ok · 0 damaged · 2 unread ")
    sh.run("status", *AT, launcher=AS_OTHER, code=3, out="2 checked, 0 damaged; not all could be read$")
    sh.run("prune", *AT, "--keep-last", "1", launcher=AS_OTHER, code=3, out=r"^a@1 .* perhaps named by a \(cannot be read\)")
    sh.path("store/a").chmod(0o755)


def case_a_newest_checkpoint_that_cannot_be_read_is_called_unreadable(sh):
    save(sh, "a", 1, 2)
    newest = sh.path("store/a/step-000000002.g2")
    newest.chmod(0)
    passed_over = r"newer, but not usable: a@2 \(unreadable\)"
    sh.run("inspect", "a@latest", *AT, launcher=AS_OTHER, err=f"^note: using a@1; {passed_over}$")
    sh.run("next-save", "a", "--step", "2", "--every-steps", "100", *AT, launcher=AS_OTHER, code=1, out="last step 1,", err=f"^warning: {passed_over}$")
    run = sh.document("status", *AT, launcher=AS_OTHER)["data"]["runs"][0]
    check((run["newest"], run["newest_step"], run["unreadable"]) == ("a@1", 1, 1), str(run))
    sh.path("store/a/step-000000001.g1").chmod(0)
    run = sh.document("status", *AT, launcher=AS_OTHER)["data"]["runs"][0]
    check((run["newest"], run["newest_step"], run["newest_created"]) == (None, None, None), str(run))
    sh.run("status", *AT, launcher=AS_OTHER, out="^a +2 .* none ", not_out=" y ")
    sh.run("status", *AT, "--prom", "-", launcher=AS_OTHER, out='^ckpt_unreadable{run="a"} 2$', not_out="^ckpt_(newest_step|last_save.*){")
    sh.run("next-save", "a", "--every", "1h", *AT, launcher=AS_OTHER, out="^due ", err="none of its 2 checkpoints can be used")
    rows = sh.document("list", *AT, launcher=AS_OTHER)["data"]["checkpoints"]
    check([(row["state"], row["created"]) for row in rows] == [("unreadable", None)] * 2, str(rows))
    for step in (1, 2):
        sh.path(f"store/a/step-00000000{step}.g{step}").chmod(0o755)


def case_a_trash_that_cannot_be_read_is_not_empty(sh):
    for run in ("a", "b"):
        save(sh, run, 1, 2)
    sh.run("rm", "a@1", "b@1", *AT, launcher=AS_OTHER)
    closed = sh.path("store/.ckpt/trash/a")
    closed.chmod(0)
    denied = "store/.ckpt/trash/a: cannot list: Permission denied"
    sh.run("list", "--trash", *AT, launcher=AS_OTHER, code=3, out="^b@1 ", err=denied)
    for name in ("a@1", "a"):
        sh.run("undelete", name, *AT, launcher=AS_OTHER, code=16, err=f"^error: {denied}")
    sh.run("undelete", "--all", *AT, launcher=AS_OTHER, code=3, out="^restored b@1", err=denied)
    sh.run("undelete", "--all", *AT, launcher=AS_OTHER, code=3, err=denied, not_out="empty")
    closed.chmod(0o755)
    closed.parent.chmod(0)
    denied = "store/.ckpt/trash: cannot list: Permission denied"
    forget(sh)
    for quiet in ((), ("-q",)):
        sh.run("status", *quiet, *AT, launcher=AS_OTHER, code=3, err=denied)
    sh.run("status", *AT, launcher=AS_OTHER, code=3, out="^trash: cannot be read$")
    check(sh.document("status", *AT, launcher=AS_OTHER, code=3)["data"]["trash"] is None, "it has contents")
    sh.run("status", *AT, "--prom", "-", launcher=AS_OTHER, code=3, not_out="^ckpt_trash")
    sh.run("list", "--trash", *AT, launcher=AS_OTHER, code=3, err=denied, not_out="empty")
    closed.parent.chmod(0o755)
    sh.run("undelete", "a@1", *AT, launcher=AS_OTHER, out="^restored a@1")


def case_marks_that_cannot_be_read_decide_nothing(sh):
    save(sh, "a", 1, 2)
    sh.run("mark", "a@2", "--tag", "release", *AT, launcher=AS_OTHER)
    marks = sh.path("store/a/step-000000002.g2/marks")
    marks.chmod(0)
    forget(sh)
    for name in ("a@best", "a@best:loss", "a@release"):
        sh.run("inspect", name, *AT, launcher=AS_OTHER, code=16, err=f"^error: {name}: the marks of a@2 cannot be read: .*Permission denied")
    for words in (("--tag", "release"), ("--where", "metric.loss<9")):
        sh.run("list", *words, *AT, launcher=AS_OTHER, code=3, err="step-000000002.g2: its marks cannot be read")
    marks.chmod(0o755)
    sh.run("inspect", "a@release", *AT, launcher=AS_OTHER)
    sh.run("list", "--tag", "release", *AT, launcher=AS_OTHER, out="^a +2 ")


def case_a_run_whose_checkpoints_cannot_be_read_is_not_without_any(sh):
    save(sh, "a", 1, 2)
    for path in sh.path("store/a").iterdir():
        path.chmod(0)
    for remembered in (True, False):
        for name in ("a@latest", "a@best", "a@release"):
            for verb in ("inspect", "verify"):
                sh.run(verb, name, *AT, launcher=AS_OTHER, code=16, err=f"^error: {name}: a@2 cannot be read: .*Permission denied")
        sh.run("next-save", "a", "--every", "1h", *AT, launcher=AS_OTHER, out="no usable checkpoint", err="none of its 2 checkpoints can be used")
        forget(sh)
    sh.path("store/a/step-000000001.g1").chmod(0o755)
    sh.run("verify", "a@latest", *AT, launcher=AS_OTHER, out="^a@latest   ok ", err=r"^note: using a@1; newer, but not usable: a@2 \(unreadable\)$")
    sh.path("store/a/step-000000002.g2").chmod(0o755)


def case_what_is_said_from_memory_is_said_to_be_so(sh):
    save(sh, "a", 1, 2)
    sh.run("list", *AT, launcher=AS_OTHER)
    sh.path("store/a").chmod(0)
    sh.run("why", "a@2", *AT, launcher=AS_OTHER, code=3, out="^a@2   kept", err=CLOSED_RUN.replace("error", "warning"))
    forget(sh)
    for name in ("a@2", "a/step-000000002.g2", "3f2a9155"):
        sh.run("why", name, *AT, launcher=AS_OTHER, code=16, err=CLOSED_RUN)
    sh.run("verify", "a/step-000000002.g2", *AT, launcher=AS_OTHER, code=16, err="Permission denied")
    sh.path("store/a").chmod(0o755)


def case_a_closed_folder_of_the_trash_stops_no_other_run(sh):
    for run in ("a", "b"):
        save(sh, run, 1, 2, 3)
        sh.run("save", sh.checkpoint("safetensors/llama_sharded"), *AT, "--run", run, "--step", "2", "--back-to", "1", launcher=AS_OTHER)
        sh.run("rm", f"{run}@1", *AT, launcher=AS_OTHER)
    closed = sh.path("store/.ckpt/trash/a")
    closed.chmod(0)
    for remembered in (True, False):
        for words in (("inspect", "b@latest"), ("inspect", "b@latest~0"), ("rm", "-n", "b@2.g2"), ("prune", "b", "--keep-last", "1"), ("undelete", "b@1")):
            sh.run(*words, *AT, launcher=AS_OTHER, not_err="trash/a")
        sh.run("rm", "b@1", *AT, launcher=AS_OTHER)
        sh.run("prune", "a", "--keep-last", "1", *AT, launcher=AS_OTHER, code=16, err="trash/a: cannot list")
        forget(sh)
    sh.run("status", *AT, launcher=AS_OTHER, code=3, out=["^a +3 ", "^b +3 "], err="trash/a: cannot list")
    sh.run("prune", "b", "--keep-last", "1", "--grace", "0", "--max-delete", "100%", "--apply", "-y", *AT, launcher=AS_OTHER, code=3,
           err="trash/a: cannot list")
    closed.chmod(0o755)
    record, = closed.glob("*.json")
    record.chmod(0)
    sh.run("why", "a@1", *AT, launcher=AS_OTHER, out="^a@1.g1   in the trash; its deletion record is unreadable")
    sh.run("undelete", "a@1", *AT, launcher=AS_OTHER, out="^restored a@1")


def case_doctor_does_not_call_a_closed_catalog_absent(sh):
    save(sh, "a", 1)
    sh.path("store/.ckpt").chmod(0)
    sh.run("doctor", "store", launcher=AS_OTHER, code=(0, 1), out=["store/.ckpt/catalog.sqlite: cannot access: Permission denied",
                                                                  "make it writable for this user: store/.ckpt$"], not_out="no catalog yet")
    sh.path("store/.ckpt").chmod(0o755)


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(77)
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
