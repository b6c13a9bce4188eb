"""ckpt prune, undelete and why, as an operator uses them, on a real file system."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from runner import Skipped, check, main


def store(sh, steps=range(1, 7), run="llama", generation=1):
    """STORE/RUN/step-N.gG, one real checkpoint each."""
    for number, step in enumerate(steps):
        target = sh.path("store") / run / f"step-{step:09}.g{generation + number}"
        if not sh.path("one").exists():
            sh.run("convert", sh.checkpoint("safetensors/single"), "one", "--to", "ckpt")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(sh.path("one"), target)
    return sh.path("store")


def names(folder):
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("step-")) if folder.is_dir() else []


def steps(folder):
    return [int(name[5:14]) for name in names(folder)]


def prune(sh, *words, code=0, **more):
    # The disk under the tests may be nearly full: a policy made of options still waits for its grace.
    waits = ("--purge-early-below", "0") if any(w.startswith("--keep") for w in words) and "--purge-early-below" not in words else ()
    return sh.run("prune", "--store", "store", *words, *waits, code=code, **more)


def case_prune_shows_its_plan_with_why_and_changes_nothing(sh):
    run = store(sh) / "llama"
    def tree():  # all but the catalog, which is an index of it
        return sorted(p.relative_to(sh.directory) for p in sh.path("store").rglob("*") if ".ckpt" not in p.parts)
    before = tree()
    result = prune(sh, "--keep-last", "2", "--keep-every", "3",
                   out=[r"^policy  the command line: \*: keep the newest 2; steps that are multiples of 3$", "^llama  +6  +3  +3  +\d",
                        r"^llama@6 +.* +keep +in the newest 2 \(1st\); a multiple of 3; the newest of its run$",
                        r"^llama@3 +.* +keep +a multiple of 3$", r"^llama@1 +.* +delete +not in the newest 2 \(6th\); not a multiple of 3$",
                        r"^would delete 3 of 6 checkpoints, free .*Nothing was deleted\.$",
                        r"^to do it: ckpt prune --store store --keep-last 2 --keep-every 3 --purge-early-below 0 --apply$"])
    check(result.out.index("llama@6 ") < result.out.index("llama@1 "), "the newest first", result)
    check(tree() == before and not sh.path("store/.ckpt/trash").exists(), "something was changed")
    check(steps(run) == [1, 2, 3, 4, 5, 6], str(names(run)))


def case_the_plan_says_what_stays_for_what_else_it_holds(sh):
    run = store(sh) / "llama"
    (run / "step-000000002.g2" / "notes.txt").write_text("a person's")
    result = prune(sh, "--keep-last", "3", out=[r"^llama@2 +.* +keep +it also holds notes.txt", "^llama@1 +.* +delete", "^would delete 2 of 6 "])
    plan = sh.document("prune", "--store", "store", "--keep-last", "3", "--purge-early-below", "0")["data"]
    held, = [c for c in plan["checkpoints"] if c["step"] == 2]
    check(held["decision"] == "KEEP" and held["bytes_freed"] == 0 and "notes.txt" in held["why"], str(held))
    check(plan["delete_count"] == 2 and plan["bytes_freed"] == sum(c["bytes_freed"] for c in plan["checkpoints"]), str(plan))
    check(prune(sh, "--keep-last", "3", "-q").out == "", "-q names something", result)
    prune(sh, "--keep-last", "3", "--apply", "-y", code=3, err="it also holds notes.txt")
    check(steps(run) == [2, 4, 5, 6], str(names(run)))


def case_what_is_shown_is_what_is_done(sh):
    run = store(sh) / "llama"
    planned = sh.document("prune", "--store", "store", "--keep-last", "3", "--purge-early-below", "0")["data"]
    done = sh.document("prune", "--store", "store", "--keep-last", "3", "--purge-early-below", "0", "--apply")["data"]
    check(planned["decision"] == "planned" and done["decision"] == "done" and done["trashed"] == 3, str(done))
    check(planned["checkpoints"] == done["checkpoints"], "another plan was carried out")
    check(steps(run) == [4, 5, 6], str(names(run)))
    trash = sh.path("store/.ckpt/trash/llama")
    check(sorted(p.name for p in trash.iterdir() if p.is_dir()) == [f"step-{n:09}.g{n}" for n in (1, 2, 3)], "not in the trash")
    record = json.loads((trash / "step-000000002.g2.json").read_text())
    check(record["state"] == "trashed" and "not in the newest 3 (5th)" in record["why"] and record["by"] and record["step"] == 2, str(record))
    sh.run("verify", trash / "step-000000002.g2", out="ok")


def case_the_first_run_of_a_new_policy_deletes_at_most_half(sh):
    run = store(sh) / "llama"
    result = prune(sh, "--keep-last", "1", "--apply", code=4,
                   err=["^error: store: nothing was deleted: this policy is new or changed and would delete 5 of 6 checkpoints \\(limit 50%\\)$", "--apply -y$"])
    check("moved to the trash" not in result.out, "it says that something was deleted", result)
    prune(sh, "--keep-last", "1", out=["^note    this policy is new or changed and would delete 5 of 6", "^to do it: .* --apply -y$"])
    quiet = prune(sh, "--keep-last", "1", "--apply", "-q", code=4)
    check(quiet.out == "" and quiet.err.startswith("error: store: nothing was deleted: "), "-q hides trouble, or says more", quiet)
    data = sh.document("prune", "--store", "store", "--keep-last", "1", "--apply", code=4)["data"]
    check(data["decision"] == "aborted" and data["aborted_because"] and data["trashed"] == 0, str(data))
    check(len(steps(run)) == 6, str(names(run)))
    prune(sh, "--keep-last", "1", "--apply", "-y", out="^5 checkpoints moved to the trash")
    check(steps(run) == [6], str(names(run)))
    store(sh, range(7, 12), generation=7)
    prune(sh, "--keep-last", "1", "--apply", out="^5 checkpoints moved to the trash")  # known by now
    check(steps(run) == [11], str(names(run)))
    store(sh, range(12, 16), generation=12)
    prune(sh, "--keep-last", "2", "--apply", code=4, err="would delete")  # changed


def case_an_empty_policy_and_none_are_refused(sh):
    store(sh)
    prune(sh, code=10, err=["ckpt.toml", "--keep-last 3"])
    prune(sh, "--keep-last", "0", "--apply", code=2, err="would delete everything")
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { lst = 3 }\n')
    prune(sh, code=2, err=["line 3", "lst"])
    sh.path("store/ckpt.toml").write_text("")
    prune(sh, code=2)


def case_the_policy_file_decides_by_run(sh):
    store(sh, run="prod")
    store(sh, run="scratch")
    store(sh, run="other")
    sh.path("store/ckpt.toml").write_text('[trash]\npurge_early_when_free_below = "0%"\n'
                                        '[[rule]]\nruns = "prod"\nkeep = { last = 4 }\n[[rule]]\nruns = "scratch"\nkeep = { last = 3 }\n')
    prune(sh, "--apply", out=["^note    other: no policy matches", "^5 checkpoints moved to the trash"])
    check([len(steps(sh.path("store") / run)) for run in ("prod", "scratch", "other")] == [4, 3, 6], "other runs")
    prune(sh, "--check-policy", out=[r"^policy  prod \(4 checkpoints\)$", r"last +keeps +4 +the newest 4", r"would delete +0 of 4"])


def case_what_is_read_stays_and_is_told(sh):
    run = store(sh) / "llama"
    reader = os.open(run / "step-000000001.g1", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    prune(sh, "--keep-last", "3", "--apply", code=3, err="llama@step-000000001.g1: kept: being read", out="^2 checkpoints moved to the trash")
    check(steps(run) == [1, 4, 5, 6], str(names(run)))
    os.close(reader)
    prune(sh, "--keep-last", "3", "--apply", out="^1 checkpoint moved to the trash")
    check(steps(run) == [4, 5, 6], str(names(run)))


def case_other_files_in_a_checkpoint_keep_it(sh):
    run = store(sh) / "llama"
    first, third = run / "step-000000001.g1", run / "step-000000003.g3"
    for name in ("thesis.tex", "a.txt", "b.txt", "c.txt", "shards/weights/d.txt"):
        (first / name).write_text("mine")
    (run / "step-000000002.g2/eval").mkdir()  # empty: nothing is lost
    sh.run("convert", third, "derived")
    shutil.move(sh.path("derived"), third / "derived")
    sh.run("prune", "--store", "store", "--keep-last", "3", "--grace", "0", "--apply", "-y", code=3,
           err=["llama@step-000000001.g1: kept: it also holds a.txt, b.txt, c.txt and 2 more",
                "llama@step-000000003.g3: kept: it also holds derived/"], out="^1 checkpoint")
    check(steps(run) == [1, 3, 4, 5, 6] and (first / "thesis.tex").read_text() == "mine", str(names(run)))
    sh.run("verify", third / "derived", out="ok")


def holds_a_lease(process):
    with open("/proc/locks", encoding="ascii") as locks:
        return any(words[1] == "FLOCK" and words[3] == "READ" and words[4] == str(process.pid) for words in map(str.split, locks))


def stopped_while_reading(sh, *words):
    """A command that is stopped while it holds its lease: it runs for a moment at a time until it does."""
    for _ in range(100):
        shutil.rmtree(sh.path("out"), ignore_errors=True)
        process = subprocess.Popen([sh.program, *map(os.fspath, words), "--no-mpi"], cwd=sh.directory, env=sh.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None:
            time.sleep(0.0005)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if holds_a_lease(process):
                return process
            process.send_signal(signal.SIGCONT)
        check(process.returncode == 0, f"{words} ended with {process.returncode}", process.communicate()[0])
    raise AssertionError(f"{words}: never seen with its lease")


def case_what_a_command_reads_stays_until_it_has_ended(sh):
    if not os.path.exists("/proc/locks"):
        raise Skipped("no /proc/locks here")
    run = store(sh) / "llama"
    first = run / "step-000000001.g1"
    name = sh.run("ls", first, "-q").out.split()[0]
    for words in (("convert", first, "out", "--to", "safetensors"), ("export", first, "out", "--to", "npy", "--only", name), ("verify", first)):
        process = stopped_while_reading(sh, *words)
        try:
            prune(sh, "--keep-last", "5", "--apply", code=3, err="step-000000001.g1: kept: being read", out="^0 checkpoints deleted")
        finally:
            process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=60)[0]
        check(process.returncode == 0, f"{words} ended with {process.returncode}", said)
    sh.run("verify", "--all", "--store", "store")  # else the first is the newest verified one
    prune(sh, "--keep-last", "5", "--apply", out="^1 checkpoint moved to the trash")
    check(steps(run) == [2, 3, 4, 5, 6], str(names(run)))


def case_pins_links_and_partials_stay(sh):
    run = store(sh, range(1, 9)) / "llama"
    (run / "step-000000009.partial-0123").mkdir()
    shutil.move(run / "step-000000002.g2", sh.path("elsewhere"))
    (run / "step-000000002.g2").symlink_to(sh.path("elsewhere"))
    marks = run / "step-000000001.g1" / "marks"
    marks.mkdir()
    (marks / "garbage").mkdir()
    (marks / "pin-0000000000000000.json").write_text("{ torn")  # the marks are unknown
    prune(sh, "--keep-last", "4", "--apply", out="^2 checkpoints moved to the trash")
    check(steps(run)[:2] == [1, 2] and (run / "step-000000009.partial-0123").is_dir(), str(names(run)))
    check(sh.path("elsewhere").is_dir(), "a link was followed")


def case_what_is_damaged_does_not_count_as_kept(sh):
    run = store(sh) / "llama"
    shards = run / "step-000000006.g6" / "shards" / "weights"
    for file in shards.iterdir():
        file.unlink()
    prune(sh, "--keep-last", "3", "--apply", err="step-000000006.g6: not counted as kept", out="^2 checkpoints moved to the trash")
    check(steps(run) == [3, 4, 5, 6], str(names(run)))


def case_undelete_brings_it_back_and_why_knows_all_of_it(sh):
    run = store(sh) / "llama"
    whole = {p.relative_to(run): p.read_bytes() for p in (run / "step-000000002.g2").rglob("*") if p.is_file()}
    prune(sh, "--keep-last", "3", "--apply")
    sh.run("why", "llama@2", "--store", "store", out=["^llama@2   deleted 20..-", r"not in the newest 3 \(5th\)", "in the trash until"])
    sh.run("undelete", "llama@2", "--store", "store", out="^restored llama@2$")
    check({p.relative_to(run): p.read_bytes() for p in (run / "step-000000002.g2").rglob("*") if p.is_file()} == whole, "other bytes")
    sh.run("undelete", "llama@2", "--store", "store", out="^llama@2 is not deleted$")
    sh.run("undelete", "llama@7", "--store", "store", code=10, err=["not in the trash", "ckpt list --trash"])
    sh.path("store/ckpt.toml").write_text('keep = [{ id = "recent", last = 3 }]\n')
    sh.run("why", "llama@2", "--store", "store", out=["^llama@2   kept$", r"restored from the trash; .* of its new grace left \(no rule keeps it\)", "restored 20"])
    for name in ("llama@6", "llama@latest", "@latest", "llama@step-000000006.g6"):
        sh.run("why", name, "--store", "store", out=["^llama@6   kept$", r"in the newest 3 \(1st\)"])
    sh.run("why", "llama@77", "--store", "store", code=10, err="^hint: nearest: ")
    for name in ("llama@2", "llama@1", "llama@6"):
        sh.document("why", name, "--store", "store")
    # As after a command for all three that was killed when the second was restored.
    data = sh.document("undelete", "llama@1", "llama@2", "llama@3", "--store", "store")["data"]
    check([one["step"] for one in data["restored"]] == [1, 3] and [one["step"] for one in data["in_place"]] == [2], str(data))
    # Also by their ids, which those copies share.
    shutil.rmtree(run)
    for step in (1, 2, 3):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "ids", "--step", str(step))
    ids = {c["step"]: c["id"] for c in sh.document("list", "--store", "store")["data"]["checkpoints"]}
    prune(sh, "ids", "--keep-last", "1", "--apply", "-y")
    sh.run("undelete", ids[2], "--store", "store", out="^restored ids@2$")
    data = sh.document("undelete", ids[1], ids[2], "--store", "store")["data"]
    check([one["step"] for one in data["restored"]] == [1] and [one["step"] for one in data["in_place"]] == [2], str(data))


def case_the_trash_is_emptied_after_its_grace(sh):
    run = store(sh) / "llama"
    trash = sh.path("store/.ckpt/trash/llama")
    prune(sh, "--keep-last", "4", "--apply")
    check(len([p for p in trash.iterdir() if p.is_dir()]) == 2, "in the trash")
    prune(sh, "--keep-last", "3", "--grace", "0", "--apply", out="^1 checkpoint deleted permanently")
    check(sorted(p.name for p in trash.iterdir() if p.is_dir()) == ["step-000000001.g1", "step-000000002.g2"], "the others have grace")
    sh.run("why", "llama@3", "--store", "store", out="deleted permanently")
    sh.run("undelete", "llama@3", "--store", "store", code=10)
    record = trash / "step-000000001.g1.json"
    record.write_text(record.read_text().replace('"purge_at_ms":', '"purge_at_ms":1,\n "x":'))
    prune(sh, "--keep-last", "3", "--grace", "0", "--apply", out="^1 checkpoint deleted permanently")
    check(sorted(p.name for p in trash.iterdir() if p.is_dir()) == ["step-000000002.g2"], "past its grace")
    check(steps(run) == [4, 5, 6], str(names(run)))


def case_where_space_is_short_the_trash_does_not_wait(sh):
    run = store(sh) / "llama"
    prune(sh, "--keep-last", "4", "--apply")
    prune(sh, "--keep-last", "3", "--purge-early-below", "100%", "--apply",
          out=["^1 checkpoint deleted$", "^3 checkpoints deleted permanently before the grace period ended, because space is short"])
    check(not [p for p in sh.path("store/.ckpt/trash/llama").iterdir() if p.is_dir()], "still in the trash")
    store(sh, (7,), generation=7)
    words = ("prune", "--store", "store", "--keep-last", "3", "--apply", "--purge-early-below")
    check(sh.document(*words, "0")["data"]["purged_early"] is False, "0 waits")
    check(sh.document(*words, "100%")["data"]["purged_early"] is True, "100% never waits")
    check(steps(run) == [5, 6, 7], str(names(run)))


def case_two_processes_do_not_delete_at_once(sh):
    store(sh)
    (sh.path("store") / ".ckpt" / "trash").mkdir(parents=True)
    other = os.open(sh.path("store/.ckpt/trash"), os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    prune(sh, "--keep-last", "3", "--apply", code=11, err="another process deletes")
    prune(sh, "--keep-last", "3", "--apply", "--lock-timeout", "50ms", code=11)
    prune(sh, "--keep-last", "3")  # reading needs no lock
    os.close(other)
    prune(sh, "--keep-last", "3", "--apply")


def aged(place, minutes=60):
    """Old files of another tool, whose save has ended."""
    then = time.time() - 60 * minutes
    for path in [*place.rglob("*"), place]:
        os.utime(path, (then, then), follow_symlinks=False)
    return place


def trainer(sh, run="hf", steps=(1000, 2000, 3000)):
    """Checkpoints of another tool."""
    place = sh.path("store") / run
    for step in steps:
        shutil.copytree(sh.checkpoint("safetensors/single"), place / f"checkpoint-{step}")
    return aged(place)


def left(place):
    return sorted(p.name for p in place.iterdir())


def case_what_a_link_leads_to_stays(sh):
    run = trainer(sh)
    (run / "latest").symlink_to("checkpoint-1000")
    (sh.path("store") / "best").symlink_to(run / "checkpoint-2000" / "model.safetensors")
    prune(sh, "--keep-last", "1", "--apply", "-y", out=["1000.*keep.*named by latest", "2000.*keep.*named by best", "^0 checkpoints deleted"])
    check((run / "latest" / "model.safetensors").exists(), "the link dangles")
    (run / "latest").unlink()
    (run / "latest").symlink_to("checkpoint-3000")  # in place: the next prune sees it
    prune(sh, "--keep-last", "1", "--apply", "-y", out="^1 checkpoint moved to the trash")
    check(left(run) == ["checkpoint-2000", "checkpoint-3000", "latest"], str(left(run)))
    ours = store(sh, run="ours") / "ours"
    (ours / "best").symlink_to("step-000000001.g1")
    (ours / "latest").write_text("  step-000000002.g2\n")
    prune(sh, "ours", "--keep-last", "1", "--apply", "-y", out=["ours@1 +.*keep.*named by best", "ours@2 +.*keep.*named by latest"])
    check(steps(ours) == [1, 2, 6], str(left(ours)))


def case_the_plan_says_what_is_to_be_removed_for_good(sh):
    run = trainer(sh)
    prune(sh, "--keep-last", "1", "--apply", "-y", "--grace", "1s", out="^2 checkpoints moved to the trash")
    time.sleep(1.1)
    plan = sh.document("prune", "--store", "store", "--keep-last", "1")["data"]
    check(plan["delete_count"] == 0 and plan["purge_due"]["count"] == 2 and plan["purge_due"]["bytes"] > 0, str(plan))
    prune(sh, "--keep-last", "1", out="^note    2 in the trash expired: --apply deletes them permanently \(")
    prune(sh, "--keep-last", "1", "--apply", out="deleted permanently")
    prune(sh, "--keep-last", "1", not_out="grace period")
    check(left(run) == ["checkpoint-3000"], str(left(run)))


def case_what_nobody_can_read_may_name_any(sh):
    run = trainer(sh)
    (run / "latest").write_text(str(run / "checkpoint-1000"))  # a path, as some launchers write it
    prune(sh, "--keep-last", "1", "--apply", "-y", out=["1000.*keep.*named by latest", "^1 checkpoint moved to the trash"])
    check(left(run) == ["checkpoint-1000", "checkpoint-3000", "latest"], str(left(run)))
    (run / "latest").write_text("x" * 5000)
    prune(sh, "--keep-last", "1", "--apply", "-y", out=[r"1000.*keep.*named by latest \(cannot be read\)", "^0 checkpoints deleted"])
    (run / "latest").unlink()
    (sh.path("store") / "far").symlink_to("x" * 300)
    prune(sh, "--keep-last", "1", "--apply", "-y", out=[r"1000.*keep.*named by far \(cannot be followed\)", "^0 checkpoints deleted"])
    (sh.path("store") / "far").unlink()
    prune(sh, "--keep-last", "1", "--apply", "-y", out="^1 checkpoint moved to the trash")


def case_what_holds_anothers_data_stays(sh):
    run = trainer(sh)
    data = run / "checkpoint-3000" / "model.safetensors"
    data.unlink()
    data.symlink_to("../checkpoint-1000/model.safetensors")
    aged(run)
    prune(sh, "--keep-last", "1", "--apply", "-y", "--grace", "0", out=["1000.*keep.*holds bytes of hf/checkpoint-3000", "^1 checkpoint deleted"])
    check(left(run) == ["checkpoint-1000", "checkpoint-3000"] and data.read_bytes(), str(left(run)))
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')
    sh.run("why", "hf/checkpoint-1000", "--store", "store", out="holds bytes of hf/checkpoint-3000")


def case_what_a_link_in_a_checkpoint_of_ours_leads_into_stays(sh):
    weights = "shards/weights/00000-00000.safetensors"

    def linked(run, other, step, name=weights, to=None):
        file = sh.path("store") / run / f"step-{step:09}.g{step}" / name
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        file.symlink_to(os.path.relpath(sh.path("store") / other / "step-000000001.g1" / (to or name), file.parent))
        return file

    def last(*words, **more):
        return prune(sh, *words, "--keep-last", "1", **more)

    for name in (weights, "shards/weights"):
        for run, other in (("llama", "llama"), ("zebra", "llama")):  # of another run too, whichever run is requested
            store(sh), store(sh, run="zebra")
            file = linked(run, other, 6, name)
            last("llama", "-y", out=[rf"^llama@1 +.* +keep +holds bytes of {run}/step-000000006.g6", "^would delete 4 of 6 "])
            last("llama", "--apply", "-y", "--grace", "0", out=[rf"^llama@1 +.* +keep +holds bytes of {run}/", "^4 checkpoints deleted"])
            check(steps(sh.path("store/llama")) == [1, 6], str(steps(sh.path("store/llama"))))
            check(file.exists() and sh.run("verify", file.parents[2 if file.is_file() else 1], out="ok"), "its bytes are gone")
            shutil.rmtree(sh.path("store"))
    # A second name holds the bytes by itself.
    run = store(sh) / "llama"
    (run / "step-000000006.g6" / weights).unlink()
    os.link(run / "step-000000001.g1" / weights, run / "step-000000006.g6" / weights)
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 1 }\n[trash]\npurge_early_when_free_below = "0%"\nrecycle = 3\nttl = "0s"\n')
    prune(sh, "--apply", "-y")
    check(steps(run) == [6], str(steps(run)))
    sh.run("save", sh.checkpoint("safetensors/gpt2_tied"), "--store", "store", "--run", "llama", "--step", "7")
    sh.run("verify", run / "step-000000006.g6", out="ok")


def case_what_another_tool_is_writing_stays_and_counts_for_nothing(sh):
    run = trainer(sh)
    shutil.copytree(run / "checkpoint-3000", run / "checkpoint-500")  # it was started again from a lower step
    os.utime(run / "checkpoint-500" / "model.safetensors")
    prune(sh, "--keep-last", "2", "--apply", "-y", out=["500.*keep.*modified by another tool .* ago: treated as unfinished for 10 min", "^1 checkpoint moved to the trash"])
    check(left(run) == ["checkpoint-2000", "checkpoint-3000", "checkpoint-500"], str(left(run)))
    prune(sh, "--keep-last", "2", "--foreign-min-age", "0s", "--apply", "-y", out="^1 checkpoint moved to the trash")
    check(left(run) == ["checkpoint-2000", "checkpoint-3000"], str(left(run)))
    sh.path("store/ckpt.toml").write_text('[guard]\nforeign_min_age = "2h"\n[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')
    prune(sh, "--apply", "-y", out="^0 checkpoints deleted")


def case_a_run_of_which_all_is_corrupt_keeps_its_newest(sh):
    place = store(sh, steps=(1, 2, 3, 4)).joinpath("llama")
    prune(sh, "--keep-last", "4", "--apply")
    for data in place.glob("*/shards/weights/*"):
        with open(data, "r+b") as file:
            file.seek(4200)
            file.write(b"x")
    sh.run("verify", "--all", "--store", "store", code=1)
    widened = ("--keep-last", "4", "--include-damaged")
    prune(sh, *widened, "--apply", code=4, err="would delete 3 of 4")
    prune(sh, *widened, "--apply", "-y", out=["4 +.*keep.*the last usable one of its run", "1 +.*delete.*damaged; deleted as requested"])
    check(steps(place) == [4], str(names(place)))
    prune(sh, *widened, "--apply", out="^0 checkpoints deleted")


def case_what_repair_mends_is_never_deleted_as_corrupt(sh):
    place = store(sh, steps=(1, 2, 3, 4)).joinpath("llama")
    (place / "step-000000004.g4" / "index" / "manifest.json").unlink()
    (place / "step-000000002.g2" / "manifest.json").unlink()
    words = ("--keep-last", "1", "--include-damaged", "--apply", "-y")
    prune(sh, *words, out=["2 +[^0].*keep.*repairable with 'ckpt repair'", "4 +.*keep.*repairable", "^1 checkpoint moved to the trash"])
    check(steps(place) == [2, 3, 4], str(names(place)))
    sh.run("list", "--tsv", "--store", "store", "--state", "repairable", out="^llama\t2\trepairable")
    sh.run("repair", "store", "--apply")
    prune(sh, *words, out="^2 checkpoints moved to the trash")
    check(steps(place) == [4], str(names(place)))


def case_a_run_that_is_not_there_is_told(sh):
    store(sh, steps=(1, 2))
    prune(sh, "lama", "--keep-last", "1", code=10, err=["no run matches 'lama'", "did you mean 'llama'"])
    prune(sh, "lama*", "--keep-last", "1", err="no run matches 'lama\\*'")
    sh.run("prune", "store", "--keep-last", "1", code=10, err=["store: a store, not a run", "^hint: write: --store store$"])
    prune(sh, "llama", "--keep-last", "1", "--apply", "-y")
    sh.run("pin", "llama/step-000000002.g2", "--store", "store", out="^pinned llama@2$")


def case_a_run_that_holds_nothing_yet_is_told_and_no_error(sh):
    store(sh, steps=(1, 2))
    sh.path("store/fresh").mkdir()
    prune(sh, "fresh", "--keep-last", "1", err="'fresh' holds no checkpoint", out="^would delete 0 of 0")
    prune(sh, "fresh", "--keep-last", "1", "--apply", err="'fresh' holds no checkpoint")
    prune(sh, "fresher", "--keep-last", "1", code=10, err="no run matches 'fresher'")


def many(sh, count):
    """STORE/many, of one checkpoint's files under as many names."""
    run = store(sh, steps=(1,), run="many") / "many"
    for step in range(2, count + 1):
        shutil.copytree(run / "step-000000001.g1", run / f"step-{step:09}.g{step}", copy_function=os.link)
    return run


def signalled(sh, which, when, *words):
    """A prune that gets a signal once `when(started)` is true: its exit code and output."""
    process = subprocess.Popen([sh.program, "prune", "--store", "store", "--purge-early-below", "0", *words], cwd=sh.directory,
                               env=sh.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    while process.poll() is None and not when(time.monotonic() - started):
        time.sleep(0.0005)
    process.send_signal(which)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def case_a_signal_while_it_plans_ends_it_without_a_plan(sh):
    count = 800
    run = many(sh, count)
    words = ("--keep-last", str(count - 1), "--threads", "1")
    prune(sh, *words)  # from here on the catalog knows them
    started = time.monotonic()
    prune(sh, *words, out=f"^would delete 1 of {count} ")
    whole = time.monotonic() - started
    for more in ((), ("--apply",)):
        ended = 0
        for share in (0.2, 0.4, 0.6, 0.8):
            code, out, err = signalled(sh, signal.SIGINT, lambda passed: passed > share * whole, *words, *more)
            check("not counted as kept" not in err, "what was not looked at is told as damaged", err)
            check(code in (0, 130), f"exit {code}", out + err)
            if code == 130:
                ended += 1
                check("error: store: stopped" in err and "delete" not in out, "a plan that is none", out + err)
                check(len(steps(run)) == count, "something was deleted", out + err)
            elif more:  # it had already ended
                sh.run("undelete", "many/step-000000001.g1", "--store", "store")
        check(ended, "never seen while it plans")


def case_a_signal_between_two_deletions_leaves_the_others(sh):
    count = 300
    for which, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        for more in ((), ("--json",)):
            for attempt in range(8):
                shutil.rmtree(sh.path("store"), ignore_errors=True)
                run, trash = many(sh, count), sh.path("store/.ckpt/trash/many")
                code, out, err = signalled(sh, which, lambda _: len(names(trash)) > 2, "--keep-last", "1", "--apply", "-y", "--threads", "1", *more)
                if code != 0:
                    break
            gone = count - len(steps(run))
            check(code == expected and 0 < gone < count - 1, f"exit {code}, {gone} gone", out + err)
            if more:
                document = json.loads(out)
                findings = sh.schemas.findings("prune", document)
                check(not findings, "\n".join(findings))
                check(document["exit_code"] == code and document["errors"] and not document["ok"], out)
                check(document["data"]["decision"] == "stopped" and document["data"]["trashed"] == gone, out)
            else:
                check(f"{gone} of {count - 1} deletions done" in err and re.search(f"^{gone} checkpoints moved to the trash", out, re.M), "not told", out + err)
            prune(sh, "--keep-last", "1", "--apply", "-y", out=f"^{count - 1 - gone} checkpoints? moved to the trash")
            check(steps(run) == [count], str(names(run)))


def case_of_two_saves_of_a_step_the_plan_tells_which_goes(sh):
    store(sh, steps=(7, 7, 8))
    prune(sh, "--keep-first", "1", out=["llama@7.g1 +.*delete.*replaced by a newer save of this step", r"llama@7 +.*keep.*in the oldest 1 \(1st\)", "llama@8 +"])


def case_a_reader_of_one_file_holds_its_checkpoint(sh):
    run = trainer(sh)
    reader = subprocess.Popen([sys.executable, "-c", f"import fcntl,os,time; fcntl.flock(os.open({str(run / 'checkpoint-1000')!r}, os.O_RDONLY), fcntl.LOCK_EX); print('x', flush=True); time.sleep(600)"],
                              stdout=subprocess.PIPE)
    reader.stdout.readline()
    try:  # a reader of a file of a checkpoint that is being deleted is refused, so the deleter sees every reader
        sh.run("convert", run / "checkpoint-1000" / "model.safetensors", "copy", "--to", "ckpt", code=11)
    finally:
        reader.kill()
        reader.wait()
    sh.run("convert", run / "checkpoint-1000" / "model.safetensors", "copy", "--to", "ckpt")


def case_other_tools_checkpoints_are_pruned_and_what_they_name_stays(sh):
    run = sh.path("store") / "ds"
    source = sh.checkpoint("deepspeed/zero2_bf16_dp4")
    tag = next(p for p in source.iterdir() if p.is_dir())
    for step in (10, 20, 30, 40):
        shutil.copytree(tag, run / f"global_step{step}")
    (run / "latest").write_text("global_step10")
    aged(run)
    prune(sh, "--keep-last", "2", "--apply", out=["10.*keep.*named by latest", "^1 checkpoint moved to the trash"])
    check(sorted(p.name for p in run.iterdir()) == ["global_step10", "global_step30", "global_step40", "latest"], str(list(run.iterdir())))
    sh.run("undelete", "ds@20", "--store", "store")
    check((run / "global_step20").is_dir(), "not back")


def case_checkpoints_that_are_only_recognised_are_pruned_too(sh):
    """Orbax's data is not read, so the quick check of kept checkpoints compares names and sizes. Megatron's is."""
    orbax, megatron, legacy = (sh.path("store") / name for name in ("jax", "mcore", "mega"))
    for step in (10, 20, 30, 40):
        shutil.copytree(sh.checkpoint("orbax/direct_standard") / "final", orbax / str(step))
        shutil.copytree(sh.checkpoint("megatron/core_torch_dist_w4"), megatron / f"iter_{step:07}")
        shutil.copytree(sh.checkpoint("megatron/legacy_tp2_pp2") / "iter_0000002", legacy / f"iter_{step:07}")
    sh.run("verify", orbax / "40", "--quick", out=["ok   orbax · ", "^  checked     names and sizes$", "^note .*reading is not supported"])
    sh.run("verify", orbax / "40", code=12)
    # An incomplete checkpoint does not count as kept: the previous one stays instead.
    aged(sh.path("store"))
    (orbax / "40" / "manifest.ocdbt").unlink()
    (megatron / "iter_0000040" / "__0_1.distcp").unlink()
    shutil.rmtree(legacy / "iter_0000040" / "mp_rank_01_001")
    prune(sh, "--keep-last", "1", "--apply", "-y", out="^6 checkpoints moved to the trash",
          err=["jax/40: not counted as kept", "mcore/iter_0000040: not counted as kept", "mega/iter_0000040: not counted as kept"])
    check([sorted(p.name for p in run.iterdir()) for run in (orbax, megatron, legacy)]
          == [["30", "40"], ["iter_0000030", "iter_0000040"], ["iter_0000030", "iter_0000040"]], "others stayed")
    (legacy / "latest_checkpointed_iteration.txt").write_text("30\n")
    sh.run("verify", legacy, "--quick", out="ok   megatron-legacy files of 4 ranks · ")
    (legacy / "iter_0000030" / "mp_rank_01_000" / "model_optim_rng.pt").write_bytes(b"")
    sh.run("verify", legacy, "--quick", code=(1, 13, 15))


def case_models_without_a_step_in_their_names_stay(sh):
    for name in ("bert", "gpt2", "exp7"):
        shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("store") / "models" / name)
    result = prune(sh, "--keep-last", "1", "--apply", "-y", out="^0 checkpoints deleted")
    check(sorted(p.name for p in sh.path("store/models").iterdir()) == ["bert", "exp7", "gpt2"], "deleted", result)


def case_control_characters_of_a_policy_are_not_printed(sh):
    store(sh)
    odd = "\\u001b[2J\\u202e\\u0007"
    sh.path("store/ckpt.toml").write_text(f'keep = [{{ id = "i{odd}", last = 4 }}, {{ id = "b", best = 1, metric = "m{odd}", mode = "min" }}]\n')
    for more in ((), ("--check-policy",), ("--simulate", "--interval", "10", "--until", "100"), ("-v",)):
        code = 0 if "--simulate" in more else 4  # no checkpoint has such a metric
        result = prune(sh, *more, code=code, out=r"m\?\[2J\?\?")
        check(not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", result.out + result.err), "a control character", result)


def case_policies_of_other_systems_tell_their_differences(sh):
    run = store(sh) / "llama"
    prune(sh, "--import-policy", "hf:save_total_limit=4", out="would delete 2 of 6")
    prune(sh, "--import-policy", "orbax:max_to_keep=4", out=["^note    Orbax counts the checkpoint being written", "would delete 2 of 6"])
    prune(sh, "--import-policy", "hff:save_total_limit=4", code=2, err="hf")
    prune(sh, "--import-policy", "hf:save_total_limit", code=2)
    check(len(steps(run)) == 6, "")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
