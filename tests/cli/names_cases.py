"""Every verb that reads a checkpoint takes a path, or its name in a store."""
import os
import shutil

from runner import check, main

SOURCE = "ckpt/1.0-mesh"
STORE = ("--store", "runs")


def make_store(sh):
    """Steps 7 (loss 1) and 8 (loss 2) of one run; the paths of both."""
    for step, loss in ((7, 1), (8, 2)):
        sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "demo", "--step", str(step), "--metric", f"loss={loss}")
    return [sh.path(f"runs/demo/step-00000000{step}.g{step - 6}") for step in (7, 8)]


def case_the_best_is_the_lowest_or_the_highest_by_the_name_of_its_metric(sh):
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7)):
        sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "demo", "--step", str(step), "--metric", f"eval/acc={accuracy}")
    def step_of(name):
        return sh.document("inspect", name, *STORE)["data"]["path"].split("/")[-1]
    for name, step in (("@best", 2), ("demo@best:eval/acc", 2), ("demo@best:eval/acc:min", 1), ("demo@best:eval/acc:max", 2)):
        check(step_of(name) == f"step-00000000{step}.g{step}", name)
    sh.run("status", *STORE, out=r"^demo .* 2 \(eval/acc 0\.9\)")
    sh.path("runs/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { best = { metric = "eval/acc", n = 1, lower = true } }\n')
    for name in ("@best", "demo@best:eval/acc"):
        check(step_of(name) == "step-000000001.g1", f"{name} against the policy")


def case_verbs_that_read_a_checkpoint_take_its_name(sh):
    best, newest = make_store(sh)
    sh.run("verify", "demo@7", *STORE, out="^demo@7   ok ")
    data = sh.document("verify", "@latest", "--against", "@best", *STORE)["data"]
    check((data["path"], data["against"]["path"]) == ("runs/demo/" + newest.name, "runs/demo/" + best.name), str(data))
    for name, place in (("demo@latest", newest), ("demo@latest~1", best), ("@best", best), (f"demo@{best.name}", best)):
        check(sh.document("inspect", name, *STORE)["data"]["path"] == "runs/demo/" + place.name, name)
    tensors = sh.run("ls", "-q", newest).out
    check(sh.run("ls", "-q", "@latest", *STORE).out == tensors, "other tensors")
    tensor = tensors.splitlines()[0]
    sh.run("export", "demo@8", "a.npy", "--only", tensor, *STORE, out="^done ")
    sh.run("convert", "@best", "best", *STORE, out="^done ")
    sh.run("verify", "best", "--against", best, out="0 different")
    sh.run("repair", "demo@7", *STORE, out="1 checkpoint checked")
    sh.run("save", "demo@7", *STORE, "--run", "fork", "--step", "7", out="^saved   fork@")


def case_beside_another_tools_checkpoints_the_latest_goes_by_step(sh):
    make_store(sh)
    for step in (5, 20):
        shutil.copytree(sh.checkpoint("safetensors/single"), sh.path(f"runs/demo/checkpoint-{step}"))
        for path in [*sh.path(f"runs/demo/checkpoint-{step}").iterdir(), sh.path(f"runs/demo/checkpoint-{step}")]:
            os.utime(path, (1_700_000_000, 1_700_000_000))
    steps = [c["step"] for c in sh.document("list", *STORE)["data"]["checkpoints"]]
    check(steps == [20, 8, 7, 5], str(steps))
    for number, step in enumerate(steps):
        path = sh.document("inspect", f"demo@latest~{number}", *STORE)["data"]["path"]
        check(path.endswith(f"checkpoint-{step}") or f"-{step:09}." in path, f"latest~{number}: {path}")
    sh.run("status", *STORE, out="^demo +4 .* 20 ")
    sh.run("inspect", "runs/demo", err="^note: runs/demo is a run: using demo@20, ")
    sh.run("rm", "demo@20", "demo@8", *STORE, code=3, out="^deleted demo@8, ", err="demo@20: not deleted: the newest of its run")


def case_in_a_directory_of_a_store_commands_take_that_store(sh):
    older, newest = make_store(sh)
    inside = ("env", "-C", newest.parent)
    for directory in (newest.parent, newest):
        sh.run("list", launcher=("env", "-C", directory), out=["^demo +8 ", "^demo +7 "])
    sh.run("verify", "demo@8", launcher=inside, out="^demo@8   ok ")
    sh.run("prune", "--keep-last", "1", launcher=inside, out=["^store   .*/runs$", "^demo +2 +1 +1 "])
    sh.run("mark", older.name, "--tag", "x", launcher=inside, out="^demo@7 .* tags x")
    sh.run("rm", "demo@7", launcher=inside, out="^deleted demo@7, ")
    sh.run("list", "--trash", *STORE, out="^demo@7 ")
    # A run is no store of its own: it would get another trash.
    for words in (("prune", "--keep-last", "1"), ("prune", "--keep-last", "1", "--apply", "-y"), ("rm", "x@8")):
        store = os.path.realpath(sh.path("runs"))
        sh.run(*words, "--store", ".", launcher=inside, code=2, err=[r"^error: \.: lies in the store ", f"hint: --store {store}"])
    check(sorted(path.name for path in newest.parent.iterdir()) == [newest.name], "a store in the run")


def case_the_directory_above_a_run_is_its_store_wherever_a_command_runs(sh):
    make_store(sh)
    for place in ("demo", "demo/step-000000008.g2", "demo/step-000000008.g2/shards"):
        shutil.copytree(sh.path("runs/demo"), sh.path("bare/demo"))
        inside = ("env", "-C", sh.path("bare") / place)
        check(sh.run("list", "-q", launcher=inside).out == "demo@8\ndemo@7\n", "list")
        sh.run("verify", "--all", launcher=inside, out="^2 of 2 checkpoints checked")
        sh.run("rm", "@7", launcher=inside, out="^deleted demo@7, ")
        check(sh.path("bare/.ckpt/trash/demo").is_dir(), "no trash in the store")
        check([str(path) for path in sh.path("bare/demo").rglob(".ckpt")] == [], "a store in the run")
        shutil.rmtree(sh.path("bare"))
    for place in ("runs/demo", "runs/demo/step-000000008.g2"):
        sh.run("save", sh.checkpoint(SOURCE), "--store", place, "--run", "y", "--step", "1", code=2,
               err=r"runs/demo.*: (lies in the store|is or lies in a checkpoint)")


def case_reading_far_above_runs_makes_no_store_of_all_below(sh):
    make_store(sh)
    shutil.copytree(sh.path("runs/demo"), sh.path("all/a/runs/demo"))
    check(sh.run("list", "-q", "--store", "all").out == "a/runs/demo@8\na/runs/demo@7\n", "list")
    sh.run("status", "all", out="^a/runs/demo ")
    check(not sh.path("all/.ckpt").exists(), "a store")
    sh.path("all/.ckpt").mkdir()  # a store that someone has made; one below has its own policy
    sh.path("all/a/runs/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')
    inside = ("env", "-C", sh.path("all/a/runs"))
    sh.run("prune", launcher=inside, out=["^policy  .*ckpt.toml", "^demo +2 +1 +1"])
    sh.run("prune", "--apply", "-y", launcher=inside, out="^1 checkpoint moved to the trash")
    check(sh.path("all/a/runs/.ckpt/trash/demo").is_dir(), "in another trash")


def case_a_run_of_a_store_is_listed_by_its_path_and_latest_is_its_own(sh):
    make_store(sh)
    sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "other", "--step", "9")
    check(sh.run("list", "runs/demo", "-q").out == "demo@8\ndemo@7\n", "list")
    sh.run("status", "runs/demo", out="^demo ", not_out="^other ")
    inside = ("env", "-C", sh.path("runs/demo"))
    check(sh.document("inspect", "@latest", launcher=inside)["data"]["path"].endswith("demo/step-000000008.g2"), "not of this run")
    sh.run("pin", "@7", launcher=inside, out="^pinned demo@7$")
    for command in (("prune", "runs", "--keep-last", "1"), ("verify", "--all", "runs"), ("undelete", "runs")):
        sh.run(*command, code=10, err=["^error: runs: a store, not a run$", "^hint: write: --store runs$"])


def case_a_runs_name_may_hold_the_sign_that_separates(sh):
    for step in ("7", "8"):
        sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "a@b", "--step", step, out=f"^saved   a@b@{step}")
    directory = sorted(path.name for path in sh.path("runs/a@b").iterdir())[0]
    names = ["a@b@7", f"a@b@{directory}", f"a@b/{directory}", f"runs/a@b/{directory}"]
    for name in names:
        sh.run("pin", name, *STORE, out="^pinned a@b@7")
        sh.run("unpin", name, *STORE, out="^unpinned a@b@7")
        sh.run("why", name, *STORE, out=["^a@b@7   kept$", "the store has no policy"])
        sh.run("rm", name, *STORE, out="^deleted a@b@7, ")
        sh.run("undelete", name if name != names[3] else names[0], *STORE, out="a@b@7")


def case_latest_tells_what_newer_is_passed_over(sh):
    best, newest = make_store(sh)
    sh.run("inspect", "demo@latest", *STORE, not_err="newer")
    (newest / "manifest.json").unlink()
    for words in (("inspect", "demo@latest"), ("verify", "demo@latest"), ("convert", "demo@latest", "out")):
        sh.run(*words, *STORE, err=r"^note: using demo@7; newer, but not usable: demo@8 \(repairable\)$")


def case_the_store_of_a_path_comes_before_the_environment(sh):
    make_store(sh)
    shutil.copytree(sh.path("runs"), sh.path("other"))
    here = "runs/demo/step-000000007.g1"
    sh.run("mark", here, "--tag", "t", env={"CKPT_STORE": "other"}, out="^demo@7   .*tags t$")
    check(sh.run("list", "-q", "--tag", "t", *STORE).out.split() == ["demo@7"], "not marked")
    sh.run("list", "-q", "--tag", "t", "--store", "other", not_out="demo")
    sh.run("rm", here, "--store", "other", code=2, err=f"{here}: not in the store other$")


def case_an_id_names_a_checkpoint(sh):
    best, _ = make_store(sh)
    one = next(c for c in sh.document("list", *STORE)["data"]["checkpoints"] if c["step"] == 7)
    check(sh.document("inspect", one["id"][:8], *STORE)["data"]["path"] == "runs/demo/" + best.name, one["id"])


def case_a_path_that_exists_comes_before_a_name(sh):
    make_store(sh)
    shutil.copytree(sh.checkpoint("torch/dcp_plain"), sh.path("demo@7"))
    sh.run("inspect", "demo@7", *STORE, out="^dcp")
    sh.path("demo@8").write_text("no checkpoint")
    sh.run("inspect", "demo@8", *STORE, code=12, err="demo@8")


def case_the_store_is_given_or_in_the_environment_or_here(sh):
    make_store(sh)
    sh.run("verify", "demo@7", env={"CKPT_STORE": "runs"}, out="^demo@7   ok ")
    sh.run("verify", "demo@7", "--quick", "--store", "nowhere", code=10, err="nowhere")
    before = sorted(os.listdir(sh.directory))
    sh.run("verify", "demo@7", code=10, err=["demo@7: no such file or directory$", "--store"])
    check(sorted(os.listdir(sh.directory)) == before, "a catalog where there is no store")
    os.rename(sh.path("runs"), sh.path("old"))
    for entry in (".ckpt", "demo"):
        os.rename(sh.path("old") / entry, sh.path(entry))
    sh.run("verify", "@latest", out="^@latest   ok ")


def case_a_run_may_be_given_by_its_path(sh):
    make_store(sh)
    for verb, more in (("verify", ()), ("inspect", ()), ("ls", ()), ("convert", ("x.safetensors",)), ("plan", ("--bw", "1G")), ("why", ()),
                       ("pin", ()), ("unpin", ()), ("mark", ("--tag", "x"))):
        sh.run(verb, "runs/demo@8", *more)
        sh.run(verb, "runs/demo@9", *more, code=10, err="demo@9: (run 'demo' has no step 9|no such checkpoint in)")
    sh.run("inspect", "runs/demo@x", out="^ckpt .* step 8")
    sh.run("diff", "runs/demo@8", "runs/demo@latest", out=" identical, 0 different")
    sh.path("other/.ckpt").mkdir(parents=True)  # in another store, only a path that can be no name
    for word in ("../runs/demo@8", sh.path("runs/demo@8")):
        sh.run("inspect", word, launcher=["env", "-C", sh.path("other")], out="^ckpt .* step 8")
        sh.run("rm", "-n", word, launcher=["env", "-C", sh.path("other")], code=3, err="demo@8: not deleted")
    sh.run("rm", "-n", "runs/demo@8", "other/demo@8", code=(2, 10))


def case_what_is_neither_path_nor_name_is_said_alike_by_every_verb(sh):
    make_store(sh)
    words = {"verify": (), "inspect": (), "ls": (), "export": ("x.npy",), "convert": ("x",), "repair": (), "plan": ("--bw", "1G"),
             "save": ("--run", "r", "--step", "1")}
    for verb, more in words.items():
        sh.run(verb, "demo@9", *more, *STORE, code=10, err=["demo@9: run 'demo' has no step 9 .in runs; not a path either",
                                                            "nearest: 8"])
        sh.run(verb, "dem@7", *more, *STORE, code=10, err="did you mean 'demo'")
        sh.run(verb, "nowhere", *more, *STORE, code=10, err="nowhere")
    check(not sh.path("x").exists(), "something was made")


def case_another_tools_directory_that_looks_like_a_step_is_named_by_its_path(sh):
    make_store(sh)
    theirs = sh.path("runs/demo/7")
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4") / "global_step3", theirs)
    for file in [*theirs.rglob("*"), theirs]:
        os.utime(file, (1_700_000_000, 1_700_000_000))
    check(sh.run("list", "-q", *STORE).out.split() == ["demo@8", "demo@7", "demo/7"], "names")
    for name, directory in (("demo@7", "step-000000007.g1"), ("demo/7", "7")):
        check(sh.document("inspect", name, *STORE)["data"]["path"] == "runs/demo/" + directory, name)
    sh.run("rm", "demo/7", *STORE, out=["^deleted demo/7, ", "ckpt undelete demo/7 "])
    check(sh.path("runs/demo/step-000000007.g1").exists() and not theirs.exists(), "another one went")
    sh.run("list", "--trash", *STORE, out="^demo/7 ")
    sh.run("undelete", "demo/7", *STORE, out="^restored demo/7$")
    sh.run("list", *STORE, out=["^demo +7 ", "^demo +/7 "])
    sh.run("why", "demo/7", *STORE, out=["^demo/7   kept$", "^demo/7   deleted "], not_out="demo@7")
    sh.run("rm", "demo@7", *STORE, out="^deleted demo@7.g1, ")
    check(sh.run("list", "--trash", "-q", *STORE).out == "demo@7.g1\n", "the step is also that of the other one")
    sh.run("undelete", "demo@7.g1", *STORE, out="^restored ")


def case_what_lies_in_a_save_that_lost_its_manifest_is_not_that_save(sh):
    make_store(sh)
    lost = sh.path("runs/demo/step-000000009.g3")
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4"), lost)
    below = sh.path("runs/demo/step-000000010.g4")
    shutil.copytree(sh.path("runs/demo/step-000000008.g2"), below / "inner")
    for name, directory in (("demo@9", lost), ("demo@10", below)):
        for word in (name, directory):
            for words in (("verify", word), ("inspect", word), ("convert", word, "out")):
                sh.run(*words, *STORE, code=13, err="manifest.json is missing")
    sh.run("verify", "--all", *STORE, code=1, out=["^demo@9   INCOMPLETE", "^demo@10   INCOMPLETE", "2 ok · 0 damaged · 2 incomplete"])
    sh.run("list", *STORE, out=["^demo +10 +incomplete", "^demo +9 +incomplete"])
    sh.run("why", "demo@9", *STORE, out="^  state     incomplete")
    sh.run("inspect", lost, "--from", "deepspeed", out="^deepspeed ")
    check(not sh.path("out").exists(), "something was written")


def case_in_a_given_store_a_run_may_be_a_path(sh):
    make_store(sh)
    for words in (("inspect", "runs/demo@7"), ("why", "runs/demo@7"), ("pin", "runs/demo@7"), ("unpin", sh.path("runs/demo@7")), ("rm", "-n", "./runs/demo@7")):
        sh.run(*words, *STORE)
    inside = ("env", "-C", sh.path("runs/demo/step-000000007.g1"))
    for words in (("why", "."), ("pin", "."), ("unpin", "../step-000000007.g1/."), ("rm", "-n", "shards/..")):
        sh.run(*words, launcher=inside, out="demo@7")


def case_why_names_what_is_deleted_as_the_trash_does(sh):
    make_store(sh)
    sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "demo", "--step", "7", "--back-to", "6", "--metric", "loss=0.5")
    sh.run("rm", "demo@7.g1", *STORE, out="^deleted demo@7.g1")
    for name in ("demo@7", "demo@7.g1"):
        sh.run("why", name, *STORE, out="^demo@7.g1   deleted ")
    # Of several saves of a step, status says which.
    sh.run("save", sh.checkpoint("safetensors/single"), *STORE, "--run", "demo", "--step", "7", "--metric", "loss=3")
    run = next(r for r in sh.document("status", *STORE)["data"]["runs"] if r["run"] == "demo")
    check((run["newest"], run["best"]["name"]) == ("demo@7", "demo@7.g3"), str(run))
    newest = sh.path("runs/demo/step-000000007.g4")
    for manifest in (newest / "manifest.json", newest / "index/manifest.json"):
        manifest.unlink()
    run = next(r for r in sh.document("status", *STORE)["data"]["runs"] if r["run"] == "demo")
    check(run["newest"] == "demo@7.g3" and run["newest_directory"].endswith(".g3"), str(run))
    sh.run("status", *STORE, out=r"^demo .* 7\.g3 .* 7\.g3 \(loss 0\.5\)")
    directory = sh.path("runs/.ckpt/trash/demo/step-000000007.g1.json")
    directory.write_text("no record")
    sh.run("why", "demo@7.g1", *STORE, out="^demo@7.g1   in the trash; its deletion record is unreadable")


def case_without_a_policy_why_tells_programs_as_much_as_people(sh):
    make_store(sh)
    one = sh.document("why", "demo@7", *STORE)["data"]["undecided"][0]
    check((one["name"], one["step"], one["state"], one["why"]) == ("demo@7", 7, "complete", "the store has no policy"), str(one))
    sh.run("why", "demo@best:los", *STORE, code=10, err=["no checkpoint of run 'demo' has the metric 'los'", "did you mean 'loss'"])


def add_others(sh, *names, source="safetensors/single"):
    """Checkpoints of other tools in the run demo, long finished."""
    for name in names:
        at = sh.path("runs/demo") / name
        shutil.copytree(sh.checkpoint(source), at)
        for path in [*at.rglob("*"), at]:
            os.utime(path, (1_700_000_000, 1_700_000_000))


def case_names_of_a_part_of_the_list_are_those_of_the_whole(sh):
    make_store(sh)
    add_others(sh, "checkpoint-30", "checkpoint_30", "step_30", "iter_30")
    rows = [(r["name"], r["directory"]) for r in sh.document("list", *STORE)["data"]["checkpoints"]]
    for limit in range(1, 7):
        part = [(r["name"], r["directory"]) for r in sh.document("list", "-n", str(limit), *STORE)["data"]["checkpoints"]]
        check(part == rows[:limit], f"{part} of {rows}")
    for n, (name, directory) in enumerate(rows[:4]):
        for word in (name, f"demo@latest~{n}"):
            check(sh.document("inspect", word, *STORE)["data"]["path"] == "runs/demo/" + directory, f"{word}: not {directory}")
    check(sh.document("status", *STORE)["data"]["runs"][0]["newest_directory"] == rows[0][1], "another newest")
    check(sh.run("list", "-q", "--where", "step == 30", "-n", "1", *STORE).out == rows[0][0] + "\n", "filtered")


def case_going_back_supersedes_other_tools_later_checkpoints(sh):
    make_store(sh)
    add_others(sh, "checkpoint-50")
    sh.run("save", sh.checkpoint("safetensors/single"), *STORE, "--run", "demo", "--step", "30", "--back-to", "8", out="series 1 begins")
    check(sh.document("inspect", "demo@latest", *STORE)["data"]["path"].endswith("step-000000030.g3"), "another latest")
    sh.run("list", *STORE, out="^demo +50 +superseded")
    sh.run("rm", "-n", "demo@30", *STORE, code=3, err="the newest of its run")
    sh.run("save", sh.checkpoint("safetensors/llama_sharded"), *STORE, "--run", "demo", "--step", "31", "--back-to", "30", out="no new series")


def case_what_latest_names_is_what_prune_and_rm_call_the_newest(sh):
    make_store(sh)
    add_others(sh, "checkpoint-100")
    for source, step, more in (("single", 35, ("--back-to", "7")), ("llama_sharded", 30, ())):
        sh.run("save", sh.checkpoint("safetensors/" + source), *STORE, "--run", "demo", "--step", str(step), *more)
    latest = sh.document("inspect", "demo@latest", *STORE)["data"]["path"]
    check(latest.endswith("step-000000035.g3"), latest)
    sh.run("rm", "-n", "demo@latest", *STORE, code=3, err="demo@35: not deleted: the newest of its run")
    sh.run("rm", "-n", "demo@30", *STORE, out="would delete demo@30")


def case_a_lost_manifest_does_not_end_the_grace_of_what_is_superseded(sh):
    make_store(sh)
    sh.run("save", sh.checkpoint("safetensors/single"), *STORE, "--run", "demo", "--step", "7", "--back-to", "6")
    newest = sh.path("runs/demo/step-000000007.g3")
    kept = r"^demo@8 .* keep .* left"
    sh.run("prune", "--keep-last", "1", "-v", *STORE, out=kept)
    (newest / "manifest.json").unlink()
    sh.run("prune", "--keep-last", "1", "-v", *STORE, out=kept)
    for verb in ("verify", "inspect"):
        sh.run(verb, newest, code=13, err=["manifest.json is missing; its copy index/manifest.json is there", "^hint: 'ckpt repair "])
    sh.run("repair", newest, "--apply", out="repaired")
    sh.run("verify", newest)


def case_status_counts_what_names_mean(sh):
    for step in (10, 20):
        sh.run("save", sh.checkpoint(SOURCE), *STORE, "--run", "demo", "--step", str(step), "--metric", "loss=1")
    def best():
        return sh.document("status", *STORE)["data"]["runs"][0]["best"]["name"]
    check(best() == "demo@20", best())  # of equal ones the newest, as RUN@best
    sh.run("rm", "demo@10", *STORE)
    sh.run("undelete", "demo@10", *STORE)
    check(best() == "demo@20", best())
    sh.run("verify", "demo@20", *STORE)
    sh.run("save", sh.checkpoint("safetensors/single"), *STORE, "--run", "demo", "--step", "15", "--back-to", "10")
    run = sh.document("status", *STORE)["data"]["runs"][0]
    check((run["verified"], run["verified_step"], run["newest"]) == (0, None, "demo@15"), str(run))
    sh.run("list", "--state", "verified", *STORE, out="^none of ")


def case_in_a_run_no_command_takes_it_for_a_store(sh):
    make_store(sh)
    sh.run("rm", "demo@7", *STORE)
    inside = ("env", "-C", sh.path("runs/demo"))
    sh.run("list", "--trash", "--store", ".", launcher=inside, out=["^demo@7 ", f"--all --store {os.path.realpath(sh.path('runs'))}$"])
    for words in (("undelete", "--all"), ("undelete", "demo@7"), ("next-save", "demo", "--every", "1h"), ("policy", "show"), ("policy", "init"),
                  ("prune", "--keep-last", "1")):
        sh.run(*words, "--store", ".", launcher=inside, code=2, err=r"^error: \.: lies in the store ")
    check(not sh.path("runs/demo/ckpt.toml").exists(), "a policy of the run")
    sh.run("undelete", "demo@7", launcher=inside, out="^restored demo@7")
    add_others(sh, "7")
    for words in (("verify", "demo/7"), ("inspect", "demo/7")):
        sh.run(*words, launcher=inside)
    for word in ("demo/", "./demo"):
        sh.run("next-save", word, "--step", "9", "--every-steps", "100", *STORE, code=1, out="last step 8")
    sh.run("next-save", "de*", "--every", "1h", *STORE, code=2, err="a pattern")
    shutil.copytree(sh.path("runs/demo"), sh.path("runs/group/x"))
    for words in (("list", "--run", "group"), ("status", "--run", "group")):
        sh.run(*words, *STORE, code=10, err="^hint: 'group/\\*' are its runs")
    sh.run("undelete", "group/x", *STORE, code=10, err="not in the trash")


def case_a_trainers_folder_with_deepspeeds_inside_is_one_checkpoint(sh):
    make_store(sh)
    for step in (500, 1000):
        at = sh.path(f"runs/hf/checkpoint-{step}")
        shutil.copytree(sh.checkpoint("folders/hf_trainer"), at)
        shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4") / "global_step3", at / f"global_step{step}")
        (at / "latest").write_text(f"global_step{step}")
    check(sh.run("list", "--run", "hf*", "-q", *STORE).out.split() == ["hf@1000", "hf@500"], "other checkpoints")
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4"), sh.path("runs/ds/100"))  # a run called 100
    check(sh.run("list", "--run", "ds*", "-q", *STORE).out.split() == ["ds/100@3"], "no run")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
