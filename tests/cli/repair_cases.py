"""ckpt repair: leftovers of crashed saves, lost or torn manifests, interrupted deletions."""
import fcntl
import json
import os
import shutil

from runner import check, main
from scrub_cases import damage, place, states, store

ID = "0123456789abcdef0123456789abcdef"


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def repair(sh, path, *words, code=0):
    return sh.document("repair", path, *words, code=code)["data"]


def left_over(sh, name="step-000000009.partial-" + ID):
    partial = sh.path("store/llama") / name
    (partial / "shards/weights").mkdir(parents=True)
    (partial / "shards/weights/00000-00000.safetensors").write_bytes(b"x" * 1000)
    return partial


def case_a_whole_store_needs_no_repair(sh):
    store(sh)
    before = tree(sh.path("store"))
    sh.run("repair", "store", out="^3 checkpoints checked, nothing to repair")
    sh.run("repair", "store", "--apply", out="nothing to repair")
    data = repair(sh, place(sh, 1))
    check(data["checkpoints"] == 1 and data["bytes"] > 0 and not data["items"], str(data))
    check(tree(sh.path("store")) == before, "something was changed")


def case_what_killed_saves_left_is_shown_and_swept_with_apply(sh):
    store(sh)
    partial = left_over(sh)
    sh.run("repair", "store", out=["^left-over +store/llama/step-000000009.partial-.*1000 B", "to be removed", "Run with --apply"])
    check(partial.exists(), "removed without --apply")
    held = os.open(partial, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    item, = repair(sh, "store", "--apply")["items"]
    check(not item["done"] and "another process" in item["kept_because"] and partial.exists(), str(item))
    os.close(held)
    item, = repair(sh, "store/llama", "--apply")["items"]
    check(item["done"] and item["bytes"] == 1000 and not partial.exists(), str(item))


def case_only_names_that_saves_make_are_swept(sh):
    store(sh)
    for name in ("thesis.partial-copy", "movie.partial-12", "x.partial-" + ID.upper()):
        sh.path("store/llama").joinpath(name).write_text("mine")
    check(not repair(sh, "store", "--apply")["items"], "another's file")
    check(len(list(sh.path("store/llama").glob("*.partial-*"))) == 3, "removed")


def case_a_partial_that_holds_other_files_stays(sh):
    store(sh)
    partial = left_over(sh)
    for name in ("thesis.tex", "a", "b", "shards/c"):
        (partial / name).write_text("mine")
    item, = repair(sh, "store", "--apply")["items"]
    check(not item["done"] and "it also holds a, b, shards/c and 1 more" in item["kept_because"], str(item))
    item, = repair(sh, partial, "--apply")["items"]
    check(not item["done"] and (partial / "thesis.tex").read_text() == "mine", str(item))


def case_a_save_leaves_what_others_put_into_a_killed_save(sh):
    store(sh)
    partial = left_over(sh)
    (partial / "sub").mkdir(exist_ok=True)
    (partial / "sub/notes.txt").write_text("mine")
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "store", "--run", "llama", "--step", "900",
           err=["it also holds sub/, which ckpt did not put there"])
    check((partial / "sub/notes.txt").read_text() == "mine", "removed")


def case_a_conversion_that_would_go_on_is_left_to_it_unless_named(sh):
    store(sh)
    partial = left_over(sh, "out.partial-" + ID)
    record = partial.with_name(partial.name + ".leaves")
    record.write_bytes(b"")
    item, = repair(sh, "store", "--apply")["items"]
    check(not item["done"] and "would resume from it" in item["kept_because"] and partial.exists(), str(item))
    repair(sh, partial, "--apply")
    check(not partial.exists() and not record.exists(), "named, and not removed")
    record.write_bytes(b"")
    item, = repair(sh, "store", "--apply")["items"]
    check(item["done"] and not record.exists(), "a record without its partial")


def case_a_lost_or_torn_manifest_is_restored_from_its_copy(sh):
    store(sh)
    whole = tree(sh.path("one"))
    for how in (lambda f: f.unlink(), lambda f: f.write_bytes(b""), lambda f: f.write_bytes(f.read_bytes()[:-9]),
                lambda f: f.write_bytes(f.read_bytes().replace(b'"tensors"', b'"tensorz"'))):
        how(place(sh, 2) / "manifest.json")
        sh.run("list", "--rebuild", "--store", "store")
        check(states(sh)[("llama", 2)] == "repairable", str(states(sh)))
        item, = repair(sh, "store", code=1)["items"]
        check(item["defect"] == "manifest" and item["planned"] and not item["done"], str(item))
        item, = repair(sh, "store", "--apply")["items"]
        check(item["done"], str(item))
        now = tree(place(sh, 2))
        check({k: v for k, v in now.items() if not k.startswith("marks/")} == whole, "not what it was")
        said = {k.split("-")[0]: json.loads(v) for k, v in now.items() if k.startswith("marks/")}
        check("restored" in said["marks/note"]["text"] and said["marks/note"]["name"] == "repaired", str(said))
        check(states(sh)[("llama", 2)] == "verified", str(states(sh)))
        shutil.rmtree(place(sh, 2) / "marks")


def case_a_lost_torn_or_old_copy_is_restored_from_the_manifest(sh):
    store(sh)
    copy = place(sh, 2) / "index/manifest.json"
    sh.run("convert", sh.checkpoint("torch/dcp_plain"), "other", "--to", "ckpt")
    other = sh.path("other/manifest.json").read_bytes()
    for how in (copy.unlink, lambda: copy.write_bytes(b"{"), lambda: copy.write_bytes(other), lambda: shutil.rmtree(copy.parent)):
        how()
        sh.run("verify", place(sh, 2), code=1)
        item, = repair(sh, place(sh, 2), "--apply")["items"]
        check(item["defect"] == "manifest-copy" and item["done"], str(item))
        sh.run("verify", place(sh, 2))


def case_nothing_is_restored_over_damaged_data(sh):
    store(sh)
    damage(place(sh, 2))
    (place(sh, 2) / "manifest.json").unlink()
    before = tree(place(sh, 2))
    for words in ((), ("--apply",)):
        item, = repair(sh, "store", *words, code=1)["items"]
        check(item["defect"] == "damage" and item["damage"] and not item["planned"], str(item))
    check(tree(place(sh, 2)) == before, "something was changed")
    shutil.rmtree(place(sh, 2))
    shutil.copytree(sh.path("one"), place(sh, 2))
    (place(sh, 2) / "manifest.json").unlink()
    next((place(sh, 2) / "shards").rglob("*.safetensors")).unlink()
    item, = repair(sh, "store", "--apply", code=1)["items"]
    check(item["defect"] == "damage" and not (place(sh, 2) / "manifest.json").exists(), str(item))


def case_the_copy_of_another_checkpoint_restores_nothing(sh):
    store(sh)
    sh.run("convert", sh.checkpoint("torch/dcp_plain"), "other", "--to", "ckpt")
    (place(sh, 2) / "manifest.json").unlink()
    shutil.copy(sh.path("other/index/manifest.json"), place(sh, 2) / "index/manifest.json")
    item, = repair(sh, place(sh, 2), "--apply", code=1)["items"]
    check(item["defect"] == "damage" and not (place(sh, 2) / "manifest.json").exists(), str(item))
    (place(sh, 2) / "index/manifest.json").unlink()
    item, = repair(sh, place(sh, 2), "--apply", code=1)["items"]
    check("the list of tensors is lost" in item["kept_because"], str(item))


def case_what_is_being_read_is_not_replaced(sh):
    store(sh)
    (place(sh, 2) / "index/manifest.json").unlink()
    held = os.open(place(sh, 2), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    item, = repair(sh, "store", "--apply", code=1)["items"]
    check("in use" in item["kept_because"] and not (place(sh, 2) / "index/manifest.json").exists(), str(item))
    os.close(held)


def case_damage_that_a_scrub_found_is_told(sh):
    store(sh)
    file = damage(place(sh, 2))
    sh.run("verify", "--all", "--store", "store", code=1)
    sh.run("repair", "store", code=1, out=[f"found .*{file.name}", "ckpt repair .* --out NEW"])
    item, = repair(sh, place(sh, 2), code=1)["items"]
    check(file.name in item["damage"][0]["file"], str(item))


def case_a_deletion_that_a_crash_stopped_is_finished(sh):
    store(sh)
    sh.run("prune", "--store", "store", "--keep-last", "1", "--apply", "-y", "--purge-early-below", "0%")
    trash = sh.path("store/.ckpt/trash/llama")
    record = trash / "step-000000001.g1.json"
    record.write_text(record.read_text().replace('"trashed"', '"purging"'))
    (trash / "step-000000001.g1/manifest.json").unlink()
    item, = repair(sh, "store")["items"]
    check(item["defect"] == "deletion" and item["planned"], str(item))
    item, = repair(sh, "store", "--apply")["items"]
    check(item["done"] and not (trash / "step-000000001.g1").exists() and (trash / "step-000000002.g2").is_dir(), str(item))
    check(not repair(sh, "store")["items"], "again")


def mesh(sh):
    shutil.copytree(sh.checkpoint("ckpt/1.0-mesh"), sh.path("bad"))
    return sh.path("bad")


def names(sh, path):
    return {one["name"] for one in sh.document("ls", path)["data"]["tensors"]}


def check_salvaged(sh, out, lost):
    """Exactly the tensors that are not lost are stored, bit for bit."""
    whole = names(sh, sh.checkpoint("ckpt/1.0-mesh"))
    check(lost and lost < whole and names(sh, out) == whole - lost, f"lost {sorted(lost)} of {sorted(whole)}")
    sh.run("verify", out, out="ok")
    against = sh.document("verify", out, "--against", sh.checkpoint("ckpt/1.0-mesh"), code=1)["data"]["against"]
    check(not against["different"] and not against["only_here"] and against["equal"] > 0, str(against))


def case_what_is_intact_is_salvaged_and_what_is_lost_is_told(sh):
    bad = mesh(sh)
    damage(bad)
    before = tree(bad)
    data = repair(sh, bad, "--out", "plan", "-n", code=3)
    check(data["salvage"]["lost"] and not sh.path("plan").exists(), str(data))
    data = repair(sh, bad, "--out", "out", code=3)["salvage"]
    check(data["damage"] and not data["missing"] and not data["by_copy"], str(data))
    check_salvaged(sh, sh.path("out"), {one["name"] for one in data["lost"]})
    check(tree(bad) == before, "the damaged one was changed")
    note, = sh.path("out/marks").glob("note-*.json")
    check(data["lost"][0]["name"] in json.loads(note.read_text())["text"], note.read_text())
    sh.run("repair", bad, "--out", "out2", code=3, out=["^  damage ", "^  lost ", "^[0-9]+ of [0-9]+ tensors salvaged to out2, [0-9]+ lost"])


def case_missing_and_short_files_lose_only_their_tensors(sh):
    shards = sorted(p.relative_to(sh.checkpoint("ckpt/1.0-mesh")) for p in sh.checkpoint("ckpt/1.0-mesh").rglob("*.safetensors"))
    for number, (file, how) in enumerate(((shards[0], "gone"), (shards[-1], "short"))):
        shutil.rmtree(sh.path("bad"), ignore_errors=True)
        broken = mesh(sh) / file
        if how == "gone":
            broken.unlink()
        else:
            broken.write_bytes(broken.read_bytes()[:-1])
        told = repair(sh, "bad", "--out", f"out{number}", code=3)["salvage"]
        check_salvaged(sh, sh.path(f"out{number}"), {one["name"] for one in told["lost"]})
        check([one["name"] for one in told["missing"]] == [str(file)], str(told))


def case_a_salvage_reads_the_copy_of_a_lost_manifest(sh):
    bad = mesh(sh)
    (bad / "manifest.json").unlink()
    told = repair(sh, bad, "--out", "whole")["salvage"]
    check(told["by_copy"] and not told["lost"], str(told))
    check(names(sh, sh.path("whole")) == names(sh, sh.checkpoint("ckpt/1.0-mesh")), "not all")
    damage(bad)
    told = repair(sh, bad, "--out", "out", code=3)["salvage"]
    check_salvaged(sh, sh.path("out"), {one["name"] for one in told["lost"]})


def case_a_damaged_index_loses_only_what_it_places(sh):
    for number, index in enumerate(sorted(p.name for p in sh.checkpoint("ckpt/1.0-mesh").glob("index/*.bin"))):
        shutil.rmtree(sh.path("bad"), ignore_errors=True)
        broken = mesh(sh) / "index" / index
        data = bytearray(broken.read_bytes())
        data[len(data) // 2] ^= 1
        broken.write_bytes(data)
        told = repair(sh, "bad", "--out", f"out{number}", code=3)["salvage"]
        check(any(index in one["file"] for one in told["damage"]), str(told))
        check_salvaged(sh, sh.path(f"out{number}"), {one["name"] for one in told["lost"]})


def case_what_was_salvaged_without_its_objects_is_not_the_whole(sh):
    """The damaged file comes back with its time, from a backup: the checkpoint has its old fingerprint."""
    sh.run("convert", sh.checkpoint("deepspeed/zero2_bf16_dp4"), "u")
    objects = sh.path("u/blobs/objects.json")
    right, times = objects.read_bytes(), objects.stat()
    objects.write_bytes(right.replace(b"lr_scheduler", b"lr_schedulex"))
    os.utime(objects, ns=(times.st_atime_ns, times.st_mtime_ns))
    check(not repair(sh, "u", "--out", "out")["salvage"]["lost"], "the case is about objects alone")
    sh.run("repair", "u", "--out", "out")  # done already
    objects.write_bytes(right)
    os.utime(objects, ns=(times.st_atime_ns, times.st_mtime_ns))
    for words in (("repair", "u", "--out", "out"), ("convert", "u", "out")):
        sh.run(*words, code=2, err="already exists")


def case_without_any_manifest_the_way_to_the_shards_is_told(sh):
    shutil.copytree(sh.checkpoint("ckpt/0.9-small"), sh.path("bad"))
    for manifest in ("manifest.json", "index/manifest.json"):
        sh.path("bad/" + manifest).unlink(missing_ok=True)
    sh.run("repair", "bad", "--out", "out", code=13, err=["both lost", "ckpt convert .*shards/weights OUT"])
    sh.run("convert", "bad/shards/weights", "out", "--to", "safetensors")


def case_a_salvage_of_nothing_is_refused(sh):
    bad = place(sh, 1)
    store(sh, (("llama", (1,)),))
    for file in bad.rglob("*.safetensors"):
        file.unlink()
    sh.run("repair", bad, "--out", "out", code=15, err="no tensor is intact")
    sh.run("repair", sh.checkpoint("torch/dcp_plain"), "--out", "out", code=12, err="stores no hash for every byte")
    sh.run("repair", bad, "--out", "out", "--apply", code=2, err="cannot be used together")
    check(not sh.path("out").exists(), "something was made")


def case_what_cannot_be_repaired_is_refused(sh):
    store(sh)
    sh.run("repair", "nowhere", code=10, err="nowhere")
    sh.run("repair", sh.path("one/manifest.json"), code=2, err="not a directory")
    sh.run("repair", "store", "--apply", "-n", code=2, err="cannot be used together")
    sh.run("repair", sh.checkpoint("torch/dcp_plain"), code=12, err="no redundancy to repair from")



def case_the_store_is_named_in_every_way(sh):
    sh.run("save", sh.checkpoint("ckpt/1.0-mesh"), "--store", "st", "--run", "r", "--step", "1")
    for words, env in ((("st",), {}), (("--store", "st"), {}), ((), {"CKPT_STORE": "st"})):
        sh.run("repair", *words, env=env, out="^1 checkpoint checked")
    sh.run("repair", code=2, err=["missing PATH", "^hint: name a path, or a store with --store"])


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
