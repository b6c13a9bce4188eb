"""Virtual checkpoints: references to the files of a source instead of copies."""
import json
import os
import shutil
import subprocess
import time

from runner import Skipped, check, main
from torch_file import Tensor, save

SINGLE = "safetensors/single"
ZERO3 = "deepspeed/zero3_bf16_dp4"
LLAMA = "safetensors/llama_sharded"


def source(sh, name=SINGLE, to="src"):
    """A copy of a genuine checkpoint with its times."""
    shutil.copytree(sh.checkpoint(name), sh.path(to))
    return sh.path(to)


def weights_of(directory):
    return next(iter(sorted(p for p in directory.rglob("*") if p.suffix in (".safetensors", ".pt"))))


def case_no_tensor_is_copied_and_all_read_back(sh):
    for name in (SINGLE, LLAMA, ZERO3):
        src = source(sh, name, "src-" + name.split("/")[1])
        virtual = "v-" + src.name
        sh.run("convert", src.name, virtual, "--virtual")
        written = sum(p.stat().st_size for p in sh.path(virtual).rglob("weights/*"))
        check(written == 0 and not sh.path(virtual + "/shards").exists(), "tensors were copied")
        manifest = json.loads(sh.path(virtual + "/manifest.json").read_text())
        check(manifest["features"]["required"] == ["virtual"], str(manifest["features"]))
        same = "0 different, 0 only here, 0 only there"
        sh.run("verify", virtual, "--against", src.name, out=(same, "first 64 KiB of"))
        sh.run("convert", virtual, "real-" + src.name)
        sh.run("verify", "real-" + src.name, "--against", src.name, out=same, not_out="first 64 KiB")
        sh.run("convert", src.name, virtual, "--virtual", out="^already done")


def case_inspect_names_what_it_refers_to(sh):
    src = source(sh)
    sh.run("convert", "src", "v", "--virtual")
    sh.run("inspect", "v", out=("refers to +virtual: 1 file", "virtual: refers to 1 file .* in .*src"))
    weights_of(src).unlink()
    sh.run("inspect", "v", code=13, out="INCOMPLETE")


def case_a_changed_source_is_refused_by_name(sh):
    src = source(sh)
    file = weights_of(src)
    sh.run("convert", "src", "v", "--virtual")
    before, bytes_before = file.stat(), file.read_bytes()

    def refused(code, says):
        for words in (("convert", "v", "out"), ("verify", "v"), ("ls", "v"), ("export", "v", "out.safetensors")):
            sh.run(*words, code=code, err=(says, file.name))
        check(not sh.path("out").exists() and not sh.path("out.safetensors").exists(), "something was written")

    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    refused(11, "written or copied since the virtual checkpoint was written")
    file.write_bytes(bytes_before[:-1] + bytes([bytes_before[-1] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused(11, "its first bytes changed since")
    file.write_bytes(bytes_before + b"X")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused(11, "size changed from")
    file.unlink()
    refused(13, "missing, but the virtual checkpoint refers to it")
    os.mkfifo(file)
    refused(11, "replaced by something other than a file")
    file.unlink()
    file.write_bytes(bytes_before)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    sh.run("verify", "v", out="^v +ok")


def case_both_move_together(sh):
    sh.path("tree").mkdir()
    source(sh, to="tree/src")
    sh.run("convert", "tree/src", "tree/v", "--virtual")
    os.rename(sh.path("tree"), sh.path("moved"))
    sh.run("verify", "moved/v", "--against", "moved/src", out="0 different")
    os.rename(sh.path("moved/v"), sh.path("v"))
    sh.run("verify", "v", code=13, err="missing, but the virtual checkpoint refers to it")


def case_what_cannot_be_virtual_is_refused_before_a_byte(sh):
    source(sh)
    for words, says in ((("--to", "safetensors"), "safetensors cannot hold references"),
                        (("--dtype", "bf16"), "--dtype"), (("--shard-size", "1MB"), "--shard-size")):
        sh.run("convert", "src", "v", "--virtual", *words, code=2, err=("--virtual", says))
    check(not list(sh.path(".").glob("v*")), "something was written")


def case_a_name_that_safetensors_reserves_is_refused_virtual_or_not(sh):
    save({"__metadata__": Tensor([1.0]), "w": Tensor([2.0])}, sh.path("odd.pt"))
    for words in (("v",), ("v", "--virtual"), ("v.safetensors",)):
        sh.run("convert", "odd.pt", *words, code=12, err=("a tensor cannot be named __metadata__", "--map FILE"))
    check(not list(sh.path(".").glob("v*")), "something was written")


def store_with(sh, steps=(5, 6, 7)):
    """A store with a run of several checkpoints; the path of the first."""
    src = source(sh)
    for step in steps:
        sh.run("save", str(src), "--store", "st", "--run", "r", "--step", str(step))
    return next(sh.path("st/r").glob(f"step-*{steps[0]}.g*"))


def marks_in(checkpoint):
    return [json.loads(p.read_text()) for p in checkpoint.glob("*marks/reference-*.json")]


def bytes_of(checkpoint):
    return {p: p.read_bytes() for p in checkpoint.rglob("*") if p.is_file() and "marks" not in p.parts}


def prune(sh, *words, code=0, **patterns):
    return sh.run("prune", "--store", "st", "--keep-last", "1", "--apply", "-y", *words, code=code, **patterns)


def case_a_source_in_a_store_is_kept(sh):
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    identity = json.loads(sh.path("v/manifest.json").read_text())["id"]
    marks = marks_in(saved)
    check([mark["name"] for mark in marks] == [str(sh.path("v").resolve())], str(marks))
    check(marks[0]["text"].startswith(identity + " "), str(marks))
    sh.run("verify", "v", "--against", saved, out="0 different")
    prune(sh, out="holds bytes of .*/v")
    check(saved.exists(), "prune deleted what a virtual checkpoint refers to")
    check(len(list(sh.path("st/r").glob("step-*"))) == 2, "prune deleted nothing")


def case_a_mark_goes_with_its_owner(sh):
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    sh.run("convert", saved, "w", "--virtual")
    check(len(marks_in(saved)) == 2, "two virtual checkpoints with one mark")
    shutil.rmtree(sh.path("v"))
    prune(sh, err="no longer protected by .*/v, which no longer exists")
    check([mark["name"] for mark in marks_in(saved)] == [str(sh.path("w").resolve())], "the wrong mark was dropped")
    shutil.rmtree(sh.path("w"))
    prune(sh)
    check(not saved.exists(), "a checkpoint is kept for nobody")


def case_an_owner_that_cannot_be_seen_protects(sh):
    saved = store_with(sh)
    sh.path("disk").mkdir()
    sh.run("convert", saved, "disk/v", "--virtual")
    # Another directory in its place: a disk that is not mounted.
    os.rename(sh.path("disk"), sh.path("away"))
    sh.path("disk").mkdir()
    prune(sh, out="holds bytes of .*/disk/v", not_err="gone")
    check(saved.exists() and marks_in(saved), "deleted without proof")
    # A file where its directory was.
    sh.path("disk").rmdir()
    sh.path("disk").write_text("")
    prune(sh, out="holds bytes of .*/disk/v")
    sh.path("disk").unlink()
    os.rename(sh.path("away"), sh.path("disk"))
    # A manifest that cannot be read.
    manifest = sh.path("disk/v/manifest.json")
    text = manifest.read_bytes()
    manifest.write_bytes(text[:100])
    prune(sh, out="holds bytes of .*/disk/v")
    manifest.write_bytes(text)
    sh.run("verify", "disk/v", "--against", saved, out="0 different")
    # The directory that contained it was removed too.
    shutil.rmtree(sh.path("disk"))
    prune(sh)
    check(not saved.exists(), "a checkpoint is kept for nobody")


def case_parts_of_a_checkpoint_protect_all_of_it(sh):
    """A single file, a directory in another tool's checkpoint, and a link to a file."""
    run = sh.path("st/r")
    run.mkdir(parents=True)
    sh.path("st/.ckpt").mkdir()
    for step in (1, 2, 3, 4):
        shutil.copytree(sh.checkpoint(LLAMA), run / f"checkpoint-{step}/model")
        for file in (run / f"checkpoint-{step}").rglob("*"):
            os.utime(file, (1e9 + step, 1e9 + step))
    file = weights_of(run / "checkpoint-1")
    sh.run("convert", file, "v1", "--virtual")
    sh.run("convert", run / "checkpoint-2/model", "v2", "--virtual")
    sh.path("linked").mkdir()
    os.symlink(weights_of(run / "checkpoint-3"), sh.path("linked/model.safetensors"))
    sh.run("convert", "linked", "v3", "--virtual")
    for step in (1, 2, 3):
        check(len(marks_in(run / f"checkpoint-{step}")) == 1, f"no mark in checkpoint-{step}")
    check(not marks_in(run / "checkpoint-4"), "a mark in what nothing refers to")


def case_materialize_in_place(sh):
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    before = bytes_of(saved)
    sh.run("materialize", "v", "-n", out="dry run")
    document = sh.document("materialize", "v", "-n")
    check(document["data"]["target"]["replaced"], "the plan does not say what is replaced")
    sh.run("materialize", "v", out="^done")
    manifest = json.loads(sh.path("v/manifest.json").read_text())
    check("references" not in manifest and not manifest["features"]["required"], "still virtual")
    sh.run("verify", "v", "--against", saved, out=("0 different, 0 only here, 0 only there", "XXH3"))
    check(before == bytes_of(saved), "a source was touched")
    check(not marks_in(saved), "the mark stayed")
    check(not list(sh.path(".").glob("v.partial*")), "something was left")
    sh.run("materialize", "v", code=2, err="not a virtual checkpoint")
    # By a link, and with the same place as OUT: the checkpoint is replaced, not the link.
    for words in (("link",), ("w", "w"), ("w", "./w/")):
        shutil.rmtree(sh.path("w"), ignore_errors=True)
        sh.run("convert", saved, "w", "--virtual")
        if not sh.path("link").is_symlink():
            os.symlink("w", sh.path("link"))
        sh.run("materialize", *words)
        check(sh.path("link").is_symlink(), "the link was replaced")
        check("references" not in json.loads(sh.path("w/manifest.json").read_text()), "still virtual")


def case_materialize_elsewhere_keeps_it(sh):
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    sh.run("materialize", "v", "out")
    sh.run("verify", "out", "--against", "v", out="0 different")
    check(len(marks_in(saved)) == 1, "the mark of what still refers to it is gone")
    sh.run("materialize", "out", "again", code=2, err="not a virtual checkpoint")


def case_materialize_loses_nothing(sh):
    src = source(sh)
    sh.run("convert", "src", "v", "--virtual")
    file = weights_of(src)
    # A source that has changed.
    stat = file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    sh.run("materialize", "v", code=11, err=(file.name, "written or copied since"))
    check("references" in json.loads(sh.path("v/manifest.json").read_text()), "replaced without its bytes")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    # Files that are not accounted for.
    sh.path("v/notes.txt").write_text("mine")
    sh.run("materialize", "v", code=2, err="notes.txt")
    sh.path("v/notes.txt").unlink()
    # Marks, which a conversion does not carry over.
    sh.path("st/.ckpt").mkdir(parents=True)
    sh.path("st/r").mkdir()
    sh.run("convert", "src", "st/r/step-000000001.g1", "--virtual")
    sh.run("materialize", "st/r/step-000000001.g1", code=2, err="a checkpoint of a run is not replaced")
    sh.run("materialize", "v", out="^done")
    sh.run("verify", "v", "--against", "src", out="0 different")


def case_a_stale_one_can_be_replaced(sh):
    src = source(sh)
    sh.run("convert", "src", "v", "--virtual")
    weights_of(src).touch()
    sh.run("convert", "src", "v", "--virtual", code=2, err="--overwrite")
    sh.run("convert", "src", "v", "--virtual", "--overwrite", out="^done")
    sh.run("verify", "v", "--against", "src", out="0 different")


def case_overwrite_respects_and_moves_references(sh):
    saved = store_with(sh)
    other = next(sh.path("st/r").glob("step-*6.g*"))
    sh.run("convert", saved, "v", "--virtual")
    sh.run("convert", "src", saved, "--overwrite", code=2, err="the virtual checkpoint .*/v refers to its files")
    sh.run("convert", other, "v", "--virtual", "--overwrite")
    check(not marks_in(saved) and len(marks_in(other)) == 1, "the mark did not follow")
    # The same command again: already done, and a lost mark is written.
    shutil.rmtree(other / "marks")
    sh.run("convert", other, "v", "--virtual", out="^already done")
    check(len(marks_in(other)) == 1, "not protected")


def case_it_replaces_no_checkpoint_of_its_run(sh):
    """A virtual checkpoint in a run is kept, and counts for no rule: its source is not deleted because of it."""
    src = source(sh)
    for step in (5, 6):
        sh.run("save", str(src), "--store", "st", "--run", "r", "--step", str(step))
    sh.run("convert", "src", "st/r/step-000000009.g9", "--virtual")
    prune(sh, out="virtual: its tensors are in other checkpoints")
    left = sorted(p.name for p in sh.path("st/r").glob("step-*"))
    check(left == ["step-000000006.g2", "step-000000009.g9"], str(left))
    listed = {item["step"]: item for item in sh.document("list", "--store", "st")["data"]["checkpoints"]}
    check(listed[9]["layout"] == "virtual" and listed[9]["referenced_files"] == 1, str(listed[9]))
    check(listed[9]["referenced_bytes"] == weights_of(src).stat().st_size, str(listed[9]))
    check(listed[6]["referenced_files"] == 0, str(listed[6]))
    # It is never verified: no hash covers its bytes. Missing files may come back, and are not recorded as damage.
    sh.run("verify", "--all", "--store", "st")
    check(not list(sh.path("st/r/step-000000009.g9").glob("marks/verified-*")), "verified without hashes")
    hidden = weights_of(src).rename(sh.path("hidden"))
    sh.run("verify", "--all", "--store", "st", code=1, err="missing, but the virtual checkpoint refers to it")
    check(not list(sh.path("st/r/step-000000009.g9").glob("marks/verified-*")), "marked as damaged")
    sh.run("repair", "st/r/step-000000009.g9", code=1, out="convert its checkpoint again")
    hidden.rename(src / "model.safetensors")
    sh.run("verify", "st/r/step-000000009.g9", out="ok")


def case_what_is_in_the_trash_is_not_purged_meanwhile(sh):
    saved = store_with(sh)
    prune(sh)
    trashed = sh.path("st/.ckpt/trash/r") / saved.name
    sh.run("convert", trashed, "v", "--virtual")
    words = ("--grace", "0s", "--purge-early-below", "100%")
    prune(sh, *words, code=3)
    check(trashed.exists(), "purged what a virtual checkpoint refers to")
    sh.run("verify", "v", out="ok")
    shutil.rmtree(sh.path("v"))
    prune(sh, *words)
    check(not trashed.exists(), "kept for nobody")


def case_a_virtual_conversion_reads_no_tensor(sh):
    saved = store_with(sh)
    report = sh.document("convert", saved, "v", "--virtual")["data"]
    check((report["source"]["read_bytes"], report["verify"]["source_hashes"]) == (0, 0), str(report))
    chunks = [row["chunks"] for row in json.loads(sh.path("v/manifest.json").read_text())["tensors"]]
    check(all(len(each) == 1 and set(each[0]) == {"file", "offset"} for each in chunks), str(chunks))


def case_what_needs_bytes_refuses(sh):
    source(sh)
    sh.run("convert", "src", "v", "--virtual")
    sh.run("save", "v", "--store", "st", "--run", "r", "--step", "1", "--link", code=2, err="it is virtual")
    sh.run("repair", "v", "--out", "new", code=12, err=("its tensors are in other checkpoints", "ckpt materialize"))
    sh.run("save", "v", "--store", "st", "--run", "r", "--step", "1")
    saved = next(sh.path("st/r").glob("step-*"))
    shutil.rmtree(sh.path("src"))
    sh.run("verify", saved, out="ok")


def case_a_chain_refers_to_the_original(sh):
    src = source(sh)
    sh.run("convert", "src", "v", "--virtual")
    sh.run("convert", "v", "w", "--virtual")
    shutil.rmtree(sh.path("v"))
    sh.run("verify", "w", "--against", "src", out="0 different")
    references = json.loads(sh.path("w/manifest.json").read_text())["references"]
    check([each["path"] for each in references] == ["../src"], str(references))
    sh.run("materialize", "w")
    shutil.rmtree(src)
    sh.run("verify", "w", out="ok")


def case_a_copy_of_the_source_is_another_one(sh):
    source(sh)
    shutil.copytree(sh.path("src"), sh.path("copy"))
    sh.run("convert", "src", "v", "--virtual")
    sh.run("convert", "copy", "v", "--virtual", code=2, err="already exists")


def case_paths_that_lead_there_by_links(sh):
    source(sh, to="real/src")
    os.symlink("real", sh.path("way"))
    sh.path("other").mkdir()
    os.symlink("../other", sh.path("real/out"))
    sh.run("convert", "way/src", "way/out/v", "--virtual")
    references = json.loads(sh.path("other/v/manifest.json").read_text())["references"]
    check([each["path"] for each in references] == ["../../real/src"], str(references))
    for path in ("other/v", "way/out/v", sh.path("real/out/v")):
        sh.run("verify", path, "--against", "real/src", out="0 different")


def case_a_moved_one_is_not_protected_and_says_so(sh):
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    sh.run("inspect", "v", not_err="no mark", not_out="no mark")
    os.symlink("v", sh.path("link"))
    sh.run("inspect", "link", not_err="no mark", not_out="no mark")
    sh.path("d").mkdir()
    shutil.move(sh.path("v"), sh.path("d/v"))
    sh.run("convert", saved, "v", "--virtual")
    manifest = json.loads(sh.path("v/manifest.json").read_text())
    check(manifest["references"][0]["path"].startswith("../st"), "the case is about relative paths")
    shutil.rmtree(sh.path("v"))
    os.rename(sh.path("d/v"), sh.path("w"))
    sh.run("inspect", "w", err="no mark of this checkpoint, so 'ckpt prune' may delete it")


def case_what_one_that_was_moved_in_the_store_refers_to_stays(sh):
    """Its mark names a place where it no longer is; in the store it is found wherever it is."""
    saved = store_with(sh)
    for first, then in (("r/best", "r/other"), ("r/best", "r/step-000000009.g9"), ("r/best", "r/checkpoint-3"),
                        ("exports/v", "exports/w"), ("v", "w")):
        sh.path("st/exports").mkdir(exist_ok=True)
        sh.run("convert", saved, "st/" + first, "--virtual")
        prune(sh, out=rf"holds bytes of /[^,]*/{first} \(no rule")  # once, by its mark
        os.rename(sh.path("st/" + first), sh.path("st/" + then))
        prune(sh, err=f"no longer protected by .*/{first}, which no longer exists", out=f"holds bytes of {then}")
        check(saved.exists(), f"prune deleted what {then} refers to")
        if then != "w":
            shutil.rmtree(sh.path("st/" + then))
    # One of its two manifests is enough.
    manifest = sh.path("st/w/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:100])
    prune(sh, out="holds bytes of w")
    check(saved.exists(), "prune deleted what a damaged virtual checkpoint refers to")
    shutil.rmtree(sh.path("st/w"))
    prune(sh)
    check(not saved.exists(), "a checkpoint is kept for nobody")


def case_a_source_that_cannot_be_marked_is_named(sh):
    saved = store_with(sh)
    if os.geteuid() == 0 and subprocess.run(["chattr", "+i", saved], capture_output=True).returncode != 0:
        raise Skipped("needs a user other than root, or chattr")
    if os.geteuid() != 0:
        saved.chmod(0o555)
    try:
        sh.run("convert", saved, "v", "--virtual", err="'ckpt prune' may delete it, because the mark that protects it cannot be written")
        sh.run("verify", "v", "--against", saved, out="0 different")
        warnings = sh.document("convert", saved, "v", "--virtual")["warnings"]
        check(any("protects it cannot be written" in warning["text"] for warning in warnings), str(warnings))
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", saved], check=True)
        else:
            saved.chmod(0o755)


def case_documents_have_references(sh):
    src = source(sh)
    size = weights_of(src).stat().st_size
    for data in (sh.document("convert", "src", "v", "--virtual")["data"]["target"], sh.document("inspect", "v")["data"]):
        check((data["referenced_files"], data["referenced_bytes"]) == (1, size), str(data))
    check(sh.document("inspect", "src")["data"]["referenced_files"] == 0, "an ordinary one refers to files")
    data = sh.document("verify", "v")["data"]
    check(data["referenced_files"] == 1, str(data))


def case_ranks_materialize_together(sh):
    if not sh.mpirun:
        raise Skipped("no MPI")
    saved = store_with(sh)
    sh.run("convert", saved, "v", "--virtual")
    launcher = (sh.mpirun, "--oversubscribe", "-n", "2")
    sh.run("materialize", "v", launcher=launcher, env=sh.mpi_environment)
    sh.run("verify", "v", "--against", saved, out=("0 different", "XXH3"))
    check(not list(sh.path(".").glob("v.partial*")), "something was left")
    sh.run("convert", saved, "w", "--virtual", code=2, launcher=launcher, env=sh.mpi_environment, err="several processes cannot write it")


def case_killed_at_any_time(sh):
    """A killed conversion or materialization leaves the old or the new checkpoint, and can be repeated."""
    saved = store_with(sh)
    for delay in (0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        for words in (("convert", saved, "v", "--virtual"), ("materialize", "v")):
            process = subprocess.Popen([sh.program, *map(str, words)], cwd=sh.directory, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=sh.environment())
            time.sleep(delay)
            process.kill()
            process.wait()
            if sh.path("v").exists():
                sh.run("verify", "v", "--against", saved, out="0 different")
            virtual = sh.path("v").exists() and "references" in json.loads(sh.path("v/manifest.json").read_text())
            if virtual:
                check(len(marks_in(saved)) == 1, f"not protected after {delay} s")
            # Killed after the exchange: the old one may be left, and goes.
            left = any(p.is_dir() for p in sh.path(".").glob("v.partial*"))
            sh.run(*words, code=0 if words[0] == "convert" or virtual or left else 2)
            check(not list(sh.path(".").glob("v.partial*")), f"something was left after {delay} s")
            sh.run("verify", "v", "--against", saved, out="0 different")
        shutil.rmtree(sh.path("v"))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
