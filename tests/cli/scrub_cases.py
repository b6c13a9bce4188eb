"""ckpt verify --all: a rotating scrub of a store, and its effect on list, why and prune."""
import fcntl
import json
import os
import shutil
import time

from runner import check, main


def store(sh, runs=(("llama", (1, 2, 3)),)):
    """STORE/RUN/step-N.gN, one real checkpoint each."""
    if not sh.path("one").exists():
        sh.run("convert", sh.checkpoint("safetensors/single"), "one", "--to", "ckpt")
    for run, steps in runs:
        for step in steps:
            target = sh.path("store") / run / f"step-{step:09}.g{step}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(sh.path("one"), target)
    return sh.path("store")


def place(sh, step, run="llama"):
    return sh.path("store") / run / f"step-{step:09}.g{step}"


def damage(checkpoint):
    """Changes one byte of the largest data file."""
    file = max((checkpoint / "shards").rglob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return file


def scrub(sh, *words, code=0):
    return sh.document("verify", "--all", "--store", "store", *words, code=code)


def looked_at(data):
    return [(one["run"], one["step"]) for one in data["checkpoints"]]


def states(sh):
    return {(c["run"], c["step"]): c["state"] for c in sh.document("list", "--store", "store")["data"]["checkpoints"]}


def case_one_that_is_verified_by_its_name_or_path_is_recorded_too(sh):
    store(sh)
    sh.run("list", "--store", "store", "--rebuild")
    sh.run("verify", "llama@2", "--store", "store", "--quick")
    sh.run("verify", "llama@2", "--store", "store", "--sample", "50%")
    sh.run("diff", "llama@2", "llama@1", "--store", "store")
    check(set(states(sh).values()) == {"complete"}, str(states(sh)))
    sh.run("verify", "llama@2", "--store", "store")
    sh.run("verify", place(sh, 3))
    check(states(sh) == {("llama", 1): "complete", ("llama", 2): "verified", ("llama", 3): "verified"}, str(states(sh)))
    damage(place(sh, 3))
    sh.run("verify", "llama@3", "--store", "store", "-q", code=1, err="^warning: llama@3: damaged")
    check(states(sh)[("llama", 3)] == "damaged", str(states(sh)))
    sh.run("prune", "--store", "store", "--keep-last", "1", out=["llama@2 +.*keep.*newest verified", "llama@1 +.*delete"])
    os.mkdir(sh.path("copy"))
    shutil.copytree(place(sh, 2), sh.path("copy/step-000000002.g2"))
    shutil.rmtree(sh.path("copy/step-000000002.g2/marks"))
    sh.run("verify", "copy/step-000000002.g2")
    check(os.listdir(sh.path("copy")) == ["step-000000002.g2"] and not sh.path("copy/step-000000002.g2/marks").exists(), "written outside of a store")


def case_by_a_link_or_from_inside_it_is_the_same_checkpoint(sh):
    store(sh)
    sh.run("list", "--store", "store")
    damage(place(sh, 1))
    for n in (1, 2):
        sh.path(f"link{n}").symlink_to(place(sh, n))
        sh.run("verify", f"link{n}", code=2 - n)
    sh.run("verify", os.fspath(place(sh, 3)) + "/shards/..")
    check(states(sh) == {("llama", 1): "damaged", ("llama", 2): "verified", ("llama", 3): "verified"}, str(states(sh)))
    reason = next(c for c in sh.document("list", "--store", "store")["data"]["checkpoints"] if c["step"] == 1)["reason"]
    check(reason.startswith("shards/"), f"the name of a file by the path of the day: {reason}")


def case_read_as_another_format_it_is_not_recorded(sh):
    store(sh)
    sh.run("list", "--store", "store")
    sh.run("verify", place(sh, 2), "--from", "safetensors", code=12, err="no tensors found")
    check(not (place(sh, 2) / "marks").exists(), "recorded")
    sh.run("verify", place(sh, 2), "--from", "ckpt")
    check(states(sh)[("llama", 2)] == "verified", str(states(sh)))


def case_a_directory_without_tensors_is_not_intact(sh):
    sh.path("empty").mkdir()
    sh.path("empty/config.json").write_text("{}")
    sh.run("verify", "empty", "--from", "safetensors", code=12, err="^error: empty: no tensors found")


def case_a_scrub_verifies_every_checkpoint_and_records_it(sh):
    store(sh)
    check(set(states(sh).values()) == {"complete"}, "verified before")
    sh.run("verify", "--all", "--store", "store", out=r"^3 of 3 checkpoints checked · 3 ok · 0 damaged · ", not_out="^llama@")
    result = sh.run("verify", "--all", "--store", "store", "-v",
                    out=[r"^llama@3   ok   ckpt 1\.0 · .*files", r"^3 of 3 checkpoints checked · 3 ok · 0 damaged · "])
    check(result.out.index("llama@3 ") < result.out.index("llama@1 "), "the newest first", result)
    check(states(sh) == {("llama", n): "verified" for n in (1, 2, 3)}, str(states(sh)))
    mark, = (place(sh, 2) / "marks").glob("verified-*.json")
    said = json.loads(mark.read_text())
    check(said["value"] == 1 and said["at"] and said["owner"] and "XXH3" in said["text"], str(said))
    listed = sh.document("list", "--store", "store")["data"]["checkpoints"]
    check(all(one["verified"] for one in listed), str(listed))
    sh.run("status", "--store", "store", out=r"^RUN .*VERIFIED.*\nllama .*[a-z] +\d+ s$")
    sh.run("list", "--tsv", "--store", "store", out=r"\tverified\t.*\tverified 20\d\d-\d\d-\d\d\t")
    sh.run("verify", place(sh, 2), out="ok", not_out="not part of")  # marks are not foreign files


def case_damage_is_recorded_and_the_scrub_goes_on(sh):
    store(sh)
    file = damage(place(sh, 2))
    document = scrub(sh, code=1)
    data = document["data"]
    check((data["looked_at"], data["intact"], data["damaged"]) == (3, 2, 1), str(data))
    bad = next(one for one in data["checkpoints"] if one["step"] == 2)
    check(bad["verdict"] == "damaged" and bad["recorded"] and file.name in bad["report"]["damage"][0]["file"], str(bad))
    check(states(sh) == {("llama", 1): "verified", ("llama", 2): "damaged", ("llama", 3): "verified"}, str(states(sh)))
    sh.run("list", "--tsv", "--store", "store", out=f"damaged\t.*{file.name}")
    sh.run("verify", "--all", "--store", "store", code=1, out=["^llama@2   DAMAGED", "^  damage  ", "2 ok · 1 damaged"])
    sh.run("why", "llama@2", "--store", "store", out=f"^  damage    .*{file.name}")
    shutil.rmtree(place(sh, 2) / "shards")  # restored from a copy
    shutil.copytree(sh.path("one/shards"), place(sh, 2) / "shards")
    scrub(sh)
    check(set(states(sh).values()) == {"verified"}, str(states(sh)))


def case_shares_rotate_until_all_were_looked_at(sh):
    store(sh, (("a", (1, 2)), ("b", (1, 2))))
    seen = [looked_at(scrub(sh, "--sample", "25%")["data"]) for _ in range(6)]
    check(seen[:4] == [[("a", 2)], [("b", 2)], [("a", 1)], [("b", 1)]], str(seen))
    check(seen[4:] == seen[:2], f"not the one that it is longest ago for: {seen}")
    check(looked_at(scrub(sh, "--sample", "1%", "b")["data"]) == [("b", 1)], "a share is at least one, of the runs that are named")


def case_only_what_is_due_is_looked_at(sh):
    store(sh)
    scrub(sh, "--sample", "34%")
    data = scrub(sh, "--max-age", "30d", "--sample", "34%")["data"]
    check((data["checkpoints_in_question"], data["due"]) == (3, 1) and looked_at(data) == [("llama", 1)], str(data))
    data = scrub(sh, "--max-age", "30d")["data"]
    check(data["due"] == 0 and not data["checkpoints"], str(data))
    mark, = (place(sh, 2) / "marks").glob("verified-*.json")
    said = json.loads(mark.read_text())
    for at, due in (("2020-01-01T00:00:00.000Z", 1), ("2999-01-01T00:00:00.000Z", 1)):  # a clock was ahead
        mark.write_text(json.dumps({**said, "at": at}))
        sh.run("list", "--rebuild", "--store", "store")
        check(scrub(sh, "--max-age", "30d")["data"]["due"] == due, at)
    check(scrub(sh, "--since", "2999-01-01")["data"]["checkpoints_in_question"] == 0, "saved before")


def case_what_cannot_be_looked_at_is_told_and_takes_no_turn(sh):
    store(sh)
    for file in (place(sh, 3) / "shards").rglob("*.safetensors"):
        file.unlink()
    data = scrub(sh, "--sample", "34%", code=1)["data"]
    check([one["verdict"] for one in data["checkpoints"]] == ["incomplete", "intact", "intact"], str(data))
    held = os.open(place(sh, 2), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    shutil.rmtree(place(sh, 3))
    document = scrub(sh, code=3)
    check([one["verdict"] for one in document["data"]["checkpoints"]].count("busy") == 1, str(document))
    check(any("busy" in warning["text"] for warning in document["warnings"]), str(document["warnings"]))
    os.close(held)


def case_missing_files_are_recorded_until_they_are_back(sh):
    store(sh)
    shards, aside = place(sh, 2) / "shards", sh.path("aside")
    shards.rename(aside)
    data = scrub(sh, code=1)["data"]
    bad = next(one for one in data["checkpoints"] if one["step"] == 2)
    check(bad["verdict"] == "incomplete" and bad["recorded"], str(bad))
    for words in ([], ["--rebuild"]):
        listed = next(c for c in sh.document("list", *words, "--store", "store")["data"]["checkpoints"] if c["step"] == 2)
        check(listed["state"] == "incomplete" and listed["reason"].startswith("incomplete: ") and "is missing" in listed["reason"], str(listed))
        sh.run("list", "--tsv", *words, "--store", "store", out=r"^llama\t2\tincomplete\t.*\tincomplete: .* is missing")
        sh.run("list", "-q", "--state", "incomplete", "--store", "store", out=r"\Allama@2\n\Z")
    sh.run("prune", "--store", "store", "--keep-last", "2", "--purge-early-below", "0", out=[r"^llama@2 +.*keep +damaged", r"^llama@1 +.*keep +in the newest 2 \(2nd\)"])
    aside.rename(shards)
    scrub(sh)
    check(set(states(sh).values()) == {"verified"}, str(states(sh)))


def case_what_another_tool_is_writing_is_not_recorded_as_incomplete(sh):
    tag = sh.path("store/ds/global_step3")
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4") / "global_step3", tag)
    lost, = tag.glob("*rank_2*optim_states.pt")
    lost.unlink()
    now = time.time()
    for age, recorded in ((0, False), (3600, True)):
        for file in tag.iterdir():
            if file.is_file():
                os.utime(file, (now - age, now - age))
        one, = scrub(sh, code=1)["data"]["checkpoints"]
        check(one["verdict"] == "incomplete" and one["recorded"] == recorded, f"{age} s old: {one}")
        check(states(sh)[("ds", 3)] == ("incomplete" if recorded else "unverified"), str(states(sh)))


def case_another_tools_checkpoint_is_verified_by_its_own_checksums_or_noted(sh):
    shutil.copytree(sh.golden / "torch/dcp_plain/ckpt", sh.path("store/demo/step_9"))
    shutil.copytree(sh.golden / "safetensors/single/ckpt", sh.path("store/hf/checkpoint-5"))
    data = scrub(sh)["data"]
    check([one["verdict"] for one in data["checkpoints"]] == ["intact", "intact"] and all(one["recorded"] for one in data["checkpoints"]), str(data))
    check(states(sh)[("hf", 5)] == "unverified", "verified without a checksum")
    check(scrub(sh, "--max-age", "30d")["data"]["due"] == 0, "the same again")
    check(not list(sh.path("store/hf/checkpoint-5").glob("marks")), "a directory of the other tool's own")


def foreign(sh, age=3600):
    """A DCP checkpoint, which has checksums, of another tool."""
    shutil.copytree(sh.golden / "torch/dcp_plain/ckpt", sh.path("store/demo/step_9"))
    return aged(sh.path("store/demo/step_9"), age)


def aged(checkpoint, age):
    for file in checkpoint.iterdir():
        if file.is_file():
            os.utime(file, (time.time() - age, time.time() - age))
    return checkpoint


def case_damage_of_another_tools_checkpoint_is_recorded_by_its_name_too(sh):
    tag = foreign(sh)
    sh.run("verify", "demo@9", "--store", "store")
    check(not (tag / ".ckpt-marks").exists(), "a look at what is intact leaves something in another tool's directory")
    scrub(sh)
    check(states(sh)[("demo", 9)] == "verified", str(states(sh)))
    file = max(tag.glob("*.distcp"), key=lambda p: p.stat().st_size)
    good = file.read_bytes()
    middle = len(good) // 2
    file.write_bytes(good[:middle] + bytes(byte ^ 1 for byte in good[middle:middle + 512]) + good[middle + 512:])
    aged(tag, 3600)
    sh.run("verify", tag, "-q", code=1)
    check(states(sh)[("demo", 9)] == "damaged", str(states(sh)))
    file.write_bytes(good)
    check(states(sh)[("demo", 9)] == "damaged", "forgotten without a look")
    sh.run("verify", tag)
    check(states(sh)[("demo", 9)] == "verified", str(states(sh)))


def case_what_another_tool_wrote_after_the_verification_is_not_verified(sh):
    tag = foreign(sh)
    scrub(sh)
    check(states(sh)[("demo", 9)] == "verified", str(states(sh)))
    time.sleep(0.01)
    file = next(tag.glob("*.distcp"))
    file.write_bytes(file.read_bytes())
    for words in ([], ["--rebuild"]):
        sh.run("list", "--store", "store", *words)
        check(states(sh)[("demo", 9)] == "unverified", str(states(sh)))
    check(scrub(sh, "--max-age", "30d")["data"]["due"] == 1, "not due")
    check(states(sh)[("demo", 9)] == "verified", str(states(sh)))


def case_checksums_of_a_part_verify_only_that_part(sh):
    shutil.copytree(sh.checkpoint("folders/hf_trainer"), sh.path("store/hf/checkpoint-5"))  # its optimizer has checksums
    data = scrub(sh)["data"]
    report = data["checkpoints"][0]["report"]
    check(report["source_checksums"] > 0 and "tensors)" in report["checked_by"], str(report))
    check(states(sh)[("hf", 5)] == "unverified", "the weights have no checksum")


def case_a_quick_scrub_records_nothing(sh):
    store(sh)
    check([one["recorded"] for one in scrub(sh, "--quick")["data"]["checkpoints"]] == [False] * 3, "recorded")
    check(set(states(sh).values()) == {"complete"} and not (place(sh, 1) / "marks").exists(), "recorded")


def case_a_store_that_cannot_be_written_is_not_all_done(sh):
    store(sh, (("llama", (1,)),))
    (place(sh, 1) / "marks").write_text("no directory")  # also stops root
    document = scrub(sh, code=3)
    check(any("could not be recorded" in warning["text"] for warning in document["warnings"]), str(document["warnings"]))
    check(not document["data"]["checkpoints"][0]["recorded"], str(document))


def case_with_q_a_scrub_prints_damage_and_nothing_else(sh):
    store(sh)
    words = ("verify", "--all", "--store", "store", "-q")
    result = sh.run(*words)
    check(result.out + result.err == "", "-q speaks though all is well", result)
    file = next((place(sh, 2) / "shards/weights").iterdir())
    file.write_bytes(b"x" * file.stat().st_size)
    next((place(sh, 1) / "shards/weights").iterdir()).unlink()
    result = sh.run(*words, code=1, err=["^warning: llama@2: damaged: ", "^warning: llama@1: incomplete: "])
    check(result.out == "" and len(result.err.splitlines()) == 2, "more than a line for each", result)
    result = sh.run("verify", place(sh, 2), "-q", code=1, err="^warning: .*step-000000002.g2: damaged: ")
    check(result.out == "" and len(result.err.splitlines()) == 1, "more than a line", result)
    status = sh.document("status", "--store", "store")["data"]
    check((status["last_verify"]["exit_code"], status["last_verify"]["damaged"], status["runs"][0]["damaged"]) == (1, 2, 2), str(status))
    sh.run("status", "--store", "store", out=["^last verify .*: 3 checked, 2 damaged$", "^next: ckpt list --state damaged --store store$", "2 damaged$"])
    sh.run("status", "--store", "store", "--prom", "ckpt.prom")
    lines = sh.path("ckpt.prom").read_text().splitlines()
    for line in ("ckpt_last_verify_success 0", "ckpt_last_verify_exit_code 1", "ckpt_last_verify_damaged 2", 'ckpt_damaged{run="llama"} 2'):
        check(line in lines, f"{line}: not in {lines}")


def case_a_mistyped_run_is_not_the_stores_last_verification(sh):
    store(sh)
    scrub(sh)
    sh.run("verify", "--all", "lama", "--store", "store", code=10)
    check(sh.document("status", "--store", "store")["data"]["last_verify"]["exit_code"] == 0, "recorded")


def case_prune_keeps_the_newest_that_a_scrub_verified(sh):
    store(sh)
    sh.run("verify", "--all", "--store", "store")
    damage(place(sh, 3))
    scrub(sh, code=1)
    sh.run("prune", "--store", "store", "--keep-last", "1", out=["llama@2 +.*keep +.*the newest verified of its run"])
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')
    sh.run("why", "llama@2", "--store", "store", out=["the newest verified of its run", r"^  state     verified, checked 20\d\d-"])


def case_words_that_do_not_go_together_are_refused(sh):
    store(sh, (("llama", (1,)),))
    for words, error in ((["one", "--since", "7d"], "--all"), (["one", "--max-age", "7d"], "--all"),
                         (["--all", "--against", "one"], "--against"), (["--all", "--seed", "3"], "--seed"), ([], "PATH"),
                         (["one", "two"], "one PATH"), (["--all", "--max-age", "soon"], "--max-age"), (["--all", "--sample", "5"], "percentage")):
        sh.run("verify", *words, code=2, err=error)
    sh.run("verify", "--all", "lama", "--store", "store", code=10, err="did you mean 'llama'")
    sh.run("verify", "--all", "--store", "nowhere", code=10, err="nowhere")
    sh.run("verify", "one", env={"CKPT_STORE": "store"}, out="ok")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
