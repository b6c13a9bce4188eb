"""--overwrite: every removed file is accounted for, or nothing is removed."""
import fcntl
import os
import shutil

from runner import check, main
from torch_file import Tensor, save

SINGLE = "safetensors/single"
TIED = "safetensors/gpt2_tied"
ZERO2 = "deepspeed/zero2_bf16_dp4"


def tree(path):
    """Every file below a directory with its bytes."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def made(sh, name, *more):
    """A directory of safetensors shards with their index."""
    sh.run("convert", sh.checkpoint(TIED), name, "--to", "safetensors", "--shard-size", "20K", *more)
    return sh.path(name)


def refused(sh, target, *names, source=None, verb="convert", to="safetensors"):
    """Nothing changes, and the other files are named."""
    before = tree(sh.path(target).parent)
    source = source or sh.checkpoint(SINGLE)
    for flags in (["-n"], []):
        sh.run(verb, source, target, "--to", to, "--overwrite", *flags, code=2, id="E200", err=[*names])
    check(tree(sh.path(target).parent) == before, "something changed")
    check([n for n in os.listdir(sh.directory) if ".partial-" in n] == [], "a partial stays")


def case_what_the_checkpoint_is_made_of_is_replaced(sh):
    old = made(sh, "out")
    files = sorted(os.listdir(old))
    check(len(files) > 2 and any(n.endswith(".index.json") for n in files), str(files))
    for flags, form in (([], "ckpt"), ([], "safetensors")):
        sh.run("convert", sh.checkpoint(SINGLE), "out", "--to", form, "--overwrite", *flags, out=["^replace out, ", "^done "])
    check(os.listdir(old) == ["model.safetensors"], str(os.listdir(old)))


def case_files_that_are_complete_each_are_not_one_checkpoint(sh):
    sh.path("run").mkdir()
    for step in (1, 2, 3):
        save({"model": {"w": Tensor([step])}, "step": step}, sh.path(f"run/ck_{step}.pt"))
    refused(sh, "run", "3 checkpoints, not one: ck_3.pt .step 3., ck_2.pt .step 2., ck_1.pt .step 1.")
    sh.path("parts").mkdir()
    shutil.copy(sh.checkpoint(SINGLE) / "model.safetensors", sh.path("parts/a.safetensors"))
    shutil.copy(sh.checkpoint("safetensors/dtypes") / "dtypes.safetensors", sh.path("parts/b.safetensors"))
    refused(sh, "parts", "independent checkpoint files", source=sh.checkpoint(TIED))
    # Each of them is a checkpoint; the others do not need it.
    sh.run("convert", sh.checkpoint(TIED), "parts/b.safetensors", "--overwrite")


def case_files_of_the_same_tensors_are_not_one_checkpoint(sh):
    shutil.copy(sh.checkpoint(SINGLE) / "model.safetensors", sh.path("model.safetensors"))
    sh.run("convert", "model.safetensors", "half.safetensors", "--dtype", "bf16")
    sh.path("half.safetensors").touch()
    sh.run("convert", "model.safetensors", "half.safetensors", "--dtype", "fp16", "--overwrite")
    sh.path("deep").mkdir()
    sh.run("convert", "model.safetensors", "deep/out.safetensors", "--dtype", "bf16")
    sh.run("convert", "model.safetensors", "deep/out.safetensors", "--dtype", "fp16", "--overwrite")


def case_a_part_of_a_larger_checkpoint_is_not_replaced_alone(sh):
    old = made(sh, "out")
    shard = sorted(n for n in os.listdir(old) if n.endswith(".safetensors"))[1]
    refused(sh, f"out/{shard}", "part of the safetensors checkpoint in out")
    os.unlink(old / sorted(n for n in os.listdir(old) if n.endswith(".safetensors"))[0])
    refused(sh, f"out/{shard}", "part of the incomplete checkpoint in out")
    sh.run("convert", sh.checkpoint(SINGLE), "u")
    refused(sh, "u/shards/weights/00000-00000.safetensors", "part of the ckpt checkpoint in u")


def case_a_part_of_one_of_two_checkpoints_is_not_replaced_alone(sh):
    old = made(sh, "out")
    shutil.copytree(sh.checkpoint(ZERO2), old, dirs_exist_ok=True)
    sh.run("inspect", "out", code=12, err="more than one format matches")
    shard = sorted(n for n in os.listdir(old) if n.endswith(".safetensors"))[1]
    refused(sh, f"out/{shard}", "part of the safetensors checkpoint in out")
    states = sorted(p.relative_to(sh.directory) for p in old.rglob("*_states.pt"))
    refused(sh, states[0], "part of the deepspeed checkpoint in out")


def case_a_part_is_not_replaced_alone_from_inside_the_checkpoint(sh):
    sh.run("convert", sh.checkpoint(SINGLE), "u")
    old = made(sh, "out")
    shard = sorted(n for n in os.listdir(old) if n.endswith(".safetensors"))[1]
    os.symlink(old, sh.path("link"))
    refused(sh, f"link/{shard}", "part of the safetensors checkpoint in link")
    sh.directory = old
    refused(sh, shard, "part of the safetensors checkpoint in [.]")
    sh.directory = old.parent / "u/shards/weights"
    refused(sh, "00000-00000.safetensors", "part of the ckpt checkpoint in /.*/u$")
    sh.directory = old.parent / "u/shards"
    refused(sh, "weights/00000-00000.safetensors", "part of the ckpt checkpoint in /.*/u$")


def case_a_file_is_not_replaced_where_what_it_belongs_to_cannot_be_told(sh):
    old = made(sh, "out")
    shards = sorted(n for n in os.listdir(old) if n.endswith(".safetensors"))
    (old / shards[0]).write_bytes(b"damaged")
    refused(sh, f"out/{shards[1]}", "it may be part of the checkpoint in out, which cannot be read: ")
    refused(sh, f"out/{shards[0]}", "it may be part of the checkpoint in out, which cannot be read: ")


def case_an_index_of_nothing_beside_a_file_is_no_second_checkpoint(sh):
    sh.path("one").mkdir()
    save({"w": Tensor([1])}, sh.path("one/pytorch_model.bin"))
    sh.path("one/pytorch_model.bin.index.json").write_text('{"metadata": {}, "weight_map": {}}')
    sh.run("convert", sh.checkpoint(SINGLE), "one", "--to", "safetensors", "--overwrite", out="^replace one, ")
    check(os.listdir(sh.path("one")) == ["model.safetensors"], str(os.listdir(sh.path("one"))))


def case_a_dry_run_lists_what_would_go(sh):
    old = made(sh, "out")
    before = tree(old)
    lines = [f"^remove  out/{name}   [0-9]" for name in before]
    sh.run("convert", sh.checkpoint(SINGLE), "out", "--to", "ckpt", "--overwrite", "-n", out=["^replace out, .* in [0-9]+ files$", *lines])
    document = sh.document("convert", sh.checkpoint(SINGLE), "out", "--to", "ckpt", "--overwrite", "-n")
    replaced = {file["path"]: file["bytes"] for file in document["data"]["target"]["replaced"]}
    check(replaced == {name: len(data) for name, data in before.items()}, str(replaced))
    check(tree(old) == before, "something changed")
    document = sh.document("convert", sh.checkpoint(SINGLE), "new", "--to", "ckpt", "--overwrite", "-n")
    check(document["data"]["target"]["replaced"] == [], "nothing is there")


def case_a_file_is_replaced_and_said(sh):
    sh.path("x.safetensors").write_bytes(b"anything at all")
    sh.run("convert", sh.checkpoint(SINGLE), "x.safetensors", "--overwrite", "-n", out="^remove  x.safetensors   15 B$")
    sh.run("convert", sh.checkpoint(SINGLE), "x.safetensors", "--overwrite", out="^replace x.safetensors, 15 B in 1 file$")


def case_what_else_stands_beside_it_is_named_and_stays(sh):
    out = made(sh, "out")
    for name in ("config.json", "notes.txt", ".git/HEAD", "logs/train.log", "results/run1/x"):
        place = out / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("work")
        refused(sh, "out", rf"{name.split('/')[0]}{'/' if '/' in name else ','}", "not part of the checkpoint")
        shutil.rmtree(out / name.split("/")[0]) if "/" in name else place.unlink()
    for n in range(12):
        (out / f"note{n:02}.txt").write_text("x")
    refused(sh, "out", "note00.txt, .* and 4 more")


def case_a_trainers_directory_keeps_its_checkpoints(sh):
    out = made(sh, "tr")
    for step in (100, 200):
        shutil.copytree(sh.checkpoint(SINGLE), out / f"checkpoint-{step}")
    refused(sh, "tr", "checkpoint-100/, checkpoint-200/")
    with open(out / "checkpoint-200" / os.listdir(out / "checkpoint-200")[0], "rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        refused(sh, "tr", "checkpoint-200/")


def case_the_other_tags_of_a_run_stay(sh):
    shutil.copytree(sh.checkpoint(ZERO2), sh.path("run"))
    tag = (sh.path("run") / "latest").read_text().strip()
    shutil.copytree(sh.path("run") / tag, sh.path("run") / "global_step1")
    refused(sh, "run", "global_step1/")


def case_the_source_in_the_target_is_not_removed(sh):
    out = made(sh, "out")
    shard = next(n for n in sorted(os.listdir(out)) if n.endswith(".safetensors"))
    refused(sh, "out", "is a file of the source", source=f"out/{shard}")
    os.symlink(f"out/{shard}", sh.path("link.safetensors"))
    refused(sh, "out", "is a file of the source", source="link.safetensors")
    (out / "checkpoint-5").mkdir()
    shutil.copy(out / shard, out / "checkpoint-5" / "model.safetensors")
    refused(sh, "out", "checkpoint-5/", source="out/checkpoint-5")


def case_the_target_in_the_source_is_not_removed_either(sh):
    out = made(sh, "out")
    shard = next(n for n in sorted(os.listdir(out)) if n.endswith(".safetensors"))
    before = tree(out)
    sh.run("convert", "out", f"out/{shard}", "--overwrite", code=2)
    sh.run("save", "out", "--store", "store", "--run", "r", "--step", "1")
    checkpoint = "store/r/step-000000001.g1"
    file = next(str(p.relative_to(sh.directory)) for p in sh.path(checkpoint).rglob("*.safetensors"))
    sh.run("convert", checkpoint, file, "--overwrite", code=2, err="is or lies in a checkpoint")
    check(tree(out) == before, "something changed")


def case_a_store_and_what_is_pinned_stay(sh):
    sh.run("save", sh.checkpoint(SINGLE), "--store", "store", "--run", "r", "--step", "1", "--pin")
    refused(sh, "store/r/step-000000001.g1", "it is pinned$", "^hint: .* unpin it: ckpt unpin store/r/step-000000001.g1$", source=sh.checkpoint(TIED), to="ckpt")
    sh.run("unpin", "store/r/step-000000001.g1")
    shutil.copy(next(sh.checkpoint(SINGLE).glob("*.safetensors")), sh.path("store/model.safetensors"))
    refused(sh, "store", r"\.ckpt/", "r/")


def case_a_link_is_not_followed(sh):
    out = made(sh, "out")
    (sh.path("elsewhere")).mkdir()
    (sh.path("elsewhere") / "thesis").write_text("years")
    os.symlink(sh.path("elsewhere"), out / "more")
    refused(sh, "out", "more,")
    (out / "more").unlink()
    shard = next(n for n in sorted(os.listdir(out)) if n.endswith(".safetensors"))
    shutil.move(out / shard, sh.path("elsewhere") / shard)
    os.symlink(sh.path("elsewhere") / shard, out / shard)
    sh.run("convert", sh.checkpoint(SINGLE), "out", "--to", "safetensors", "--overwrite", out="^done ")
    check(sorted(os.listdir(sh.path("elsewhere"))) == sorted([shard, "thesis"]), "followed a link")


def case_load_replaces_its_own_form_only(sh):
    for _ in range(2):
        sh.run("export", sh.checkpoint(SINGLE), "arrays", "--to", "npy", "--overwrite")
        sh.run("export", sh.checkpoint(TIED), "arrays", "--to", "npy", "--overwrite", out="^replace arrays, ")
    (sh.path("arrays") / "notes.txt").write_text("x")
    refused(sh, "arrays", verb="export", to="npy")
    (sh.path("arrays") / "notes.txt").unlink()
    (sh.path("arrays") / "data.npz").write_bytes(b"PK")
    refused(sh, "arrays", "data.npz", verb="export", to="npy")


def case_names_that_a_format_does_not_write_are_not_its_own(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "ds", "--to", "deepspeed", "--zero-stage", "1", "--dp", "2")
    sh.run("convert", sh.checkpoint(ZERO2), "dcp", "--to", "dcp")
    for stray in ("ds/my_states.pt", "ds/global_step3/optimizer_states.pt", "dcp/notes.metadata"):
        sh.path(stray).write_text("a person's")
        refused(sh, stray.split("/")[0], stray.split("/")[-1])
        sh.path(stray).unlink()
    for target in ("ds", "dcp"):
        sh.run("convert", sh.checkpoint(SINGLE), target, "--to", "safetensors", "--overwrite", out=[f"^replace {target}, ", "^done "])


def case_nothing_is_added_to_a_checkpoint(sh):
    single = sh.checkpoint("safetensors/single")
    sh.run("save", single, "--store", "st", "--run", "r", "--step", "1")
    checkpoint = sh.path("st/r/step-000000001.g1")
    sh.path("link").symlink_to(checkpoint / "shards")
    before = sorted(checkpoint.rglob("*"))
    for target in (checkpoint / "x.safetensors", checkpoint / "hf", checkpoint / "shards/weights/new", sh.path("link/x.safetensors")):
        for words in (("convert", single, target, "--to", "safetensors"), ("convert", single, target, "--to", "safetensors", "-n"),
                      ("export", single, target, "--to", "safetensors")):
            sh.run(*words, code=2, err="is or lies in a checkpoint; refusing to add files to it")
    sh.run("export", single, "x.npy", "--only", "a", code=2, err="lies in a checkpoint", launcher=["env", "-C", checkpoint])
    check(sorted(checkpoint.rglob("*")) == before, "something was added")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
