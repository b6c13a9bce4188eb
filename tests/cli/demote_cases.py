"""ckpt prune with drop_optimizer_after: checkpoints reduced to weights, and their optimizers restored; --simulate."""
import json
import shutil
import time

from runner import check, main


def store(sh, keep="last = 3"):
    """STORE/llama/step-N.gN for 1, 2, 3, converted from a checkpoint of a training framework."""
    sh.run("convert", sh.checkpoint("deepspeed/zero2_bf16_dp4"), "one", "--to", "ckpt")
    for step in (1, 2, 3):
        target = sh.path("store") / "llama" / f"step-{step:09}.g{step}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(sh.path("one"), target)
    # The disk under the tests may be nearly full: the trash still waits for its grace.
    sh.path("store/ckpt.toml").write_text('[trash]\npurge_early_when_free_below = "0%"\n'
                                          '[[rule]]\nruns = "*"\nkeep = { ' + keep + ' }\ndrop_optimizer_after = "1s"\n')
    return sh.path("store/llama")


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def demoted(sh):
    run = store(sh)
    sh.run("prune", "--store", "store", "--apply", "-y", out=r"^2 checkpoints reduced to weights, .* of optimizer state in the trash$", not_out="^0 ")
    return run


def case_a_demotion_is_shown_and_then_carried_out(sh):
    run = store(sh)
    before = files(run / "step-000000001.g1")
    plan = sh.document("prune", "--store", "store", "-y")["data"]
    check(plan["demote_count"] == 2 and plan["delete_count"] == 0, str(plan))
    done = sh.document("prune", "--store", "store", "--apply", "-y")["data"]
    check(done["decision"] == "done" and done["demoted"] == 2 and done["trashed"] == 0 and not done["kept"], str(done))
    after = files(run / "step-000000001.g1")
    check(not any(name.startswith("shards/optim") for name in after), str(sorted(after)))
    changed = {"manifest.json", "index/manifest.json"}
    same = {name for name in before if not name.startswith("shards/optim")} - changed
    check(same and all(after[name] == before[name] for name in same), "something else was changed")
    manifest = json.loads(after["manifest.json"])
    check(manifest["revision"] == 1 and manifest["dropped"] == ["optim"], "the manifest does not say so")
    check(files(run / "step-000000003.g3") == before, "the newest was touched")
    again = sh.document("prune", "--store", "store", "--apply")["data"]
    check(again["demoted"] == 0 and again["demote_count"] == 0, "demoted twice")


def case_what_is_left_is_a_whole_checkpoint_of_weights(sh):
    run = demoted(sh)
    old = run / "step-000000001.g1"
    sh.run("verify", old, out=["   ok   ", "weights only: its optimizer state was dropped \\(revision 1\\)"])
    sh.run("convert", old, "weights.safetensors", "--only", "weights")
    sh.run("convert", run / "step-000000003.g3", "whole.safetensors", "--only", "weights", "--dtype", "bf16")  # of the fp32 masters
    sh.run("verify", "weights.safetensors", "--against", "whole.safetensors", out="   ok   ")
    sh.run("inspect", old, out="weights only")
    rows = sh.document("list", "--store", "store")["data"]["checkpoints"]
    kinds = {row["step"]: row["optimizer_bytes"] == 0 for row in rows}
    check(kinds == {1: True, 2: True, 3: False}, str(rows))


def case_a_checkpoint_of_many_writers_keeps_its_weights(sh):
    run = store(sh, keep="every_steps = 1")
    shutil.rmtree(run / "step-000000001.g1")
    shutil.copytree(sh.checkpoint("ckpt/1.0-mesh"), run / "step-000000001.g1")
    before = {n: b for n, b in files(run / "step-000000001.g1").items() if n.startswith("shards/weights")}
    sh.run("prune", "--store", "store", "--apply", "-y", out="^2 checkpoints reduced")
    after = files(run / "step-000000001.g1")
    check({n: b for n, b in after.items() if n.startswith("shards/")} == before, str(sorted(after)))
    sh.run("verify", run / "step-000000001.g1", out="   ok   ")
    sh.run("convert", run / "step-000000001.g1", "weights.safetensors", "--only", "weights")


def case_why_tells_when_and_by_whom_the_optimizer_was_dropped(sh):
    demoted(sh)
    for name in ("llama@1", "llama@step-000000001.g1", "llama/step-000000001.g1"):
        sh.run("why", name, "--store", "store", out="optimizer")
    sh.run("prune", "--store", "store", out=r"^policy  ckpt.toml: \*: keep the newest 3; weights only after 1 s$")


def case_status_tells_what_was_dropped_and_what_waits_in_the_trash(sh):
    run = demoted(sh)
    sh.run("list", "--tsv", "--store", "store", out="\toptimizer dropped\t")
    sh.run("status", "--store", "store", out=[r"^llama: optimizer dropped from 2, last at step 2: \d+ s ago, policy '\*' of ckpt.toml: in the newest 3 \(2nd\); weights only: ",
                                              r"^trash 2 optimizers, .* · expires in 2[34] h$"])
    data = sh.document("status", "--store", "store")["data"]
    one, trash = data["runs"][0], data["trash"]
    last = one["newest_dropped"]
    check((one["optimizer_dropped"], last["step"], last["directory"]) == (2, 2, "step-000000002.g2"), str(one))
    check(last["policy"] == "* of ckpt.toml" and last["in_trash_until"] == trash["last_over"] > last["dropped"], str(data))
    check((trash["checkpoints"], trash["optimizers"], trash["over"], trash["unrecorded"]) == (0, 2, 0, 0), str(trash))
    held = sum(p.stat().st_size for p in sh.path("store/.ckpt/trash").rglob("*.safetensors"))
    check(trash["bytes"] == held, f"{trash}, not {held}")
    sh.run("undelete", "llama@2", "--store", "store")
    check(sh.document("status", "--store", "store")["data"]["runs"][0]["newest_dropped"]["step"] == 1, "the 2 has its optimizer again")
    # Without a grace everything is removed at once, except the records; without a record only the count remains.
    sh.run("prune", "--store", "store", "--apply", "-y", "--grace", "0", "--keep-last", "2")
    sh.run("prune", "--store", "store", "--apply", "-y", "--purge-early-below", "100%", "--keep-last", "2")
    check(sh.document("status", "--store", "store")["data"]["trash"]["bytes"] == 0, "the trash is empty")
    sh.run("status", "--store", "store", not_out="^trash")
    shutil.rmtree(sh.path("store/.ckpt/trash"))
    demoted_again = sh.document("status", "--store", "store")["data"]["runs"][0]
    check(demoted_again["optimizer_dropped"] == 0 and demoted_again["newest_dropped"] is None and run.is_dir(), str(demoted_again))


def case_status_tells_of_a_demotion_that_no_record_tells_of(sh):
    demoted(sh)
    shutil.rmtree(sh.path("store/.ckpt/trash"))
    one = sh.document("status", "--store", "store")["data"]["runs"][0]
    check(one["optimizer_dropped"] == 2 and one["newest_dropped"]["dropped"] is None, str(one))
    sh.run("status", "--store", "store", out="^llama: optimizer dropped from 2, last at step 2$", not_out="^trash")


def case_the_trash_of_one_run_and_what_prometheus_is_told(sh):
    run = demoted(sh)
    shutil.copytree(run / "step-000000003.g3", run.parent / "other/step-000000001.g1")
    shutil.copytree(run / "step-000000003.g3", run.parent / "other/step-000000003.g3")
    sh.run("prune", "other", "--store", "store", "--keep-last", "1", "--grace", "1s", "--purge-early-below", "0", "--apply", "-y")
    shutil.copytree(run / "step-000000003.g3", run.parent / ".ckpt/trash/other/step-000000009.g9")
    time.sleep(1.1)
    sh.run("status", "--store", "store", out=r"^trash 1 checkpoint and 2 optimizers, .* · 1 expired: the next ckpt prune --apply removes it, the last expires in 2[34] h · 1 without a record: never removed automatically$")
    for name, told in (("llama", (0, 2, 0, 0)), ("other", (1, 0, 1, 1))):
        trash = sh.document("status", "--store", "store", "--run", name)["data"]["trash"]
        check((trash["checkpoints"], trash["optimizers"], trash["over"], trash["unrecorded"]) == told, f"{name}: {trash}")
    sh.run("status", "--store", "store", "--prom", "ckpt.prom")
    lines = sh.path("ckpt.prom").read_text().splitlines()
    for line in ('ckpt_demoted{run="llama"} 2', 'ckpt_demoted{run="other"} 0', "ckpt_trash_checkpoints 1", "ckpt_trash_optimizers 2", "ckpt_trash_expired 1"):
        check(line in lines, f"{line}: not in {lines}")
    times = [float(line.split()[1]) for line in lines if line.startswith("ckpt_trash_first_expiry_timestamp_seconds ")]
    check(len(times) == 1 and 0 <= time.time() - times[0] < 60, f"{times}")


def case_undelete_brings_the_optimizer_back(sh):
    run = demoted(sh)
    old = run / "step-000000001.g1"
    sh.run("undelete", "llama@1", "--store", "store")
    sh.run("verify", old, not_out="weights only", out="   ok   ")
    sh.run("verify", old, "--against", run / "step-000000003.g3", out="   ok   ")
    check(json.loads((old / "manifest.json").read_text())["dropped"] == [], "the manifest does not say so")


def case_what_is_not_whole_is_not_demoted(sh):
    run = store(sh, keep="every_steps = 1")
    shard = next((run / "step-000000001.g1/shards/weights").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    sh.run("prune", "--store", "store", "--apply", "-y", code=3, out="^1 checkpoint reduced to weights", err="000000001.g1: kept: .*bytes, but sums.bin says")
    check(list((run / "step-000000001.g1/shards/optim").iterdir()), "its optimizer is gone")


def case_a_policy_is_tried_on_a_run_that_is_not_trained_yet(sh):
    sh.path("store").mkdir()
    words = ("prune", "--store", "store", "--simulate", "--interval", "500", "--until", "100000")
    sh.run(*words, "--keep-last", "3", code=2, err="--checkpoint-size")
    told = sh.document(*words, "--keep-last", "3", "--grace", "0", "--checkpoint-size", "14G")["data"]
    check(told["decision"] == "simulated" and not told["checkpoints"], str(told))
    one = told["simulations"][0]
    check((one["saves"], one["kept"], one["trashed"], one["worst_loss"]) == (200, 3, 197, 500), str(one))
    check(one["peak_bytes"] == 4 * 14 * 2**30 and one["worst_gap"] == 99000, str(one))
    sh.run(*words, "--keep-last", "3", "--keep-every", "10000", "--checkpoint-size", "14G",
           out=["^  saves        200, every 500 steps to 100000, of 14 GiB$", "^  worst gap    10000 steps, from 0 to 10000$", "trained again$"])
    sh.run("prune", "--store", "store", "--interval", "500", "--keep-last", "3", code=2, err="needs --simulate")
    sh.run(*words, "--keep-last", "3", "--apply", code=2, err="cannot be used together")


def case_the_size_of_a_simulated_checkpoint_is_that_of_the_last_saved(sh):
    store(sh)
    one = sh.document("prune", "--store", "store", "--simulate", "--interval", "10", "--until", "100", "--step-time", "1m")["data"]["simulations"][0]
    check(one["like"].startswith("llama/step-") and one["bytes"] > one["optimizer_bytes"] > 0 and one["demoted"] > 0, str(one))


if __name__ == "__main__":
    main({name: value for name, value in list(globals().items()) if name.startswith("case_")})
