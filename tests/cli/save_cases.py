"""ckpt save: files become a checkpoint of a store."""
import json
import os
import shutil
import tempfile
import time

from runner import check, main

AT = ("--store", "runs")


def save(sh, source, run, step, *words, **more):
    return sh.document("save", sh.checkpoint(source), *AT, "--run", run, "--step", str(step), *words, **more)["data"]


def listed(sh, *words):
    return sh.document("list", *AT, *words)["data"]["checkpoints"]


def tree(place):
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def case_a_generation_that_the_catalog_cannot_hold_is_never_given(sh):
    """A save that is reported must be listed."""
    run = sh.path("st/r")
    (run / f"step-000000001.g{2**64 - 1}").mkdir(parents=True)  # no name that a save makes
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "5", out="r@5$")
    (run / f"step-000000001.g{2**63 - 1}").mkdir()
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "6", code=2,
           err=["no generation is left", "move what has this name out of the run"])
    check(not list(run.glob("step-000000006*")), "saved where nobody finds it")


def case_a_save_makes_the_store_and_is_listed_with_all_that_was_said(sh):
    sh.run("save", sh.checkpoint("torch/dcp_plain"), *AT, "--run", "prod/demo", "--step", "1000", "--metric", "loss=1.75", "--metric",
           "odd=nan", "--metric", "loss=1.5", "--tag", "a", "--tag", "b", "--pin-reason", "cited", "--note", "of the paper",
           out=["^store   runs was created$", "^done ", "^saved   prod/demo@1000$", "^next: ckpt list --store runs$"])
    place = sh.path("runs/prod/demo/step-000001000.g1")
    sh.run("verify", place, "--against", sh.checkpoint("torch/dcp_plain"), out="ok ")
    check(len(os.listdir(sh.path("runs/.ckpt/inbox"))) == 1 and not sh.path("runs/.ckpt/catalog.sqlite").exists(), "a save opens no database")
    one, = listed(sh)
    check(not os.listdir(sh.path("runs/.ckpt/inbox")), "the note was not folded in")
    check((one["run"], one["step"], one["generation"], one["series"]) == ("prod/demo", 1000, 1, 0), str(one))
    check({m["name"]: m["value"] for m in one["metrics"]} == {"loss": 1.5, "odd": "nan"}, str(one["metrics"]))
    check(one["tags"] == ["a", "b"] and one["notes"] == ["of the paper"], str(one))
    check([(p["label"], p["reason"]) for p in one["pins"]] == [("", "cited")] and one["pins"][0]["owner"], str(one["pins"]))
    sh.run("list", *AT, "-q", "--tag", "b", out="^prod/demo@1000$")
    manifest = json.loads((place / "manifest.json").read_text())
    check(manifest["run"] == "demo" and manifest["generation"] == 1 and manifest["step"] == 1000, "not in the manifest")


def case_what_is_imported_is_as_old_as_its_source(sh):
    day = 86400
    now = int(time.time())
    for step, days in ((1, 40), (2, 39), (3, 39), (4, 0)):
        source = sh.path(f"source-{step}")
        shutil.copytree(sh.checkpoint("safetensors/single"), source)
        for path in [*source.rglob("*"), source]:
            os.utime(path, (now, now - days * day + step - 10))
        told = sh.run("save", source, *AT, "--run", "r", "--step", str(step), "--pin" if step == 2 else "--tag=t",
                      out=f"^dated   {days} d ago: time rules count from .*, when the newest file of SRC was written$" if days else ())
        check(days or "age" not in told.out, "a new one's age")
    created = [one["created"] for one in listed(sh)]
    check(created == sorted(created, reverse=True), str(created))
    # An old history imported at once is thinned by its training days, and `within` has passed.
    for rule, kept in (("--keep-daily=9", {1, 2, 3, 4}), ("--keep-daily=2", {2, 3, 4}), ("--keep-within=2d", {2, 4})):
        plan = sh.document("prune", *AT, rule, "-y")["data"]["checkpoints"]
        check({one["step"] for one in plan if one["decision"] == "KEEP"} == kept, f"{rule}: {plan}")
    # A link keeps the time of the save.
    linked = sh.document("save", "r@1", *AT, "--run", "fork", "--step", "1", "--link")["data"]["checkpoint"]
    check(linked["created"][:19] == created[-1][:19], f"{linked} {created}")


def case_the_same_save_again_is_done_and_says_what_is_new(sh):
    first = save(sh, "safetensors/single", "r", 7, "--metric", "loss=2")
    place = sh.path("runs/r/step-000000007.g1")
    before = tree(place)
    again = save(sh, "safetensors/single", "r", 7)
    check(again["conversion"]["already_done"] and not again["checkpoint"]["marked_later"], str(again))
    check(again["checkpoint"]["directory"] == first["checkpoint"]["directory"] == "step-000000007.g1" and tree(place) == before, "it was touched")
    marked = save(sh, "safetensors/single", "r", 7, "--metric", "loss=1", "--pin")
    check(marked["conversion"]["already_done"] and marked["checkpoint"]["marked_later"], str(marked))
    one, = listed(sh)
    check([m["value"] for m in one["metrics"]] == [1] and len(one["pins"]) == 1, str(one))
    sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "7", "-q", out=r"\Ar@7\n\Z")


def case_a_damaged_one_is_not_already_done(sh):
    save(sh, "safetensors/single", "r", 7)
    place = sh.path("runs/r/step-000000007.g1")
    shard = next(place.glob("shards/*/*.safetensors"))
    bytes_of = {path: path.read_bytes() for path in (shard, place / "sums.bin")}
    for path, content in bytes_of.items():
        for left in (None, content[:-1]):
            path.unlink(missing_ok=True)
            if left is not None:
                path.write_bytes(left)
            sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "7", code=15,
                   err=["already saved, but damaged since", f"'ckpt repair {place.relative_to(sh.directory)}' "])
        path.write_bytes(content)
    check(save(sh, "safetensors/single", "r", 7)["conversion"]["already_done"], "it is whole again")


def case_what_stands_in_place_of_the_stores_own_directory_stops_no_save(sh):
    for taken in (".ckpt", ".ckpt/inbox", ".ckpt/trash"):
        store = sh.path("at" + taken.replace("/", "-"))
        (store / taken).parent.mkdir(parents=True)
        (store / taken).write_text("somebody's")
        result = sh.document("save", sh.checkpoint("safetensors/single"), "--store", store, "--run", "r", "--step", "7")
        check(result["data"]["checkpoint"]["generation"] == 1 and not result["warnings"], str(result))
        sh.run("verify", store / "r/step-000000007.g1", out="ok ")
        check((store / taken).read_text() == "somebody's", "it was replaced")
        sh.run("list", "-q", "--store", store, out="^r@7$")


def inodes(place):
    return {p.relative_to(place).as_posix(): (p.stat().st_ino, p.stat().st_nlink) for p in place.rglob("*") if p.is_file()}


def case_a_linked_save_shares_the_files_and_is_a_checkpoint_of_its_own(sh):
    sh.run("convert", sh.checkpoint("torch/dcp_plain"), "done", "--to", "ckpt")
    words = ("save", "done", *AT, "--run", "r", "--step", "7", "--link", "--metric", "loss=2")
    sh.run(*words, "-n", out=["^plan    link [0-9]+ files?, .*no copy", "^dry run: nothing was written"])
    check(not sh.path("runs").exists(), "written")
    before = tree(sh.path("done"))
    data = sh.document(*words)["data"]
    place = sh.path("runs/r/step-000000007.g1")
    check(data["checkpoint"]["linked"] and data["checkpoint"]["directory"] == place.name, str(data))
    source, linked = inodes(sh.path("done")), inodes(place)
    own = {"manifest.json", "index/manifest.json", "sums.bin"}
    check({p for p in linked if not p.startswith("marks/")} == set(source), f"other files: {sorted(linked)}")
    for path in source:
        check((linked[path] == source[path] and source[path][1] == 2) == (path not in own), f"{path}: {linked[path]} {source[path]}")
    check(tree(sh.path("done")) == before, "the source was changed")
    ids = [json.loads((p / "manifest.json").read_text())["id"] for p in (sh.path("done"), place)]
    one, = listed(sh)
    check(ids[0] == ids[1] == one["id"] and one["step"] == 7 and one["metrics"][0]["value"] == 2, str(one))
    sh.run("verify", "r@7", *AT, "--against", sh.checkpoint("torch/dcp_plain"), out="ok ")
    again = sh.document(*words)["data"]
    check(again["conversion"]["already_done"] and not again["checkpoint"]["linked"] and len(listed(sh)) == 1, str(again))
    shutil.rmtree(sh.path("done"))
    sh.run("verify", "r@7", *AT, out="ok ")


def case_a_checkpoint_of_the_store_is_linked_into_another_run_once(sh):
    save(sh, "safetensors/single", "r", 7)
    sh.run("save", "r@7", *AT, "--run", "fork", "--step", "9", "--link", "--verify", "full", out=["^linked  ", "^saved   fork@9$"])
    sh.run("verify", "fork@9", *AT, out="ok ")
    sh.run("save", "r@7", *AT, "--run", "fork", "--step", "10", "--link", code=2, err=["would keep the id", "as step-000000009.g1", "omit --link"])
    sh.run("save", "r@7", *AT, "--run", "fork", "--step", "10", out="^done ")
    check([c["step"] for c in listed(sh, "--run", "fork")] == [10, 9], "not two")


def case_a_linked_save_that_leaves_something_out_says_so_and_ends_with_3(sh):
    sh.run("convert", sh.checkpoint("safetensors/single"), "done", "--to", "ckpt")
    shutil.copy(next(sh.checkpoint("safetensors/single").glob("*.safetensors")), sh.path("done/extra.safetensors"))
    at = (*AT, "--run", "r", "--step", "7", "--link")
    sh.run("save", "done", *at, "-n", code=3, err="extra.safetensors")
    sh.run("save", "done", *at, code=3, err="extra.safetensors", out="^saved ")
    check(not list(sh.path("runs").rglob("extra*")), "it was linked")
    sh.run("save", "done", *at, code=3)  # it exists already, and still lacks something
    sh.run("save", "done", *at, "--allow-skipped")


def case_what_cannot_be_linked_is_told_and_nothing_is_written(sh):
    sh.run("convert", sh.checkpoint("safetensors/single"), "done")
    at = (*AT, "--run", "r", "--step", "1", "--link")
    sh.run("save", sh.checkpoint("torch/dcp_plain"), *at, code=2, err=["--link needs a complete checkpoint in the ckpt format", "this is dcp", "omit --link"])
    sh.path("text").write_text("no checkpoint")
    sh.run("save", "text", *at, code=2, err="--link needs a complete checkpoint in the ckpt format")
    sh.run("save", "nowhere", *at, code=10)
    sh.run("save", "done", *at, "--only", "weights", code=2, err="--link and --only cannot be used together")
    shard = next(sh.path("done").glob("shards/*/*.safetensors"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    sh.run("save", "done", *at, code=15, err=shard.name)
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    shard.write_bytes(flipped)
    sh.run("save", "done", *at, "--verify", "full", code=15, err="ckpt verify")
    shard.unlink()
    sh.run("save", "done", *at, code=13, err=shard.name)
    check(not sh.path("runs/r").exists() or not os.listdir(sh.path("runs/r")), "something was written")


def case_links_to_another_file_system_are_refused_in_words(sh):
    other = "/dev/shm"
    if not os.path.isdir(other) or os.stat(other).st_dev == os.stat(sh.directory).st_dev:
        return
    sh.run("convert", sh.checkpoint("safetensors/single"), "done")
    with tempfile.TemporaryDirectory(dir=other) as store:
        sh.run("save", "done", "--store", store, "--run", "r", "--step", "1", "--link", code=2,
               err=["on the file system of the store: .*Invalid cross-device link", "omit --link"])
        check(not os.listdir(os.path.join(store, "r")), "something is left")


def case_generations_count_and_an_older_step_is_the_newest_with_a_warning(sh):
    save(sh, "safetensors/single", "r", 5)
    twice = sh.document("save", sh.checkpoint("torch/dcp_plain"), *AT, "--run", "r", "--step", "5")
    check(twice["data"]["checkpoint"]["generation"] == 2 and not twice["warnings"], str(twice))
    check("was already saved, now r@5.g1;" in json.dumps(twice["data"]["conversion"]["notes"]), str(twice))
    older = sh.document("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "3")
    check(older["data"]["checkpoint"]["directory"] == "step-000000003.g3" and "is now" in json.dumps(older["warnings"]), str(older))
    check(sh.run("list", *AT, "-q").out == "r@5\nr@5.g1\nr@3\n", "other names")
    sh.run("mark", "r@5.g1", *AT, "--tag", "older")
    for only in (("--tag", "older"), ("--where", "generation == 1")):  # the newer save of the step is not listed
        check(sh.run("list", *AT, "-q", *only).out == "r@5.g1\n", str(only))
        sh.run("list", *AT, *only, out="^r +5.g1 ")
    sh.run("list", *AT, out=["^r +5 +complete", "^r +5.g1 +complete", "^r +3 +complete"])
    sh.run("pin", "r@latest", *AT, out="^pinned r@3$")
    sh.path("runs/.ckpt/trash/r").mkdir(parents=True)
    sh.path("runs/r/step-000000003.g3").rename(sh.path("runs/.ckpt/trash/r/step-000000003.g3"))
    check(save(sh, "torch/dcp_plain", "r", 9)["checkpoint"]["generation"] == 4, "a generation of the trash was given again")


def case_the_series_is_that_of_the_newest_checkpoint(sh):
    golden = sh.golden / "ckpt/1.0-mesh/ckpt"
    shutil.copytree(golden, sh.path("runs/r/step-000000010.g4"))
    series = json.loads((golden / "manifest.json").read_text())["series"]
    made = save(sh, "safetensors/single", "r", 11)["checkpoint"]
    check(made["generation"] == 5 and made["series"] == series, str(made))


def case_what_a_killed_save_of_the_run_left_is_swept(sh):
    left = sh.path("runs/r/step-000000004.partial-0123456789abcdef0123456789abcdef")
    left.mkdir(parents=True)
    (left / "sums.bin").write_text("half")
    other = sh.path("runs/other/step-000000004.partial-0123456789abcdef0123456789abcdef")
    other.mkdir(parents=True)
    notes = save(sh, "safetensors/single", "r", 5)["conversion"]["notes"]
    check(any("step-000000004.partial" in note["text"] for note in notes), str(notes))
    check(os.listdir(sh.path("runs/r")) == ["step-000000005.g1"] and other.exists(), "what is left?")


def case_a_dry_run_and_a_failure_write_nothing(sh):
    data = save(sh, "safetensors/single", "r", 7, "-n")
    check(data["conversion"]["dry_run"] and data["checkpoint"]["directory"] is None and data["checkpoint"]["new_store"], str(data))
    sh.run("save", "nowhere", *AT, "--run", "r", "--step", "7", code=10, err="nowhere")
    check(os.listdir(sh.directory) == [], "something was made")
    save(sh, "safetensors/single", "r", 7)
    before = tree(sh.path("runs"))
    check(save(sh, "safetensors/single", "r", 7, "-n", "--pin")["conversion"]["already_done"], "not seen")
    save(sh, "torch/dcp_plain", "r", 8, "-n")
    check(tree(sh.path("runs")) == before, "something was written")


def case_mistakes_are_told_before_anything_is_made(sh):
    source = sh.checkpoint("safetensors/single")
    for words, error in ((["--step", "1"], "--run"), (["--run", "r"], "--step"), (["--run", "r", "--step", "x"], "is not a number"),
                         (["--run", "r", "--step", "-1"], "is not a number"), (["--run", "r", "--step", str(2**53)], "greater than"),
                         (["--run", "../r", "--step", "1"], "below the store"), (["--run", "/r", "--step", "1"], "below the store"),
                         (["--run", "a/.b", "--step", "1"], "dot"), (["--run", "a/step-000000001.g1", "--step", "1"], "reserved for checkpoints"),
                         (["--run", "a.partial-1", "--step", "1"], "reserved for checkpoints"), (["--run", "a/b/c/d/e", "--step", "1"], "more than 4 levels"),
                         (["--run", "r\n", "--step", "1"], "control character"),
                         (["--run", "r", "--step", "1", "--metric", "loss"], "NAME=NUMBER"), (["--run", "r", "--step", "1", "--metric", "=1"], "NAME="),
                         (["--run", "r", "--step", "1", "--tag", ""], "--tag is empty"), (["--run", "r", "--step", "1", "--note", "x" * 5000], "longer than")):
        sh.run("save", source, *AT, *words, code=2, err=error)
    check(os.listdir(sh.directory) == [], "something was made")


def case_the_store_comes_from_the_environment_and_import_is_another_name(sh):
    sh.run("import", sh.checkpoint("safetensors/single"), "--run", "r' x", "--step", "0", env={"CKPT_STORE": str(sh.path("s"))}, out="^saved ")
    one, = sh.document("list", env={"CKPT_STORE": str(sh.path("s"))})["data"]["checkpoints"]
    check((one["run"], one["directory"]) == ("r' x", "step-000000000.g1"), str(one))


def case_a_catalog_that_cannot_be_written_costs_a_save_nothing(sh):
    save(sh, "safetensors/single", "r", 1)
    listed(sh)
    inbox = sh.path("runs/.ckpt/inbox")
    shutil.rmtree(inbox, ignore_errors=True)
    inbox.write_text("no directory")
    sh.path("runs/.ckpt/catalog.sqlite").write_bytes(b"no database" * 999)
    made = sh.document("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "2")
    check(not made["warnings"], str(made))
    check([c["step"] for c in listed(sh)] == [2, 1], "a note that is lost must cost a look at the directory only")


def case_a_run_that_went_back_says_so_and_its_stale_steps_win_nothing(sh):
    def one(step, *words):
        sh.path("source").mkdir(exist_ok=True)
        shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("source") / f"{len(os.listdir(sh.path('source')))}")
        newest = sh.path("source") / f"{len(os.listdir(sh.path('source'))) - 1}"
        return sh.run("save", newest, *AT, "--run", "r", "--step", str(step), *words)
    for step in (1000, 2000, 3000, 4000):
        one(step)
    check("superseded" in one(2500, "--back-to", "2000").out, "not told")
    check("superseded" not in one(2600, "--back-to", "2000").out, "a series on every save")
    one(2700)
    check([(c["step"], c["series"], c["series_from"]) for c in listed(sh)]
          == [(2700, 1, 2000), (2600, 1, 2000), (2500, 1, 2000), (4000, 0, None), (3000, 0, None), (2000, 0, None), (1000, 0, None)], str(listed(sh)))
    sh.run("status", *AT, out="^r +7 .* 2700 +\\d+ ")
    plan = sh.document("prune", *AT, "--keep-last", "2")["data"]["checkpoints"]
    kept = {c["step"]: c["why"] for c in plan if c["why"].startswith("in the newest ")}
    check(sorted(kept) == [2600, 2700], str(plan))
    sh.run("save", sh.checkpoint("safetensors/single"), *AT, "--run", "r", "--step", "7", "--back-to", "7", code=2, err="--back-to 7: not before step 7")


def different(sh, number):
    """A separate source, which was not saved before."""
    source = sh.path(f"source-{number}")
    shutil.copytree(sh.checkpoint("safetensors/single"), source)
    for path in source.rglob("*"):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return source


def case_every_roll_back_counts_also_the_second_to_the_same_step(sh):
    def save_all(run, *saves):
        for step, *words in saves:
            told = sh.run("save", different(sh, len(list(sh.path(".").glob("source-*")))), *AT, "--run", run, "--step", str(step), *words)
        return told.out
    def series(run):
        return {(c["step"], c["generation"]): c["series"] for c in listed(sh) if c["run"] == run}
    # The newest was saved at that step again: later ones still exist.
    told = save_all("a", (100,), (110,), (120,), (100,), (105, "--back-to", "100"))
    check("series 1 begins: checkpoints of this run after step 100 are superseded" in told, told)
    check(series("a")[105, 5] == 1, str(series("a")))
    check("no new series: the run has no current checkpoint after step 105" in save_all("a", (106, "--back-to", "105")), "not told")
    # Back to 100 twice.
    back = ("--back-to", "100")
    told = save_all("b", (100,), (110,), (120,), (105, *back), (115, *back), (125, *back))
    check("continuing series 1" in told, told)
    told = save_all("b", (106, *back))
    check("series 2 begins" in told, told)
    save_all("b", (107, *back))
    check([series("b")[key] for key in ((125, 6), (106, 7), (107, 8))] == [1, 2, 2], str(series("b")))


def case_names_and_best_pass_over_what_is_superseded(sh):
    def one(step, loss, *words):
        sh.run("save", different(sh, step), *AT, "--run", "r", "--step", str(step), "--metric", f"loss={loss}", *words)
    one(50, 0.9)
    one(65, 0.1)
    one(60, 0.8, "--back-to", "50")
    one(70, 0.7)
    sh.run("inspect", "r@best", *AT, out="step 70")
    sh.run("status", *AT, out=r"^r +4 .* 70 \(loss 0.7\)")
    sh.run("rm", "r@60", *AT)  # a record in the trash alone says that 65 is superseded, and then nothing in the run
    sh.run("rm", "r@70", *AT, code=3)
    sh.run("inspect", "r@latest~1", *AT, out="step 50")
    sh.run("inspect", "r@latest~2", *AT, code=10, err="has only 2 usable")
    check([(c["name"], c["directory"], c["state"]) for c in listed(sh)]
          == [("r@70", "step-000000070.g4", "complete"), ("r@65", "step-000000065.g2", "superseded"), ("r@50", "step-000000050.g1", "complete")], str(listed(sh)))


def case_a_superseded_checkpoint_is_called_so_everywhere(sh):
    def one(step, *words):
        sh.run("save", different(sh, step), *AT, "--run", "r", "--step", str(step), *words)
    one(10)
    one(20)
    one(30)
    sh.run("verify", "--all", *AT)
    one(15, "--back-to", "10")
    sh.run("list", *AT, out=["^r +15 +complete ", "^r +30 +superseded ", "^r +20 +superseded ", "^r +10 +verified "])
    for state, names in (("superseded", "r@30 r@20"), ("verified", "r@10"), ("complete", "r@15 r@10")):
        check(sh.run("list", "-q", "--state", state, *AT).out.split() == names.split(), state)
    check(sh.run("list", "-q", "--where", 'state == "superseded"', *AT).out == "r@30\nr@20\n", "--where")
    sh.path("p.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 9 }\n')
    check(sh.document("why", "r@20", *AT, "--policy", "p.toml")["data"]["live"][0]["state"] == "superseded", "why")
    os.remove(sh.path("runs/r/step-000000020.g2/sums.bin"))
    sh.run("list", *AT, out="^r +20 +incomplete ")  # what is worse is said
    # A store above has no record of it; nor has the one below of what is deleted by the store above.
    check(sh.run("list", "-q", "--state", "superseded").out == "runs/r@30\n", "above")
    # Of the series that supersedes them only a record is left, and then a record whose files are purged.
    os.remove(sh.path("runs/r/step-000000015.g4/sums.bin"))
    sh.run("rm", "r@15", *AT)
    sh.run("list", *AT, out=["^r +30 +superseded ", "^r +10 +verified "])
    sh.run("prune", *AT, "--keep-last", "9", "--grace", "0", "--max-delete", "100%", "--apply", "-y")
    for _ in range(2):
        sh.run("list", *AT, out=["^r +30 +superseded ", "^r +10 +verified "])
        sh.run("inspect", "r@latest", *AT, out="step 10")
        check(sh.run("list", "-q", "--state", "superseded").out == "runs/r@30\n", "above")
        plan = sh.document("prune", "--store", ".", "--keep-last", "1")["data"]["checkpoints"]
        check({c["name"]: "in the newest" in c["why"] for c in plan} == {"runs/r@30": False, "runs/r@20": False, "runs/r@10": True}, str(plan))


def case_after_a_rollback_equal_tensors_are_another_save(sh):
    for step in (10, 20, 30):
        save(sh, "safetensors/single", "r", step)
    save(sh, "safetensors/single", "r", 20, "--back-to", "10")
    check([(c["step"], c["generation"], c["series"]) for c in listed(sh)] == [(20, 4, 1), (30, 3, 0), (20, 2, 0), (10, 1, 0)], str(listed(sh)))
    check(save(sh, "safetensors/single", "r", 20, "--back-to", "10")["conversion"]["already_done"], "saved once more")


def case_a_damaged_manifest_changes_no_series(sh):
    for step, *words in ((10,), (20,), (15, "--back-to", "10"), (30,), (25, "--back-to", "15")):
        sh.run("save", different(sh, step), *AT, "--run", "r", "--step", str(step), *words)
    newest = sh.path("runs/r/step-000000025.g5")
    for name in ("manifest.json", "index/manifest.json"):
        (newest / name).write_text("{")
    sh.run("save", different(sh, 40), *AT, "--run", "r", "--step", "40")
    # Only records in the trash remain of the last series.
    for victim in sh.path("runs/r").glob("step-*.g[3456]"):
        shutil.rmtree(victim)
    record = {"format": "ckpt.trash/1", "state": "purged", "id": "", "step": 50, "bytes": 1, "series": 7, "series_from": 30, "created_ms": 1,
              "deleted_ms": 1, "by": "", "why": "", "policy": "", "purge_at_ms": 1, "changed_ms": 1, "changed_by": ""}
    trash = sh.path("runs/.ckpt/trash/r")
    trash.mkdir(parents=True)
    (trash / "step-000000050.g9.json").write_text(json.dumps(record))
    save(sh, "safetensors/single", "r", 60)
    made, = (one for one in listed(sh) if one["step"] == 60)
    check((made["series"], made["series_from"], made["generation"]) == (7, 30, 10), str(made))


def case_names_that_a_store_uses_itself_are_no_runs(sh):
    for run in ("ckpt.toml", "ckpt.toml/x", ".ckpt", "-x", "a/-x"):
        sh.run("save", sh.checkpoint("safetensors/single"), *AT, f"--run={run}", "--step", "1", code=2, err="--run")
    check(not sh.path("runs/ckpt.toml").exists(), "made")


def case_the_newest_is_the_last_one_saved_and_notes_are_listed(sh):
    for step in (2000, 900):
        save(sh, "safetensors/single", "r", step, "--note", f"said of {step}")
    sh.run("status", *AT, out="^r +2 .* 900 +\\d+ ")
    sh.run("list", *AT, out=["said of 900", "said of 2000"])
    sh.run("list", *AT, "--where", "bogus > 1", code=2, err="known names: run, id, state, tag, step")
    sh.run("pin", "r@900", *AT, "--until", "2020-01-01", code=2, err="is in the past")
    save(sh, "safetensors/single", "s", 1)
    sh.run("why", "@latest", *AT, code=2, err="2 runs")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
