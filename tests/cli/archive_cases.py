"""Checkpoints in tar archives, as NeMo packs its models, are read in place."""
import shutil
import tarfile

from runner import main

TORCH_DIST = "megatron/core_torch_dist_w4"
FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def pack(sh, target, source, form="pax", arcname="."):
    """As NeMo does: tarfile.open(target, "w:").add(folder, arcname=".")."""
    with tarfile.open(sh.path(target), "w:", format=FORMS[form]) as archive:
        archive.add(sh.path(source), arcname=arcname)
    return target


def nemo(sh):
    """A folder of NeMo, with a name that is too long for a header of ustar."""
    shutil.copytree(sh.checkpoint(TORCH_DIST), sh.path("folder/model_weights"))
    sh.path("folder/model_config.yaml").write_text("hidden_size: 8\n")
    sh.path("folder/" + "tokenizer" * 20).write_text("vocabulary\n")


def case_a_nemo_file_is_read_in_place(sh):
    nemo(sh)
    for form in ("gnu", "pax"):
        pack(sh, "model.nemo", "folder", form)
        sh.run("inspect", "model.nemo", out=["^megatron torch_dist", "^  state +complete: 1 file"])
        sh.run("verify", "model.nemo", out="^  checked +13 checksums OK")
        sh.run("convert", "model.nemo", f"{form}.ckpt", out="13 source checksums OK")
        sh.run("diff", f"{form}.ckpt", "folder/model_weights", out="7 identical, 0 different, 0 only here, 0 only there")
        sh.run("convert", "model.nemo/model_weights", f"{form}.pt")
        sh.run("diff", f"{form}.pt", "model.nemo", out="7 identical, 0 different, 0 only here, 0 only there")


def case_a_folder_in_an_archive_brings_its_extra_files(sh):
    source = sh.checkpoint("folders/hf_trainer")
    pack(sh, "m.tar", source, "ustar", arcname="checkpoint-2")
    sh.run("convert", "m.tar", "out", "--to", "safetensors", "--only", "weights")
    sh.run("convert", source, "expected", "--to", "safetensors", "--only", "weights")
    names = sorted(path.name for path in sh.path("expected").iterdir())
    assert sorted(path.name for path in sh.path("out").iterdir()) == names, names
    assert sh.path("out/config.json").read_bytes() == sh.path("expected/config.json").read_bytes()
    sh.run("diff", "out", "expected", out="0 different, 0 only here, 0 only there")


def case_a_path_into_an_archive_may_be_a_run(sh):
    pack(sh, "a.tar", sh.checkpoint("megatron/torch_dist_tp2_pp2_dp2"), arcname="run")
    for source in ("a.tar/run", "a.tar", "a.tar/run/iter_0000002/"):
        sh.run("convert", source, "out", "--overwrite")
        sh.run("diff", "out", sh.checkpoint("megatron/torch_dist_tp2_pp2_dp2"), out=" 0 different, 0 only here, 0 only there")


def case_a_path_that_is_not_in_an_archive_has_a_neighbour(sh):
    pack(sh, "a.tar", sh.checkpoint("megatron/torch_dist_tp2_pp2_dp2"), arcname="run")
    sh.run("inspect", "a.tar/run/iter_0000003", code=10, err=["^error: a.tar/run/iter_0000003: not in the archive", "^hint: did you mean a.tar/run/iter_0000002[?]$"])
    sh.run("inspect", "a.tar/other/path", code=10, err="not in the archive")


def case_other_data_in_an_archive_is_named(sh):
    with tarfile.open(sh.path("two.tar"), "w:") as archive:
        archive.add(sh.checkpoint("safetensors/llama_sharded"), arcname="L")
        archive.add(sh.checkpoint("torch/dcp_plain"), arcname="a/opt")
    sh.run("convert", "two.tar", "out", "--to", "safetensors", code=3, err=r"skipped in the archive: a/opt/.*; only L is read")
    sh.run("convert", "two.tar", "out", "--to", "safetensors", "--allow-skipped", "--overwrite")


def case_a_cache_of_the_hub_has_links(sh):
    for path in sh.checkpoint("safetensors/llama_sharded").iterdir():
        sh.path("m/blobs").mkdir(parents=True, exist_ok=True)
        sh.path("m/snapshots/abc").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, sh.path("m/blobs") / f"hash{path.name}")
        (sh.path("m/snapshots/abc") / path.name).symlink_to(f"../../blobs/hash{path.name}")
    pack(sh, "m.tar", "m")
    sh.run("convert", "m.tar/snapshots/abc", "out", "--to", "safetensors")
    sh.run("diff", "out", sh.checkpoint("safetensors/llama_sharded"), out=" 0 different, 0 only here, 0 only there")


def case_a_virtual_checkpoint_refers_to_the_archive(sh):
    nemo(sh)
    pack(sh, "model.nemo", "folder")
    sh.run("convert", "model.nemo", "v.ckpt", "--virtual", out="^refers +to 1 file of the source")
    sh.run("diff", "v.ckpt", "folder/model_weights", out="7 identical, 0 different, 0 only here, 0 only there")
    with sh.path("model.nemo").open("r+b") as archive:
        archive.seek(700)
        archive.write(b"x")
    sh.run("convert", "v.ckpt", "w.ckpt", code=11, err="model.nemo")


def case_an_archive_that_is_cut_short_or_damaged_is_refused(sh):
    nemo(sh)
    pack(sh, "model.nemo", "folder")
    whole = sh.path("model.nemo").read_bytes()
    for size in (512, 1024, 20000, len(whole.rstrip(b"\0"))):
        sh.path("cut.nemo").write_bytes(whole[:size])
        sh.run("convert", "cut.nemo", "out.ckpt", code=13, err=["^error: cut.nemo: the tar archive is cut short", "^hint: copy or download it again"])
    header = whole.index(b"./model_weights/common.pt")
    sh.path("bad.nemo").write_bytes(whole[:header] + b"!" + whole[header + 1:])
    sh.run("inspect", "bad.nemo", code=15, err=f"the tar archive, at {header}: bad header checksum")
    flipped = bytearray(whole)
    data = whole.index(b"./model_weights/__0_0.distcp") + 512
    for at in range(data + 128, data + 4096, 64):
        flipped[at] ^= 1
    sh.path("flipped.nemo").write_bytes(flipped)
    sh.run("convert", "flipped.nemo", "out.ckpt", code=(15, 17), err="flipped.nemo")
    assert not sh.path("out.ckpt").exists()


def case_archives_that_are_not_read_in_place_say_so(sh):
    shutil.copytree(sh.checkpoint("ckpt/1.0-mesh"), sh.path("ours"))
    pack(sh, "ours.tar", "ours")
    sh.run("convert", "ours.tar", "out.ckpt", code=12, err=["in a tar archive: it is not read in place", "^hint: unpack it first: tar -xf ours.tar"])
    pack(sh, "notes.tar", __file__, arcname="notes.py")
    sh.run("inspect", "notes.tar", code=12, err="no known checkpoint here; it holds notes.py")
    sh.path("tp").mkdir()
    for rank in (0, 1):
        sh.path(f"tp/tp_rank_0{rank}_pp_rank_000").mkdir()
        shutil.copy(sh.checkpoint("torch/pt_state_dict") / "model.pt", sh.path(f"tp/tp_rank_0{rank}_pp_rank_000/model_weights.ckpt"))
    pack(sh, "tp.nemo", "tp")
    for source in ("tp.nemo", "tp"):
        sh.run("inspect", source, code=12, err="a NeMo 1 model split across 2 ranks")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
