"""ckpt rm, list --trash, undelete and mark, as an operator uses them."""
import datetime
import fcntl
import json
import os
import re
import shutil
import subprocess
import time

from runner import check, main

AT = ("--store", "store")


def store(sh, steps=(1, 2, 3, 4), run="llama"):
    """STORE/RUN with a checkpoint of each step."""
    if not sh.path("one").exists():
        sh.run("convert", sh.checkpoint("safetensors/single"), "one", "--to", "ckpt")
    for number, step in enumerate(steps):
        target = sh.path("store") / run / f"step-{step:09}.g{number + 1}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(sh.path("one"), target)
    return sh.path("store") / run


def steps(run):
    return sorted(int(p.name[5:14]) for p in run.iterdir() if p.name.startswith("step-"))


def in_trash(sh, *words):
    return [(e["run"], e["step"]) for e in sh.document("list", "--trash", *AT, *words)["data"]["trash"]]


def case_rm_moves_checkpoints_to_the_trash_and_says_how_to_restore_them(sh):
    run = store(sh)
    before = (run / "step-000000002.g2/manifest.json").read_bytes()
    sh.run("rm", "llama@2", "llama@3", "-n", *AT, out=["^would delete llama@3, ", "^would delete llama@2, ", "^dry run: nothing was deleted$"])
    check(steps(run) == [1, 2, 3, 4] and in_trash(sh) == [], "a dry run deleted something")
    result = sh.run("rm", "llama@2", "llama/step-000000003.g3", *AT, out=["^deleted llama@2, ", "^deleted llama@3, "])
    check(steps(run) == [1, 4] and in_trash(sh) == [("llama", 3), ("llama", 2)], result)
    line = [line for line in result.out.splitlines() if line.startswith("in the trash until 20")]
    check(len(line) == 1 and line[0].endswith("to restore: ckpt undelete llama@3.g3 llama@2.g2 --store store"), str(result))
    sh.run(*line[0].split("ckpt ")[1].split(), out=["^restored llama@2$", "^restored llama@3$"])
    check(steps(run) == [1, 2, 3, 4] and (run / "step-000000002.g2/manifest.json").read_bytes() == before, "not restored")
    sh.run("why", "llama@2", *AT, out=["^llama@2   deleted 20.* with ckpt rm$", "why       deleted by name", "restored 20"])


def case_rm_takes_paths_tags_and_ids_and_other_words_find_it(sh):
    run = store(sh)
    sh.run("mark", "llama@1", "--tag", "broken", *AT)
    for word in ("step-000000002.g2", "2", "002", "2.g2", "latest", "latest~1", "best", "best:loss", "a@b", "a/b", "a\nb"):
        sh.run("mark", "llama@1", "--tag", word, *AT, code=2, err="another name of a checkpoint")
    sh.run("delete", "llama@broken", *AT, out="^deleted llama@1, ")
    sh.run("remove", "store/llama/step-000000002.g2", *AT, out="^deleted llama@2, ")
    check(steps(run) == [3, 4], str(steps(run)))
    sh.run("rm", "llama@9", *AT, code=10, err=["no step 9"])
    sh.run("rm", "llama@2", "llama@3", *AT, code=10, err="already in the trash: see 'ckpt list --trash'")
    check(steps(run) == [3, 4], "one of several was deleted although another name is wrong")
    sh.run("rm", *AT, code=2)


def restore_words(result):
    return re.search("to restore: ckpt (.*)$", result.out, re.M)[1].split()


def case_of_two_saves_of_a_step_rm_names_and_restores_the_one_it_deleted(sh):
    run = store(sh, (1, 1, 1, 2))
    for word, label in (("llama@1.g2", "llama@1.g2"), ("llama@1", "llama@1.g3"), ("llama@1.g1", "llama@1")):
        generation = {"llama@1": 3}.get(word) or int(word[-1])
        result = sh.run("rm", word, *AT, out=f"^deleted {label}, ")
        check(not (run / f"step-000000001.g{generation}").exists(), f"{word}: another one was deleted")
        if word == "llama@1.g1":
            break  # the trash holds three of the step
        sh.run(*restore_words(result))
        check((run / f"step-000000001.g{generation}").exists(), f"{word}: another one was restored")
        sh.run("rm", word, *AT)
    sh.run(*restore_words(result))
    check(os.listdir(run).count("step-000000001.g1") == 1 and len(in_trash(sh)) == 2, f"another one was restored: {os.listdir(run)}")


def case_a_path_leads_to_the_store_that_holds_it(sh):
    run = store(sh)
    sh.run("pin", "llama@1", "--reason", "x", *AT)  # a store from now on
    sh.path("store").rename(sh.path("deep"))
    result = sh.run("rm", "deep/llama/step-000000002.g2", out="^deleted llama@2, ")
    check(not sh.path(".ckpt").exists() and sh.path("deep/.ckpt/trash/llama/step-000000002.g2").exists(), "in another trash")
    sh.run(*restore_words(result), out="^restored llama@2$")
    sh.run("mark", sh.path("deep/llama/step-000000003.g3"), "--tag", "t", out="^llama@3   tags t$")
    sh.run("unpin", "deep/llama/step-000000001.g1", out="^unpinned llama@1$")
    sh.run("why", "deep/llama/step-000000002.g2", out="^llama@2 ")
    shutil.copytree(sh.path("deep"), sh.path("other"))
    sh.run("rm", "deep/llama/step-000000002.g2", "other/llama/step-000000002.g2", code=2, err="in another store than the names before it")
    shutil.rmtree(sh.path("other/.ckpt"))
    sh.run("rm", "other/llama/step-000000002.g2", code=2, err=["other/llama/step-000000002.g2: in no store$", "--store other$"])
    check(not sh.path(".ckpt").exists() and len(list(sh.path("other/llama").iterdir())) == 4, "deleted")


def case_marks_set_at_the_same_time_all_succeed(sh):
    store(sh)
    words = lambda n: [sh.program, "mark", "llama@2", "--metric", f"loss={n}", *AT]
    running = [subprocess.Popen(words(n), cwd=sh.directory, env=sh.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for n in range(12)]
    for process in running:
        out = process.communicate(timeout=120)[0]
        check(process.returncode == 0, out)
    one = [c for c in sh.document("list", *AT)["data"]["checkpoints"] if c["step"] == 2][0]
    check("loss" in str(one["metrics"]), str(one))
    check(not list(sh.path("store").rglob("*.tmp")), "a temporary file stays")


def case_rm_refuses_what_prune_never_deletes_and_deletes_the_rest(sh):
    run = store(sh, (1, 2, 3, 4, 5, 6))
    (run / "latest").write_text("step-000000003.g3")
    sh.run("pin", "llama@2", "--reason", "cited", "--owner", "ana", *AT)
    (run / "step-000000001.g1/notes.txt").write_text("a person's")
    sh.run("verify", "--all", *AT)
    lock = os.open(run / "step-000000004.g4", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    words = ("rm", *(f"llama@{n}" for n in range(1, 7)))
    result = sh.run(*words, *AT, code=3, out="^deleted llama@5, ", err=[
        "^warning: llama@6: not deleted: the newest of its run; the newest verified of its run$", "llama@2: not deleted: pinned by ana \"cited\"$",
        "llama@3: not deleted: named by latest$", "llama@4: not deleted: being read", "llama@1: not deleted: .*notes.txt"])
    check(steps(run) == [1, 2, 3, 4, 6], result)
    os.close(lock)
    data = sh.document(*words[:5], "-n", *AT, code=3)["data"]
    check([d["step"] for d in data["deleted"]] == [4] and {r["step"] for r in data["refused"]} == {1, 2, 3} and data["dry_run"], str(data))
    check(all(r["because"] for r in data["refused"]), str(data))


def case_rm_heeds_the_guards_and_grace_of_the_policy(sh):
    run = store(sh)
    sh.path("store/ckpt.toml").write_text('keep = [{ last = 1 }]\n[guard]\nnewest = 2\n[trash]\nttl = "2d"\nrecycle = 3\n')
    data = sh.document("rm", "llama@1", "llama@3", *AT, code=3)["data"]
    check([r["because"] for r in data["refused"]] == ["the 2nd newest of its run"], str(data))
    check(steps(run) == [2, 3, 4], "what was not named went too")
    entry, = sh.document("list", "--trash", *AT)["data"]["trash"]
    check(entry["policy"] == "ckpt rm" and entry["why"] == "deleted by name" and entry["in_trash_until"] == data["deleted"][0]["in_trash_until"], str(entry))


def case_a_damaged_checkpoint_goes_by_name_if_a_good_one_is_left(sh):
    run = store(sh, (1, 2))
    shard = next((run / "step-000000001.g1/shards/weights").iterdir())
    shard.write_bytes(b"x" * shard.stat().st_size)
    sh.run("verify", "--all", *AT, code=1)
    sh.run("rm", "llama@1", *AT, out="^deleted llama@1")
    shard = next((run / "step-000000002.g2/shards/weights").iterdir())
    shard.unlink()
    sh.run("rm", "llama@2", *AT, code=3, err="not deleted: .*of its run")
    check(steps(run) == [2], str(steps(run)))


def case_the_trash_is_listed_and_restored_by_run_by_time_and_all_of_it(sh):
    run, other = store(sh), store(sh, (10, 20, 30), "other")
    sh.run("list", "--tsv", "--trash", *AT, out=r"\ANAME\tBYTES\tDELETED\tKEPT UNTIL\tBY\tWHY\n\Z")
    sh.run("undelete", "--all", *AT, out="^the trash is empty$")
    sh.run("undelete", *AT, code=2, err=["missing argument NAME", "--all"])
    sh.run("rm", "llama@1", "other@10", *AT)
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    sh.run("rm", "llama@2", "llama@3", *AT)
    check(in_trash(sh) == [("llama", 3), ("llama", 2), ("llama", 1), ("other", 10)], "")
    check(in_trash(sh, "--run", "oth*") == [("other", 10)] and in_trash(sh, "--since", between) == [("llama", 3), ("llama", 2)], "filters")
    check(sh.run("list", "--trash", "-q", "-n", "2", *AT).out == "llama@3\nllama@2\n", "-q")
    sh.run("list", "--trash", "--where", "step > 1", *AT, code=2, err="--where does not work with --trash")
    code, text = sh.terminal("list", "--trash", *AT, columns=80)
    check(code == 0 and "4 in the trash, " in text and "ckpt undelete NAME, RUN or --all --store store" in text, text)
    check(max(len(line) for line in text.split("\r\n")) <= 80, text)
    sh.run("undelete", "--since", between, *AT, out=["^restored llama@2$", "^restored llama@3$"], not_out="llama@1")
    sh.run("undelete", "other", *AT, out="^restored other@10$")
    check(in_trash(sh) == [("llama", 1)], "")
    sh.run("undelete", "--all", "llama@1", *AT, code=2, err="cannot be used together")
    sh.run("undelete", "--all", *AT, out="^restored llama@1$")
    check(steps(run) == [1, 2, 3, 4] and steps(other) == [10, 20, 30] and in_trash(sh) == [], "")
    sh.run("undelete", "llama@9", *AT, code=10, err="not in the trash")


def case_what_is_restored_has_a_new_grace_or_a_pin(sh):
    run = store(sh)
    prune = ("prune", *AT, "--keep-last", "2", "--purge-early-below", "0", "--apply", "-y")
    sh.run(*prune, "--grace", "3s")
    check(steps(run) == [3, 4], str(steps(run)))
    sh.run("undelete", "llama@1", *AT, out="^prune keeps it until 20")
    sh.run("undelete", "llama@2", "--pin", *AT, out="^pinned: ")
    sh.run(*prune, out=r"llama@1 +.* +keep +restored from the trash; .* of its new grace left \(no rule keeps it\)")
    check(steps(run) == [1, 2, 3, 4], "deleted at once")
    time.sleep(3.2)
    sh.run(*prune)
    check(steps(run) == [2, 3, 4], "the grace never ends, or the pin does not hold")


def case_marks_come_after_the_save(sh):
    run = store(sh)
    for step, loss in ((1, 1.5), (2, 1.2), (3, 1.4)):
        sh.run("mark", f"llama@{step}", "--metric", f"eval_loss={loss}", *AT, out=f"^llama@{step}   eval_loss={loss}$")
    sh.run("why", "llama@best", *AT, out="^llama@2   kept$")
    sh.run("prune", *AT, "--keep-best", "eval_loss:1", "--apply", "-y", "--purge-early-below", "0")
    check(steps(run) == [2, 4], f"the best by the new metric, and the newest: {steps(run)}")
    sh.run("mark", "llama@best", "--metric", "eval_loss=9", "--tag", "release", "--tag", "b", "--note", "for a friend", *AT,
           out="^llama@2   eval_loss=9   tags b, release   note for a friend$")
    one = sh.document("mark", "llama@release", "--remove-tag", "b", "--remove-note", "--metric", "acc=0.5", *AT)["data"]["checkpoint"]
    check((one["tags"], one["notes"], [m["name"] for m in one["metrics"]]) == (["release"], [], ["acc", "eval_loss"]), str(one))
    sh.run("mark", "llama@2", "--remove-tag", "releas", *AT, code=10, err=["no tag 'releas'", "did you mean 'release'"])
    sh.run("mark", "llama@2", "--remove-metric", "acc", *AT, not_out="acc")
    sh.run("mark", "llama@2", *AT, code=2, err="nothing to record")
    sh.run("mark", "llama@2", "--metric", "loss", *AT, code=2, err="not NAME=NUMBER")


def case_metrics_of_the_trainer_are_read_and_can_be_overridden(sh):
    run = sh.path("store/hf")
    for step, loss in ((1, 1.5), (2, 1.2), (3, 1.4)):
        target = run / f"checkpoint-{step}"
        shutil.copytree(sh.checkpoint("folders/hf_trainer"), target)
        state = {"global_step": step, "log_history": [{"step": 1, "loss": 4.0}, {"step": step, "eval_loss": loss, "eval_runtime": 7.0}]}
        (target / "trainer_state.json").write_text(json.dumps(state).replace("4.0", "NaN"))
    os.system(f"find '{run}' -exec touch -d '1 day ago' {{}} +")
    for _ in range(2):  # the second time from the index, if there is one
        listed = sh.document("list", *AT)["data"]["checkpoints"]
        check([[(m["name"], m["value"]) for m in c["metrics"]] for c in listed] == [[("eval_loss", v)] for v in (1.4, 1.2, 1.5)], str(listed))
    check(not (sh.path("store") / ".ckpt").exists(), "a listing wrote into a directory that is no store")
    sh.run("why", "hf@best", *AT, out="^hf@2   kept$")
    sh.run("mark", "hf@2", "--remove-metric", "eval_loss", *AT, code=2, err=["was saved with the checkpoint", "--metric eval_loss=X overrides it"])
    sh.run("mark", "hf@2", "--metric", "eval_loss=7", *AT, out="^hf@2   eval_loss=7$")
    sh.run("prune", *AT, "--keep-best", "eval_loss:1", "--apply", "-y", "--purge-early-below", "0")
    check(sorted(p.name for p in run.iterdir()) == ["checkpoint-3"], str(list(run.iterdir())))


def case_what_a_trainer_measured_is_saved_with_it(sh):
    trainer = sh.path("checkpoint-2")
    shutil.copytree(sh.checkpoint("folders/hf_trainer"), trainer)
    state = {"global_step": 2, "log_history": [{"step": 2, "eval_loss": 1.5}, {"step": 2, "loss": 2.0}]}
    (trainer / "trainer_state.json").write_text(json.dumps(state))
    sh.run("save", trainer, "--run", "hf", "--metric", "loss=3", *AT, code=(0, 3))
    one, = sh.document("list", *AT)["data"]["checkpoints"]
    check({m["name"]: m["value"] for m in one["metrics"]} == {"eval_loss": 1.5, "loss": 3}, str(one))


def case_names_in_the_trash_tell_saves_of_one_step_apart(sh):
    source = sh.checkpoint("safetensors/single")
    for dtype in ("bf16", "fp16"):
        sh.run("convert", source, f"{dtype}.safetensors", "--dtype", dtype)
        sh.run("save", f"{dtype}.safetensors", "--run", "a", "--step", "1", *AT)
    sh.run("rm", "a@1.g1", *AT, out="^deleted a@1.g1, ")
    sh.run("list", "--trash", *AT, out="^a@1.g1 ")
    sh.run("undelete", "a@1.g1", *AT, out="^restored a@1.g1$")
    sh.run("save", source, "--run", "a", "--step", "2", *AT)
    sh.run("rm", "a@1.g2", "a@1.g1", *AT)
    sh.run("list", "--trash", *AT, out=["^a@1.g1 ", "^a@1.g2 "])


def case_checkpoints_of_other_tools_are_marked_and_removed(sh):
    run = sh.path("store/ds")
    for step in (1, 2, 3):
        shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4") / "global_step3", run / f"global_step{step}")
    os.system(f"find '{run}' -exec touch -d '1 day ago' {{}} +")
    sh.run("mark", "ds@1", "--metric", "loss=1", "--tag", "t", *AT)
    one = sh.document("list", "--tag", "t", *AT)["data"]["checkpoints"]
    check([c["step"] for c in one] == [1] and one[0]["metrics"][0]["value"] == 1, str(one))
    sh.run("rm", "ds@2", *AT, out="^deleted ds@2, ")
    sh.run("undelete", "ds", *AT, out="^restored ds@2$")
    check(sorted(p.name for p in run.iterdir()) == [f"global_step{n}" for n in (1, 2, 3)], "")


def case_unpin_tells_of_other_pins(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "1")
    sh.run("pin", "r@1", "--label", "paper", *AT)
    for more, which in (((), "without a label"), (("--label", "papre"), "as 'papre'")):
        sh.run("unpin", "r@1", *more, *AT, out=f"^r@1 was not pinned {which}; still pinned: paper$")
    sh.run("pin", "r@1", *AT)
    sh.run("unpin", "r@1", *AT, out="^unpinned r@1; still pinned: paper$")
    sh.run("unpin", "r@1", "--label", "paper", *AT, out="^unpinned r@1$")
    sh.run("unpin", "r@1", *AT, out="^r@1 was not pinned$")


def case_no_store_is_made_among_a_stores_own_files(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "1")
    for place in (".ckpt", ".ckpt/trash", ".ckpt/new"):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", f"{AT[1]}/{place}", "--run", "q", "--step", "1", code=2,
               err=r"\.ckpt is where a store keeps its own files")
        check(not (sh.path(AT[1]) / place / "q").exists(), "a run")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
