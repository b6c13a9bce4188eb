"""trash.recycle: what ckpt prune retires is overwritten by the next save. On ext4 and XFS only."""
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from retired import label, shards, suited
from runner import check, main

POLICY = """[trash]
recycle = {}
purge_early_when_free_below = "{}"
[[rule]]
runs = "*"
keep = {{ last = 2 }}
"""


def save(sh, step, source="safetensors/single", run="llama"):
    sh.run("save", sh.checkpoint(source), "--store", "store", "--run", run, "--step", str(step))


def store(sh, recycle=1, steps=(1, 2, 3), below="0%"):
    for step in steps:
        save(sh, step)
    sh.path("store/ckpt.toml").write_text(POLICY.format(recycle, below))
    return sh.path("store/llama")


def prune(sh, *words, **more):
    return sh.run("prune", "--store", "store", "--apply", "-y", *words, **more)


def recycled(sh):
    folder = sh.path("store/.ckpt/recycle")
    return {p.name: label(p) for p in folder.iterdir()} if folder.is_dir() else {}


def case_the_next_save_is_written_into_what_was_retired(sh):
    if not suited(sh.directory):
        return
    run = store(sh)
    old = shards(run / "step-000000001.g1")
    plan = sh.document("prune", "--store", "store", "-y")["data"]
    check(plan["bytes_for_next_save"] > 0 and plan["bytes_freed"] == 0 and plan["delete_count"] == 1, str(plan))
    sh.run("prune", "--store", "store", "-y", out="free 0 B, recycle .* for the next save")
    done = sh.document("prune", "--store", "store", "--apply", "-y")["data"]
    check(done["recycled"] == 1 and done["recycled_bytes"] > 0 and done["purged"] == 1, str(done))
    check(done["trashed"] == 1 and set(done["in_trash"].values()) == {0}, str(done))
    check(set(recycled(sh).values()) == set(old.values()), f"{recycled(sh)}, not {old}")
    status = sh.document("status", "--store", "store")["data"]["recycled"]
    check(status == {"sets": 1, "files": len(old), "bytes": done["recycled_bytes"]}, str(status))
    sh.run("status", "--store", "store", out="^free .*, and .* of recycled files for the next save$")
    save(sh, 4)
    new = run / "step-000000004.g4"
    check(shards(new) == old, f"{shards(new)}, not {old}")
    check(recycled(sh) == {}, "something is left")
    for step in (2, 3, 4):
        sh.run("verify", run / f"step-{step:09}.g{step}", out="   ok   ")
    sh.run("verify", new, "--against", run / "step-000000003.g3", out="   ok   ")


def case_what_was_recycled_cannot_be_brought_back_and_that_is_told(sh):
    if not suited(sh.directory):
        return
    store(sh)
    prune(sh, out="^1 of these recycled for the next save; .* stay in use$")
    sh.run("undelete", "llama@1", "--store", "store", code=10, err=["its files were recycled", "recycle = 0"])
    sh.run("why", "llama@1", "--store", "store", out="its files were recycled")
    check(sh.document("why", "llama@1", "--store", "store")["data"], "nothing is known of it")
    sh.run("list", "--tsv", "--store", "store", not_out="^llama\t1\t")
    check(sh.document("repair", "store")["data"]["items"] == [], "a retired file is no damage")


def case_no_more_sets_wait_than_the_policy_says(sh):
    if not suited(sh.directory):
        return
    run = store(sh, steps=(1, 2, 3, 4, 5))
    third = shards(run / "step-000000003.g3")
    prune(sh, out=["^3 checkpoints deleted, 2 of them moved to the trash", "^1 checkpoint deleted permanently"])
    check(set(recycled(sh).values()) == set(third.values()), "not the youngest")
    trash = sh.path("store/.ckpt/trash/llama")
    check(sorted(p.name for p in trash.iterdir() if p.is_dir()) == ["step-000000001.g1", "step-000000002.g2"], "the others have no grace")
    sh.run("undelete", "llama@2", "--store", "store")
    prune(sh)
    check((run / "step-000000002.g2").is_dir(), "what was restored has no grace")
    record = trash / "step-000000002.g2.json"
    record.write_text(re.sub(r'"changed_ms":\s*\d+', '"changed_ms":1', record.read_text()))  # its new grace is over
    prune(sh)  # the 2 again, which was retired later than the 3: its turn
    check(not set(recycled(sh).values()) & set(third.values()) and len(recycled(sh)) == len(third), str(recycled(sh)))
    sh.path("store/ckpt.toml").write_text(POLICY.format(0, "0%"))
    prune(sh, out="of recycled files freed$")
    check(recycled(sh) == {}, "recycle = 0 keeps nothing")


def case_a_file_that_somebody_has_open_is_not_overwritten(sh):
    if not suited(sh.directory):
        return
    run = store(sh)
    path = next((run / "step-000000001.g1").glob("shards/*/*.safetensors"))
    content, old = path.read_bytes(), shards(run / "step-000000001.g1")
    with open(path, "rb") as reader:
        prune(sh)
        save(sh, 4)
        check(not set(old.values()) & set(shards(run / "step-000000004.g4").values()), "it was overwritten")
        check(reader.read() == content, "its reader sees other bytes")
    sh.run("verify", run / "step-000000004.g4", out="   ok   ")


def case_what_has_another_name_or_mode_is_not_overwritten(sh):
    if not suited(sh.directory):
        return
    run = store(sh)
    path = next((run / "step-000000001.g1").glob("shards/*/*.safetensors"))
    content = path.read_bytes()
    os.link(path, sh.path("mine"))
    os.chmod(next((run / "step-000000002.g2").glob("shards/*/*.safetensors")), 0o600)
    prune(sh)
    save(sh, 4)
    check(sh.path("mine").read_bytes() == content, "it was written through a second name")
    other = shards(run / "step-000000002.g2")
    prune(sh)
    save(sh, 5)
    check(not set(other.values()) & set(shards(run / "step-000000005.g5").values()), "another mode")
    check({p.stat().st_mode & 0o777 for p in run.rglob("*.safetensors")} == {0o644}, "modes")


def case_where_space_is_short_what_waits_goes_first(sh):
    if not suited(sh.directory):
        return
    store(sh)
    prune(sh)
    check(len(recycled(sh)) > 0, "nothing waits")
    sh.path("store/ckpt.toml").write_text(POLICY.format(1, "100%"))
    done = sh.document("prune", "--store", "store", "--apply", "-y")["data"]
    check(done["purged_early"] is True and done["emptied_bytes"] > 0 and recycled(sh) == {}, str(done))
    save(sh, 4)
    prune(sh)
    check(recycled(sh) == {}, "retired files wait though space is short")


def case_optimizers_that_were_dropped_are_recycled_too(sh):
    if not suited(sh.directory):
        return
    for step in (1, 2):
        save(sh, step, "deepspeed/zero2_bf16_dp4")
    sh.path("store/ckpt.toml").write_text(POLICY.format(1, "0%").replace("last = 2 }", "last = 2 }\ndrop_optimizer_after = \"1s\""))
    run = sh.path("store/llama")
    old = {n: i for n, i in shards(run / "step-000000001.g1").items() if n.startswith("shards/optim")}
    prune(sh, out=["^1 checkpoint reduced to weights$", "^1 optimizer deleted permanently, .* freed$", "^1 of these recycled"])
    check(set(recycled(sh).values()) == set(old.values()), f"{recycled(sh)}, not {old}")
    sh.run("verify", run / "step-000000001.g1", out="weights only")
    sh.run("undelete", "llama@1", "--store", "store", code=10, err="its files were recycled")
    save(sh, 3, "deepspeed/zero2_bf16_dp4")
    check(set(old.values()) <= set(shards(run / "step-000000003.g3").values()), "not taken")
    sh.run("verify", run / "step-000000003.g3", out="   ok   ")


def case_a_simulation_counts_what_saves_overwrite(sh):
    words = ("prune", "--store", "store", "--simulate", "--interval", "10", "--until", "100", "--checkpoint-size", "700B")
    sh.path("store/.ckpt").mkdir(parents=True)
    told = {}
    for recycle in (0, 1):
        sh.path("store/ckpt.toml").write_text(POLICY.format(recycle, "0%"))
        told[recycle] = sh.document(*words)
    one = {recycle: answer["data"]["simulations"][0] for recycle, answer in told.items()}
    check((one[0]["peak_bytes"], one[0]["reused_bytes"]) == (7000, 0), f"all are in the trash for a day: {one[0]}")
    if suited(sh.directory):
        check((one[1]["peak_bytes"], one[1]["reused_bytes"]) == (2100, 4900), str(one[1]))
        sh.run(*words, out=["^  peak +.* at step 30, trash and retired files counted$", "^  overwritten +4.79 KiB of retired files, by the saves$"])
    else:
        check((one[1]["peak_bytes"], one[1]["reused_bytes"]) == (7000, 0), str(one[1]))
        check("no benefit" in json.dumps(told[1]), str(told[1]))


def case_doctor_tells_what_waits(sh):
    if not suited(sh.directory):
        return
    store(sh)
    prune(sh)
    sh.path("store/.ckpt/recycle/mine").write_text("not ours")
    found = [d for d in sh.document("doctor", "store")["data"]["findings"] if d["about"] == "recycle"]
    check(len(found) == 2 and "1 recycled" in json.dumps(found), str(found))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
