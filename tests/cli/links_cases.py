"""Symbolic links in a store: their targets are neither changed nor removed, and commands report the links."""
import json
import os
import shutil
import sqlite3
import subprocess

from runner import check, main

STEPS = (1, 2, 3, 4)


def save(sh, step, store="store", run="r", source="safetensors/single", **more):
    return sh.run("save", sh.checkpoint(source), "--store", store, "--run", run, "--step", str(step), **more)


def stores(sh):
    """Two stores: ours, and another user's, which must not change."""
    for step in STEPS:
        save(sh, step)
    shutil.copytree(sh.path("store"), sh.path("other"), symlinks=True)
    sh.run("verify", "other/r/step-000000001.g1")
    return sh.path("store/r")


def seen(directory):
    """Every file below, with its bytes and inode."""
    return {str(p.relative_to(directory)): (p.stat().st_ino, p.read_bytes())
            for p in sorted(directory.rglob("*")) if p.is_file() and not p.is_symlink()}


def unchanged(sh, before, name="other"):
    now = seen(sh.path(name))
    check(now == before, f"{name} was changed: {sorted(set(before.items()) ^ set(now.items()), key=str)[:4]!r:.500}")


def policy(sh, text):
    sh.path("store/ckpt.toml").write_text(text)


def prune(sh, *words, **more):
    # The disk under the tests may be nearly full: a policy made of options still waits for its grace.
    if any(w.startswith("--keep") for w in words):
        words = (*words, "--purge-early-below", "0")
    return sh.run("prune", "--store", "store", "--apply", "-y", *words, **more)


def swap(path, target):
    shutil.rmtree(path)
    path.symlink_to(target)


def case_nothing_is_recycled_through_a_link(sh):
    run = stores(sh)
    swap(run / "step-000000002.g2/shards", sh.path("other/r/step-000000001.g1/shards"))
    policy(sh, '[[rule]]\nruns = "*"\nkeep = { last = 1 }\n[trash]\npurge_early_when_free_below = "0%"\nrecycle = 3\n')
    before = seen(sh.path("other"))
    prune(sh, "--max-delete", "100%", code=3, err="shards: .*a symbolic link")
    unchanged(sh, before)
    save(sh, 5)
    unchanged(sh, before)


def case_nothing_is_demoted_through_a_link(sh):
    for step in (1, 2):
        save(sh, step, source="deepspeed/zero2_bf16_dp4")
    shutil.copytree(sh.path("store"), sh.path("other"))
    run = sh.path("store/r")
    shards = run / "step-000000001.g1/shards"
    check((shards / "optim").is_dir(), "no optimizer to drop")
    swap(shards, sh.path("other/r/step-000000001.g1/shards"))
    policy(sh, '[[rule]]\nruns = "*"\nkeep = { last = 9 }\ndrop_optimizer_after = "1s"\n')
    before = seen(sh.path("other"))
    prune(sh, "--max-delete", "100%", code=3)
    unchanged(sh, before)
    manifest = json.loads((run / "step-000000001.g1/manifest.json").read_text())
    check("optim" not in manifest.get("dropped", []), "it was demoted")


def refuses_trash(sh):
    before = seen(sh.path("victim"))
    prune(sh, "--keep-last", "1", "--max-delete", "100%", code=15, err="a symbolic link")
    unchanged(sh, before, "victim")
    check(len(list(sh.path("store/r").glob("step-*"))) == len(STEPS), "something was deleted")


def victim(sh):
    sh.path("victim/a/b").mkdir(parents=True)
    for name in ("x.tmp", "a/b/shadow.tmp", "manifest.json", "manifest.json.tmp"):
        sh.path("victim", ).joinpath(name).write_text("precious")
    return sh.path("victim")


def case_the_trash_is_no_link(sh):
    run = stores(sh)
    sh.path("store/.ckpt/trash").symlink_to(victim(sh))
    refuses_trash(sh)
    check(run.is_dir(), "")


def case_the_store_directory_is_no_link(sh):
    stores(sh)
    target = victim(sh)
    swap(sh.path("store/.ckpt"), target)
    refuses_trash(sh)
    before = seen(target)
    sh.run("list", "--store", "store", err="a symbolic link")
    save(sh, 9, code=15, err="a symbolic link")
    unchanged(sh, before, "victim")


def case_the_trash_of_a_run_is_no_link(sh):
    stores(sh)
    sh.path("store/.ckpt/trash").mkdir()
    sh.path("store/.ckpt/trash/r").symlink_to(victim(sh))
    before = seen(sh.path("victim"))
    prune(sh, "--keep-last", "1", "--max-delete", "100%", code=3, err="a symbolic link")
    unchanged(sh, before, "victim")
    check(len(list(sh.path("store/r").glob("step-*"))) == len(STEPS), "something was deleted")


def case_the_catalog_is_no_link(sh):
    stores(sh)
    catalog = sh.path("store/.ckpt/catalog.sqlite")
    for path in sh.path("store/.ckpt").glob("catalog*"):
        path.unlink()
    catalog.symlink_to(sh.path("made"))
    sh.run("list", "--tsv", "--store", "store", out="step", err="a symbolic link or not a regular file")
    check(not sh.path("made").exists(), "it was made")


def case_the_database_of_another_program_is_left_alone(sh):
    stores(sh)
    catalog = sh.path("store/.ckpt/catalog.sqlite")
    for path in sh.path("store/.ckpt").glob("catalog*"):
        path.unlink()
    for version, table in ((0, "passwords"), (4, "runs")):
        with sqlite3.connect(catalog) as other:
            other.execute(f"CREATE TABLE {table} (name TEXT)")
            other.execute(f"PRAGMA user_version={version}")
        other.close()
        before = catalog.read_bytes()
        sh.run("list", "--tsv", "--store", "store", out="step", err="belongs to another program and was not changed")
        sh.run("pin", "r@4", "--store", "store")
        check(catalog.read_bytes() == before, "it was changed")
        catalog.unlink()


def case_a_catalog_from_before_it_was_marked_is_taken_over(sh):
    stores(sh)
    sh.run("list", "--store", "store")
    catalog = sh.path("store/.ckpt/catalog.sqlite")

    def marked(value=None):
        base = sqlite3.connect(catalog)
        if value is not None:
            base.execute(f"PRAGMA application_id={value}")
            base.commit()
        got = base.execute("PRAGMA application_id").fetchone()[0]
        base.close()
        return got

    check(marked() == int.from_bytes(b"ckpt", "big"), "not marked")
    marked(0)
    sh.run("list", "--tsv", "--store", "store", out="step", not_err="catalog")
    check(marked() == int.from_bytes(b"ckpt", "big"), "not marked again")


def case_repair_writes_no_manifest_through_a_link(sh):
    run = stores(sh)
    target = victim(sh)
    swap(run / "step-000000004.g4/index", target)
    before = seen(target)
    sh.run("repair", "store", "--apply", code=1, err="a symbolic link")
    unchanged(sh, before, "victim")
    (target / "manifest.json").unlink()
    before = seen(target)
    sh.run("repair", "store", "--apply", code=1, err="a symbolic link")
    unchanged(sh, before, "victim")


def case_no_mark_is_written_through_a_link(sh):
    run = stores(sh)
    target = victim(sh)
    marks = run / "step-000000004.g4/marks"
    if marks.exists():
        shutil.rmtree(marks)
    marks.symlink_to(target)
    before = seen(target)
    sh.run("pin", "r@4", "--store", "store", code=15, err="marks: .*a symbolic link")
    sh.run("verify", "--all", "--store", "store", code=3, err="could not be recorded: .*a symbolic link")
    unchanged(sh, before, "victim")


def case_undelete_goes_to_no_linked_run(sh):
    stores(sh)
    prune(sh, "--keep-last", "1", "--max-delete", "100%", "--grace", "7d")
    sh.path("store/r").rename(sh.path("store/away"))
    sh.path("store/r").symlink_to(victim(sh))
    before = seen(sh.path("victim"))
    sh.run("undelete", "r@2", "--store", "store", code=3, err="a symbolic link")
    unchanged(sh, before, "victim")


def case_save_goes_to_no_linked_run(sh):
    stores(sh)
    target = victim(sh)
    partial = target / ("step-000000007.partial-" + "0" * 32)
    partial.mkdir()
    (partial / "file").write_text("precious")
    sh.path("store/r9").symlink_to(target)
    before = seen(target)
    save(sh, 1, run="r9", code=15, err="r9: .*a symbolic link")
    unchanged(sh, before, "victim")


def case_sources_may_be_links(sh):
    """As in the cache of the Hugging Face hub."""
    source = sh.checkpoint("safetensors/single")
    sh.path("blobs").mkdir()
    sh.path("snapshot").mkdir()
    for number, file in enumerate(sorted(p for p in source.iterdir() if p.is_file())):
        shutil.copy(file, sh.path(f"blobs/{number}"))
        sh.path("snapshot", ).joinpath(file.name).symlink_to(f"../blobs/{number}")
    sh.run("convert", "snapshot", "out")
    sh.run("save", "snapshot", "--store", "store", "--run", "r", "--step", "1")
    sh.path("link").symlink_to("snapshot")
    sh.run("verify", "link")
    sh.path("elsewhere").mkdir()
    sh.path("way").symlink_to("elsewhere")
    sh.run("convert", "link", "way/out")  # a target that the user names may be a link
    check(sh.path("elsewhere/out/manifest.json").is_file(), "nothing there")


def modes(path):
    paths = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {oct(p.stat().st_mode & 0o777) for p in paths}


def case_a_private_source_gives_a_private_result(sh):
    source = sh.path("private")
    shutil.copytree(sh.checkpoint("safetensors/single"), source)
    for file in source.iterdir():
        file.chmod(0o644)
    sh.run("convert", source, "public")
    check(modes(sh.path("public")) == {"0o755", "0o644"}, str(modes(sh.path("public"))))
    file = next(p for p in source.iterdir() if p.suffix == ".safetensors")
    file.chmod(0o600)
    sh.run("convert", source, "out")
    sh.run("convert", file, "one.safetensors")
    sh.run("save", source, "--store", "store", "--run", "r", "--step", "1")
    sh.run("export", source, "loaded.safetensors")
    for name in ("out", "one.safetensors", "store/r/step-000000001.g1", "loaded.safetensors"):
        check(modes(sh.path(name)) <= {"0o700", "0o600"}, f"{name}: {modes(sh.path(name))}")


def case_a_deep_directory_in_the_trash_stops_no_prune(sh):
    stores(sh)
    at = sh.path("store/.ckpt/trash")
    at.mkdir()
    here = os.getcwd()
    os.chdir(at)
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    prune(sh, "--keep-last", "1", "--max-delete", "100%")
    check(len(list(sh.path("store/r").glob("step-*"))) == 1, "nothing was deleted")
    sh.run("status", "--store", "store")
    sh.run("undelete", "r@3", "--store", "store")
    subprocess.run(["rm", "-rf", at / "d"], check=True)  # deeper than shutil supports


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
