"""ckpt list, status, pin, unpin, as an operator uses them."""
import csv
import io
import os
import re
import shutil
import sqlite3

from runner import check, main

OURS = "step-000000010.g1"


def make_store(sh, name="runs"):
    """Two runs: one of ours next to one of PyTorch's, and one of DeepSpeed's with its tracker."""
    store = sh.directory / name
    shutil.copytree(sh.golden / "ckpt/1.0-mesh/ckpt", store / "demo" / OURS)
    shutil.copytree(sh.golden / "torch/dcp_plain/ckpt", store / "demo/step_9")
    shutil.copytree(sh.golden / "deepspeed/zero2_bf16_dp4/ckpt", store / "prod/ds")
    return store


def checkpoints(sh, *words, **more):
    return sh.document("list", *words, **more)["data"]["checkpoints"]


def case_list_says_of_missing_files_what_verify_says(sh):
    for step in ("1", "2"):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", step)
    os.remove(sh.path("st/r/step-000000001.g1/sums.bin"))
    sh.run("verify", "st/r/step-000000001.g1", code=13)
    one = [c for c in sh.document("list", "--store", "st")["data"]["checkpoints"] if c["step"] == 1][0]
    check(one["state"] == "incomplete" and one["reason"].startswith("incomplete: ") and "sums.bin" in one["reason"], str(one))
    sh.run("verify", "--all", "--store", "st", code=1, out="INCOMPLETE")


def case_list_finds_checkpoints_of_every_tool_in_order_of_step(sh):
    store = make_store(sh)
    result = sh.run("list", "--tsv", "--store", store, out=["^RUN\tSTEP\tSTATE\t", "^demo\t10\tcomplete\t.*\tckpt\t", "^demo\t9\tunverified\t.*\tdcp\t",
                                                   "^prod/ds\t3\tunverified\t.*\tdeepspeed\t.*named by latest"])
    check(len(result.out.splitlines()) == 4, "not three checkpoints", result)
    sh.run("list", "--tsv", env={"CKPT_STORE": str(store)}, out="^demo\t10\t")
    found = checkpoints(sh, "--store", store)
    check([(c["run"], c["step"]) for c in found] == [("demo", 10), ("demo", 9), ("prod/ds", 3)], str(found))
    check(found[0]["layout"] == "irregular" and found[0]["optimizer_bytes"] > 0 and found[2]["trackers"] == ["latest"], str(found))
    names = sh.run("list", "-q", "--store", store).out.split()
    check(names == ["demo@10", "demo@9", "prod/ds@3"], str(names))
    rows = list(csv.reader(io.StringIO(sh.run("list", "--csv", "--store", store).out)))
    check(len(rows) == 4 and rows[1][:2] == ["demo", "10"], str(rows))
    check([row[rows[0].index("NAME")] for row in rows[1:]] == names, str(rows))  # the spelling that every command takes
    check(all(os.path.isdir(row[rows[0].index("PATH")]) for row in rows[1:]), str(rows))


def case_a_working_directory_that_was_deleted_is_no_empty_store(sh):
    sh.path("gone").mkdir()
    deleted = ["sh", "-c", 'cd gone && rmdir "$PWD" && exec "$@"', "sh"]
    for verb in ("list", "status"):
        sh.path("gone").mkdir(exist_ok=True)
        sh.run(verb, launcher=deleted, code=10, err="was deleted")


def case_list_selects_and_sorts(sh):
    store = make_store(sh)
    for words, steps in ((["--run", "demo"], [10, 9]), (["--run", "prod/*"], [3]), (["--where", "step < 10 and format == 'dcp'"], [9]),
                         (["--sort", "size"], [10, 9, 3]), (["--sort", "oldest"], [9, 10, 3]), (["-n", "1"], [10]), (["--limit", "2"], [10, 9]),
                         (["--state", "verified"], []), (["--state", "complete", "--run", "demo"], [10]), (["--state", "unverified", "--run", "demo"], [9]), (["--tag", "x"], []),
                         (["--since", "2200-01-01"], [])):
        found = [c["step"] for c in checkpoints(sh, "--store", store, *words)]
        check(found == steps, f"{words}: {found}, not {steps}")
    sh.run("list", "--store", store, "--where", "metric.los < 1", code=2, err="no checkpoint has the metric 'los'")
    sh.run("list", "--store", store, "--where", "step > 99", out="^none of 3 checkpoints in the store matches$", not_out="RUN")
    sh.run("list", "--store", store, "--where", "stepp < 3", code=2, err="--where: column 1: unknown name")
    sh.run("list", "--store", store, "--since", "soon", code=2, err="neither a time")
    sh.run("list", "--store", "nowhere", code=10, err="nowhere")
    sh.run("list", "--store", store, "--run", "dem", code=10, err="did you mean 'demo'")
    sh.run("list", "--store", store, "--run", "dem?x*")
    check(sh.run("list", store).out == sh.run("list", "--store", store).out, "a store by its path")
    sh.run("status", store, out="^demo +2 ")
    sh.run("list", store, "--store", store, code=2, err="cannot be used together")
    sh.run("pin", "demo@last", "--store", store, code=10, err="did you mean 'demo@latest'")


def case_a_rebuild_makes_the_same_catalog(sh):
    store = make_store(sh)
    sh.run("pin", "demo@10", "--store", store, "--reason", "cited", "--owner", "ana")
    before = checkpoints(sh, "--store", store)
    check(checkpoints(sh, "--store", store, "--rebuild") == before, "another catalog")
    (store / ".ckpt/catalog.sqlite").unlink()
    check(checkpoints(sh, "--store", store) == before, "another catalog after a loss")


def case_a_catalog_that_cannot_be_used_costs_a_warning_only(sh):
    store = make_store(sh)
    before = checkpoints(sh, "--store", store)
    file = store / ".ckpt/catalog.sqlite"
    file.write_bytes(b"x" * 8192)
    sh.run("list", "--tsv", "--store", store, err="moved aside", out="^demo\t10\t")
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version=999")
    document = sh.document("list", "--store", store)
    check(document["data"]["checkpoints"] == before and not document["data"]["indexed"], str(document))
    check(any("999" in warning["text"] for warning in document["warnings"]), str(document["warnings"]))


def case_pins_stand_in_the_checkpoint_and_are_listed(sh):
    store = make_store(sh)
    at = ("--store", store)
    sh.run("pin", "demo@10", *at, "--reason", "cited", "--owner", "ana", "--until", "2126-12-31", out="^pinned demo@10$")
    sh.run("pin", "demo@10", *at, "--label", "v1", "--until", "30d")
    sh.run("list", "--tsv", *at, out="pinned until 2126-12-31: cited; pinned v1 until |pinned v1 until .*; pinned until 2126-12-31: cited")
    check(len(list((store / "demo" / OURS / "marks").glob("pin-*.json"))) == 2, "not in the checkpoint")
    moved = sh.directory / "moved"
    moved.mkdir()
    shutil.move(store / "demo", moved / "demo")
    pins = checkpoints(sh, "--store", moved)[0]["pins"]
    check({pin["owner"] for pin in pins} >= {"ana"} and len(pins) == 2, str(pins))
    data = sh.document("unpin", "demo@latest", "--store", moved)["data"]
    check(data["changed"] and [pin["label"] for pin in data["checkpoint"]["pins"]] == ["v1"], str(data))
    sh.run("unpin", "demo@latest", "--store", moved, out="was not pinned")
    sh.run("pin", "demo@step_9", "--store", moved, "--reason", "another tool's")
    check([c["step"] for c in checkpoints(sh, "--store", moved) if c["pins"]] == [10, 9], "not pinned")


def case_a_mark_does_not_change_when_another_tool_saved(sh):
    store = make_store(sh)
    place = store / "prod/ds"
    for path in [*place.rglob("*"), place]:
        os.utime(path, (1_600_000_000, 1_600_000_000))
    before = checkpoints(sh, "--store", store, "--run", "prod/ds")[0]
    check(before["created"].startswith("2020-09-13T12:26:40"), str(before))
    sh.run("pin", "prod/ds@3", "--store", store, "--reason", "kept", out="^pinned ")
    after = checkpoints(sh, "--store", store, "--run", "prod/ds")[0]
    check(after["created"] == before["created"] and len(after["pins"]) == 1, str(after))
    check(checkpoints(sh, "--store", store, "--run", "prod/ds", "--rebuild") == [after], "another one by the disk")


def case_names_that_are_none_are_answered_with_the_nearest(sh):
    store = make_store(sh)
    for name, code, error in (("demo@11", 10, "no step 11"), ("dmo@10", 10, "did you mean 'demo'"), ("@10", 2, "2 runs"),
                              ("demo@latset", 10, "did you mean 'demo@latest'"), ("demo", 2, "RUN@STEP"), ("000000", 10, "no id")):
        sh.run("pin", name, "--store", store, code=code, err=error)
    check(not (store / "demo" / OURS / "marks").exists(), "something was marked")


def case_a_manifest_that_is_torn_is_told_at_once(sh):
    store = make_store(sh)
    sh.run("list", "--store", store, not_out="damaged")
    path = store / "demo" / OURS / "manifest.json"
    os.truncate(path, 100)
    sh.run("list", "--tsv", "--store", store, out="\trepairable\t.*manifest.json: ")
    sh.run("status", "--store", store, out="^demo +2 .* 1 damaged$")


def case_status_sums_up_and_feeds_prometheus(sh):
    store = make_store(sh)
    sh.run("status", "--store", store, out=["^RUN +COUNT +SIZE +NEWEST +AGE", "^demo +2 .* 10 +\\d+ ", "^prod/ds +1 ", "^free ", "^next: ckpt verify --all --store "])
    data = sh.document("status", "--store", store)["data"]
    check([(r["run"], r["checkpoints"], r["newest_step"]) for r in data["runs"]] == [("demo", 2, 10), ("prod/ds", 1, 3)], str(data))
    sh.run("status", "--store", store, "--run", "dem", code=10, err="did you mean 'demo'")
    file = sh.directory / "ckpt.prom"
    sh.run("status", "--store", store, "--prom", file)
    text = file.read_text()
    check('ckpt_checkpoints{run="demo"} 2\n' in text and 'ckpt_newest_step{run="prod/ds"} 3\n' in text, text)
    check(os.listdir(sh.directory).count("ckpt.prom") == 1 and not (sh.directory / "ckpt.prom.tmp").exists(), "left over")


def case_list_and_status_write_nothing_where_there_is_no_store(sh):
    for name in ("empty", "home/notes"):
        sh.path(name).mkdir(parents=True)
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4"), sh.path("runs/ds"))
    before = sorted(sh.directory.rglob("*"))
    for store in ("empty", "home", "runs"):
        for words in (("list",), ("status",), ("list", "--trash"), ("list", "--json"), ("prune", "--keep-last", "1"), ("status", "--run", "nobody")):
            sh.run(*words, "--store", store, code=10 if "nobody" in words else 0)
    check(sorted(sh.directory.rglob("*")) == before, "written")
    sh.run("list", "--tsv", "--store", "runs", out="^ds\t3\t")
    sh.run("list", "--store", "runs", "--rebuild")
    check(sh.path("runs/.ckpt/catalog.sqlite").exists(), "no index although it was asked for")


def case_the_parent_of_a_store_is_no_store(sh):
    sh.run("save", sh.checkpoint("ckpt/1.0-mesh"), "--store", "above/store", "--run", "a/b", "--step", "1")
    for words in (("list",), ("status",), ("prune", "--keep-last", "1")):
        sh.run(*words, "--store", "above", out="store/a/b")
    check(os.listdir(sh.path("above")) == ["store"], str(os.listdir(sh.path("above"))))


def case_list_and_status_fit_80_columns_and_colour_the_state(sh):
    store = make_store(sh)
    sh.run("pin", "demo@10", "--store", store, "--reason", "cited in the long paper of last year", "--until", "2200-12-31")
    sh.run("mark", "demo@10", "--store", store, "--metric", "eval_loss=1.2345678", "--tag", "release-candidate", "--note", "n" * 60)
    sh.run("verify", "--all", "--store", store)
    for columns in (80, 140):
        code, text = sh.terminal("list", "--store", store, "--color", "always", columns=columns)
        plain = re.sub("\x1b\\[[0-9;]*m", "", text).split("\r\n")
        check(code == 0 and max(map(len, plain)) <= columns, text)
        check(re.match("RUN +STEP +STATE +AGE +SIZE +PIN +VERIFIED +METRIC", plain[0]), plain[0])
        check(re.search(r"^demo +10 +verified .* to 12-31 +\d+ s +eval", "\n".join(plain), re.M) and "\x1b[32mverified" in text, text)
    code, text = sh.terminal("status", "--store", store, columns=80)
    plain = text.split("\r\n")
    check(code == 0 and max(map(len, plain)) <= 80 and re.search(r"^demo +2 .* 10 \(e", text, re.M), text)
    best = sh.document("status", "--store", store)["data"]["runs"][0]
    check(best["best"] == {"metric": "eval_loss", "value": 1.2345678, "step": 10, "name": "demo@10"} and best["last_verified"], str(best))


def case_metrics_replace_nothing_but_metrics(sh):
    store = make_store(sh)
    file = sh.path("old.prom")
    file.write_text("")
    for _ in range(2):
        check(sh.run("status", "--store", store, "--prom", file).out == "", "cron would mail it")
    sh.path("link").symlink_to(file)
    os.mkfifo(sh.path("pipe"))
    sh.path("notes.txt").write_text("mine")
    (store / "ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 3 }\n')
    manifest = next(store.glob("demo/*/manifest.json"))
    before = manifest.read_bytes()
    for path, why in ((sh.path("link"), "is a symbolic link"), (sh.path("pipe"), "is not a regular file"), (sh.directory, "is not a regular file"),
                      (sh.path("notes.txt"), "holds something other"), (manifest, "holds something other"), (store / "ckpt.toml", "holds something other")):
        sh.run("status", "--store", store, "--prom", path, code=2, id="E200", err=f"{path}: {why}")
    check(sh.path("link").is_symlink() and sh.path("pipe").is_fifo() and manifest.read_bytes() == before, "replaced")
    check(sh.path("notes.txt").read_text() == "mine" and "keep" in (store / "ckpt.toml").read_text(), "replaced")


def case_status_tells_of_readers_on_other_hosts(sh):
    store = make_store(sh)
    check("readers" not in sh.run("status", "--store", store).out, "nobody has a claim")
    claims = store / ".ckpt" / "claims"
    claims.mkdir(parents=True)
    boot = "0123456789abcdef" * 2
    for key, host, pid in (("a" * 32, "n17", 42), ("b" * 32, "n17", 43), ("a" * 32, "n3", 42)):
        (claims / f"{key}-{host}-{boot}-1-{pid}-7.0").write_text(f"{0:020}\n")
    (claims / "notes.txt").write_text("no claim")
    sh.run("status", "--store", store, out=r"^readers 3 on other hosts \(n17, n3\)$")
    readers = sh.document("status", "--store", store)["data"]["readers"]
    check(readers == {"here": 0, "elsewhere": 3, "silent": 0, "hosts": ["n17", "n3"], "deleter": None}, str(readers))
    file = sh.directory / "ckpt.prom"
    sh.run("status", "--store", store, "--prom", file)
    check("\nckpt_readers_elsewhere 3\n" in file.read_text(), file.read_text())


def metric(row, name):
    return next((one["value"] for one in row["metrics"] if one["name"] == name), None)


def case_torch_files_with_steps_are_listed(sh):
    light = sh.golden / "torch/lightning/ckpt/epoch=0-step=3.ckpt"
    checkpoints = sh.path("st/lightning_logs/version_0/checkpoints")
    checkpoints.mkdir(parents=True)
    for name in ("epoch=0-step=3-val_loss=1.50.ckpt", "epoch=1-step=6-val_loss=1.25.ckpt", "last.ckpt"):
        shutil.copy(light, checkpoints / name)
    plain = sh.path("st/plain")
    plain.mkdir()
    for name in ("ck_1.pt", "ck_2.pt"):
        shutil.copy(light, plain / name)
    (plain / "ck_3.pt").write_text("no checkpoint\n")
    rows = sh.document("list", "--store", "st")["data"]["checkpoints"]
    found = {(row["run"], row["step"], row["layout"], metric(row, "val_loss")) for row in rows}
    logs = "lightning_logs/version_0/checkpoints"
    check(found == {(logs, 3, "file", 1.5), (logs, 6, "file", 1.25), ("plain", 1, "file", None), ("plain", 2, "file", None)}, str(found))
    sh.run("inspect", f"{logs}@best", "--store", "st", out="^torch")
    sh.run("verify", "plain@latest", "--store", "st", out="^plain@latest +ok")
    for file in sh.path("st").rglob("*"):
        os.utime(file, (1, 1))  # long finished
    sh.run("prune", "--store", "st", "--keep-last", "1", "--apply", out="a single file: ckpt deletes only checkpoint directories")
    sh.run("rm", "plain@1", "--store", "st", code=3, err="not deleted: a single file")
    sh.run("mark", "plain@1", "--tag", "x", "--store", "st", code=12, err="a single-file checkpoint cannot have marks")
    sh.run("verify", "--all", "--store", "st", out="4 of 4 checkpoints checked", not_err="recorded")
    check(sorted(p.name for p in plain.iterdir()) == ["ck_1.pt", "ck_2.pt", "ck_3.pt"], "deleted")


def case_metrics_of_a_training_log(sh):
    logs = sh.golden.parent / "training_logs"
    for step in (150, 200, 400, 900):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", str(step))
    sh.run("mark", "r", "--metrics-from", logs / "tensorboard", "--matching", "*/loss", "--store", "st",
           out=["^r@150 +train/loss=4$", "^r@200 +eval/loss=2.5 train/loss=2$", "^r@400 +eval/loss=1.25 train/loss=1$"])
    sh.run("inspect", "r@best:eval/loss", "--store", "st", out="step 400$")
    marked = sh.document("mark", "r", "--metrics-from", logs / "csv", "--matching", "val_loss", "--store", "st")["data"]["checkpoints"]
    check([(row["step"], metric(row, "val_loss")) for row in marked] == [(200, 2.5), (400, 1.25)], str(marked))
    sh.run("mark", "r@400", "--metrics-from", logs / "wandb", "--store", "st", out="^r@400 .*train/global_step=400")
    sh.run("mark", "r@900", "--metrics-from", logs / "wandb", "--store", "st", code=10, err="no values for r@900; the log covers step 400")
    sh.run("mark", "r", "--metrics-from", logs / "csv", "--matching", "x", "--store", "st", code=10, err=["no metric matches", "the log has epoch, train_loss, val_loss"])
    sh.run("mark", "r", "--metrics-from", logs / "csv", "--tag", "x", "--store", "st", code=2, err="cannot be used together")
    sh.run("mark", "r", "--metrics-from", sh.checkpoint("safetensors/single"), "--store", "st", code=12, err="not a training log")


def case_a_look_into_a_run_makes_no_store_in_it(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "1")
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "2")
    sh.run("list", "--store", "st/r", out="^2 checkpoints")
    sh.run("status", "--store", "st/r")
    check(not sh.path("st/r/.ckpt").exists(), "a second store")
    sh.run("rm", "st/r/step-000000001.g1")
    sh.run("undelete", "r@1", "--store", "st", out="restored r@1")


def case_a_dot_ckpt_of_another_program_is_no_store(sh):
    for kind in ("file", "directory"):
        top = sh.path(kind)
        shutil.copytree(sh.golden / "ckpt/1.0-mesh/ckpt", top / "runs/demo" / OURS)
        if kind == "file":
            (top / ".ckpt").write_text("x")
        else:
            (top / ".ckpt").mkdir()
            (top / ".ckpt/last.ckpt").write_text("x")
        sh.run("pin", f"{kind}/runs/demo/{OURS}", code=2, err="in no store")
        sh.run("pin", f"demo/{OURS}", "--store", f"{kind}/runs")
        sh.run("verify", f"{kind}/runs/demo/{OURS}")
        check(kind == "file" or os.listdir(top / ".ckpt") == ["last.ckpt"], "written into a .ckpt of another program")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
