"""What ckpt prune shows of its plan, and what stops it."""
import os
import re
import shutil
import time

from prune_cases import aged, prune, steps, store
from runner import check, main


def case_a_metric_that_no_checkpoint_has_stops_the_prune(sh):
    run = store(sh) / "llama"
    for step in (1, 2):
        sh.run("mark", f"llama@{step}", "--metric", f"loss={step}", "--store", "store")
    words = ("--keep-last", "4", "--keep-best", "lss:1")
    for more in ((), ("--apply",), ("--apply", "-y"), ("--check",)):
        prune(sh, *words, *more, code=4, err=["^error: store: nothing was deleted: rule 'best': no checkpoint has the metric 'lss'",
                                              "^hint: did you mean 'loss'"], not_out=["to do it", "would delete"])
    check(steps(run) == [1, 2, 3, 4, 5, 6], str(steps(run)))
    data = sh.document("prune", "--store", "store", *words, "--apply", "-y", "--purge-early-below", "0", code=4)["data"]
    check(data["decision"] == "aborted" and data["trashed"] == 0 and "lss" in data["aborted_because"][0], str(data))
    last = sh.document("status", "--store", "store")["data"]["last_prune"]
    check(last["exit_code"] == 4 and last["checkpoints"] == 0, str(last))
    sh.run("status", "--store", "store", out="^last prune .*: stopped by a guard; 'ckpt prune' shows why$")
    prune(sh, "--keep-last", "4", "--keep-best", "loss:1", "--apply", out="^1 checkpoint moved to the trash")
    check(steps(run) == [1, 3, 4, 5, 6], str(steps(run)))


def case_a_nearer_policy_decides_about_its_runs(sh):
    run = store(sh, run="proj/a") / "proj/a"
    other = store(sh, run="b") / "b"
    for place, last in (("store", 1), ("store/proj", 4)):
        (sh.path(place) / "ckpt.toml").write_text(f'[[rule]]\nruns = "*"\nkeep = {{ last = {last} }}\n')
    note = "^note    proj/a: skipped; governed by store/proj/ckpt.toml .ckpt prune --store store/proj.$"
    sh.run("prune", "--store", "store", "--apply", "-y", out=["^5 checkpoints moved to the trash", note])
    check(steps(other) == [6] and len(steps(run)) == 6, f"{steps(other)} {steps(run)}")
    sh.run("prune", "--store", "store", "--keep-last", "1", "--apply", "-y", out=note)
    check(len(steps(run)) == 6, str(steps(run)))
    sh.run("why", "proj/a@1", "--store", "store", out="its run is governed by store/proj/ckpt.toml")
    sh.run("policy", "show", "--store", "store", out="^elsewhere  proj/a .6.: governed by store/proj/ckpt.toml$", not_out="no policy")
    sh.run("prune", "--store", "store/proj", "--apply", "-y", out="^2 checkpoints moved to the trash")
    check(steps(run) == [3, 4, 5, 6], str(steps(run)))
    os.rename(sh.path("store/proj/ckpt.toml"), run / "ckpt.toml")  # in the run itself
    sh.run("prune", "--store", "store", "--apply", "-y", out="^note    proj/a: skipped; governed by store/proj/a/ckpt.toml")
    check(steps(run) == [3, 4, 5, 6], str(steps(run)))


def case_a_run_without_the_metric_of_a_rule_keeps_all(sh):
    run = store(sh) / "llama"
    other = store(sh, run="gpt") / "gpt"
    for step in (1, 2):
        sh.run("mark", f"llama@{step}", "--metric", f"loss={step}", "--store", "store")
    words = ("--keep-last", "2", "--keep-best", "loss:1")
    prune(sh, *words, out=["^llama +6 +3 +3 ", "^gpt +6 +6 +0 ", "^gpt@1 .* keep +no loss in its run: the rule 'best' keeps all$"],
          err="^warning: rule 'best': no checkpoint of gpt has the metric 'loss': it keeps all of them$")
    prune(sh, *words, "--apply", out="^3 checkpoints moved to the trash")
    check(steps(run) == [1, 5, 6] and len(steps(other)) == 6, f"{steps(run)} {steps(other)}")


def case_dropping_a_series_needs_an_approval_of_its_own(sh):
    place = store(sh, steps=(1,)).joinpath("llama")
    words = ("--keep-last", "1", "--apply")
    prune(sh, *words)
    store(sh, range(2, 7), generation=2)
    prune(sh, *words, "--drop-series", "0", code=4, err="would delete 5 of 6")
    check(len(steps(place)) == 6, str(steps(place)))
    prune(sh, *words, out="^5 checkpoints moved to the trash")
    check(steps(place) == [6], str(steps(place)))


def case_a_plan_ends_with_its_command_and_a_deletion_with_the_way_back(sh):
    run = store(sh) / "llama"
    sh.path("store/ckpt.toml").write_text('keep = [{ last = 6 }]\n')
    line = re.search("^to do it: ckpt (.*)$", prune(sh, "llama", "--keep-last", "4", out=r"^note    ckpt.toml is not used: the rules of the command line replace it$").out, re.M)[1]
    check(line == "prune llama --store store --keep-last 4 --purge-early-below 0 --apply", line)
    back = re.search("to restore: ckpt (.*)$", sh.run(*line.split(), out="^in the trash until 20..-").out, re.M)[1]
    check(steps(run) == [3, 4, 5, 6] and back.startswith("undelete --since 20") and back.endswith(" --store store"), back)
    time.sleep(0.1)
    sh.run(*back.split(), out=["^restored llama@1$", "^restored llama@2$"])
    check(steps(run) == [1, 2, 3, 4, 5, 6], str(steps(run)))
    last = sh.document("status", "--store", "store")["data"]["last_prune"]
    check((last["exit_code"], last["checkpoints"]) == (0, 2) and last["bytes"] > 0, str(last))
    sh.run("prune", "--store", "store", not_out=["is not used", "to do it"])
    for flag in ("--keep-within", "--grace", "--foreign-min-age"):
        sh.run("prune", "--store", "store", flag, "3", code=2, err=[f"^error: {flag}: '3' has no unit$", "^hint: write 3s, 3m, 3h or 3d$"])
    sh.run("prune", "--store", "store", "--keep", "last=x", code=2, err="'x' is not a whole number of at least 0$")
    for text, told in (('[[rule]]\nruns = "*"\nkeep = { within = "3" }\n', "within: '3' has no unit"), ("keep_last = 3\n", r"write keep = \{ last = \.\.\. \}")):
        sh.path("store/ckpt.toml").write_text(text)
        sh.run("prune", "--store", "store", code=2, err=told)
    sh.path("store/ckpt.toml").unlink()
    sh.run("prune", "--store", "store", "--keep-last", "9", "lama", code=10, err=["no run matches 'lama'", "did you mean 'llama'"])


def case_a_large_plan_shows_totals_first_and_details_with_v(sh):
    store(sh, range(1, 31), "a")
    store(sh, range(1, 31), "b/c")
    sh.run("pin", "a@1", "--store", "store")
    result = prune(sh, "--keep-last", "20", out=[r"^a +30 +21 +9 ", r"^b/c +30 +20 +10 ", r"^total +60 +41 +19 ", "^40 more kept or deleted; -v shows all$",
                                                 r"^a@1 +.* +keep +pinned", r"^b/c@1 +.* +delete +not in the newest 20 \(30th\)$"])
    check("\nb/c@30 " not in result.out and result.out.index("total") < result.out.index("a@10 "), "not what a person must see first", result)
    check(len(re.findall(r"^(a|b/c)@", prune(sh, "--keep-last", "20", "-v").out, re.M)) == 60, "-v does not show all")
    code, text = sh.terminal("prune", "--store", "store", "--keep-last", "20", "--color", "always")
    narrow = re.sub("\x1b\\[[0-9;]*m", "", sh.terminal("prune", "--store", "store", "--keep-last", "2", "--keep-every", "1000", columns=60)[1])
    rows = narrow.split("CHECKPOINT  ")[1].split("would delete")[0].split("\r\n")
    check(max(map(len, rows)) <= 60, narrow)
    check(code == 0 and "\x1b[1;31mdelete" in text and "\x1b[32mkeep" in text, text)


def case_check_answers_whether_something_would_be_deleted(sh):
    store(sh)
    prune(sh, "--keep-last", "3", "--check", code=1)
    prune(sh, "--keep-last", "6", "--check")
    quiet = prune(sh, "--keep-last", "3", "-q")
    check(quiet.out + quiet.err == "", "-q speaks though all is well", quiet)
    prune(sh, "--keep-last", "3", "--apply", "-n", code=2, err="cannot be used together")


def case_what_lacks_state_that_the_one_before_has_does_not_count_as_kept(sh):
    for name, files in (("folders/hf_trainer", ("optimizer.pt", "scheduler.pt")), ("folders/accelerate", ("optimizer.bin",))):
        run = sh.path("store/r")
        for step in (100, 200):
            shutil.copytree(sh.checkpoint(name), run / f"checkpoint-{step}")
        for empties in (False, True):
            for file in files:
                (run / "checkpoint-200" / file).unlink()
                if empties:
                    (run / "checkpoint-200" / file).write_bytes(b"")
            aged(sh.path("store"))
            prune(sh, "--keep-last", "1", "--apply", "-y", err=f"checkpoint-200: not counted as kept: it lacks {files[0]}.*, which checkpoint-100 has")
            check({p.name for p in run.iterdir()} == {"checkpoint-100", "checkpoint-200"}, str(list(run.iterdir())))
            for file in files:
                shutil.copy(run / "checkpoint-100" / file, run / "checkpoint-200" / file)
        aged(sh.path("store"))
        prune(sh, "--keep-last", "1", "--apply", "-y")
        check({p.name for p in run.iterdir()} == {"checkpoint-200"}, str(list(run.iterdir())))
        shutil.rmtree(sh.path("store"))


def freed(sh, *words):
    return sh.document("prune", "--store", "store", *words, "--keep-last", "1", "--purge-early-below", "0")["data"]


def case_a_file_with_two_names_takes_its_space_once(sh):
    """Hard links: of checkpoints that both go, of one that stays, and outside of the store."""
    sh.run("convert", sh.checkpoint("safetensors/single"), "one", "--to", "ckpt")
    for run in ("a", "b"):
        sh.run("save", "one", "--link", "--store", "store", "--run", run, "--step", "1")
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", run, "--step", "2")
    shutil.rmtree(sh.path("one"))
    size = freed(sh)["checkpoints"][1]["bytes"]
    data = freed(sh)
    gone = [c["bytes_freed"] for c in data["checkpoints"] if c["decision"] == "TRASH"]
    check(size / 2 < data["bytes_freed"] < size * 1.5 and data["bytes_freed"] == sum(gone), str(data))
    check(freed(sh, "a")["bytes_freed"] < size / 2, "b@1 has the shards too")
    data = freed(sh, "--grace", "0", "--apply", "-y")
    check(data["purged"] == 2 and size / 2 < data["purged_bytes"] < size * 1.5, str(data))


def case_a_purge_frees_nothing_that_has_a_name_elsewhere(sh):
    run = store(sh, steps=(1, 2)) / "llama"
    sh.path("kept").mkdir()
    for number, file in enumerate((run / "step-000000001.g1").rglob("*")):
        if file.is_file():
            os.link(file, sh.path("kept") / f"{number}-{file.name}")
    check(freed(sh)["bytes_freed"] == 0, "hard links outside of the store")
    data = freed(sh, "--grace", "0", "--apply", "-y")
    check((data["purged"], data["purged_bytes"]) == (1, 0), str(data))


def case_tsv_is_the_decisions_alone_with_sizes_in_bytes(sh):
    store(sh, steps=(1, 2))
    rows = prune(sh, "--keep-last", "1", "--tsv").out.splitlines()
    check(rows[0] == "CHECKPOINT\tBYTES\tDECISION\tWHY" and len(rows) == 3, str(rows))
    check([row.split("\t")[2] for row in rows[1:]] == ["keep", "delete"] and all(row.split("\t")[1].isdigit() for row in rows[1:]), str(rows))


def case_a_tag_that_no_checkpoint_has_is_told(sh):
    for step in (1, 2, 3):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "r", "--step", str(step))
    words = ("prune", "--store", "store", "--keep-last", "1", "--keep-tag", "relaese")
    sh.run(*words, out="^r +3 +1 +2 ", err="^warning: rule '.*': no checkpoint has the tag 'relaese'")
    sh.run(*words, "-q", not_err="tag")  # the policy of a store in which nothing is tagged yet
    sh.run("mark", "r@1", "--tag", "relaese", "--store", "store")
    sh.run(*words, out="^r +3 +2 +1 ", not_err="tag")


def case_remarks_beside_a_checkpoint_are_no_state_and_what_lacks_state_is_not_damaged(sh):
    for step in (10, 20, 30):
        shutil.copytree(sh.checkpoint("folders/hf_trainer"), sh.path(f"store/h/checkpoint-{step}"))
    for step in (10, 20):
        sh.path(f"store/h/checkpoint-{step}/eval").mkdir()
        sh.path(f"store/h/checkpoint-{step}/eval/result.json").write_text("{}")
    def make_old():
        for path in sh.path("store/h").rglob("*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    make_old()
    words = ("prune", "--store", "store", "--keep-last", "2", "--include-damaged")
    sh.run(*words, out=["^h@30 .* keep ", "^h@20 .* keep ", "^h@10 .* delete "], not_err="lacks")
    for step in (10, 20):
        sh.path(f"store/h/checkpoint-{step}/global_step").mkdir()
        sh.path(f"store/h/checkpoint-{step}/global_step/state.pt").write_bytes(b"state")
    make_old()
    sh.run(*words, "--keep-last", "1", out=["^h@30 .* skip +unfinished", "^h@20 .* keep "], err="it lacks global_step, which checkpoint-20 has")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
