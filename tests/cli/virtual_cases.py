"""Virtual checkpoints: references to the files of a source instead of copies."""
import json
import os
import shutil

from runner import check, main

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
        sh.run("verify", virtual, "--against", src.name, out=("0 different, 0 only here, 0 only there", "first 64 KiB of"))
        sh.run("convert", virtual, "real-" + src.name)
        sh.run("verify", "real-" + src.name, "--against", src.name, out="0 different, 0 only here, 0 only there",
               not_out="first 64 KiB")
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
        for words in (("convert", "v", "out"), ("verify", "v"), ("ls", "v"), ("load", "v", "out.safetensors")):
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
    for words, says in ((("--to", "safetensors"), "safetensors cannot hold references"), (("--dtype", "bf16"), "--dtype"),
                        (("--shard-size", "1MB"), "--shard-size")):
        sh.run("convert", "src", "v", "--virtual", *words, code=2, err=("--virtual", says))
    check(not list(sh.path(".").glob("v*")), "something was written")


def case_a_source_in_a_store_is_kept(sh):
    src = source(sh)
    sh.run("save", str(src), "--store", "st", "--run", "r", "--step", "5")
    saved = next(sh.path("st/r").glob("step-*"))
    sh.run("convert", str(saved), "v", "--virtual")
    identity = json.loads(sh.path("v/manifest.json").read_text())["id"]
    marks = [json.loads(p.read_text()) for p in saved.glob("marks/reference-*.json")]
    check([mark["name"] for mark in marks] == [identity], str(marks))
    check(marks[0]["text"] == str(sh.path("v").resolve()), str(marks))
    sh.run("verify", "v", "--against", str(saved), out="0 different")
    sh.run("save", str(src), "--store", "st", "--run", "r", "--step", "6")
    sh.run("save", str(src), "--store", "st", "--run", "r", "--step", "7")
    sh.run("prune", "--store", "st", "--keep-last", "1", "--apply", "-y", out="holds bytes of")
    check(saved.exists(), "prune deleted what a virtual checkpoint refers to")
    check(len(list(sh.path("st/r").glob("step-*"))) == 2, "prune deleted nothing")


def case_materialize_makes_an_ordinary_checkpoint(sh):
    src = source(sh, ZERO3)
    sh.run("convert", "src", "v", "--virtual")
    sh.run("materialize", "v", code=2, err="OUT")
    sh.document("materialize", "v", "real")
    sh.run("materialize", "v", "real", out="^already done")
    sh.run("verify", "real", "--against", "src", out="0 different, 0 only here, 0 only there")
    shutil.rmtree(src)
    sh.run("verify", "real", out="^real +ok")
    sh.run("materialize", "real", "again", code=2, err="not a virtual checkpoint")
    sh.run("materialize", "v", "again", code=13, err="missing, but the virtual checkpoint refers to it")
    check(not sh.path("again").exists(), "something was written")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
