"""Looking at files and directories: what is recognised, which of several checkpoints is taken, paths that are near."""
import gzip
import io
import json
import pickle
import shutil
import tarfile
import zipfile

from runner import check, main
from torch_file import Parameter, Tensor
from torch_file import save as torch_save

SINGLE = "safetensors/single"
OURS = "ckpt/1.0-mesh"
TRAINER = "folders/hf_trainer"


def save(sh, run, step, store="st"):
    sh.run("save", sh.checkpoint(OURS), "--store", store, "--run", run, "--step", str(step))


# --- recognised formats ----------------------------------------------------------------------------------------------


def case_inspect_describes_what_it_cannot_read(sh):
    sh.run("inspect", sh.checkpoint("orbax/direct_standard"),
           out=["^orbax", "Orbax.*; reading it is not supported", r"^  state +complete: 12 files", r"^  saved +20\d\d-"], not_out="parameters|converts to")
    sh.run("inspect", sh.checkpoint("broken/megatron_missing_rank"), code=13, err="1 of 4 data files is missing")
    for step in (10, 20):
        shutil.copytree(sh.checkpoint("orbax/direct_standard") / "final", sh.path("jax") / str(step))
    sh.path("jax/30.orbax-checkpoint-tmp-1").mkdir()
    sh.run("inspect", "jax", out="^  state +complete: 12 files", err="jax is a directory of checkpoints: using 20, the newest of its 2 checkpoints")
    data = sh.document("inspect", sh.checkpoint("orbax/direct_standard"))["data"]
    check((data["readable"], data["format"], data["file_count"], data["can_become"]) == (False, "orbax", 12, []), str(data))


def case_inspect_knows_programs_and_other_frameworks(sh):
    text = lambda s: len(s).to_bytes(8, "little") + s
    pairs = (text(b"general.architecture") + b"\x08\0\0\0" + text(b"llama") + text(b"tokens") + b"\x09\0\0\0\x08\0\0\0" + (2).to_bytes(8, "little")
             + text(b"a") + text(b"b") + text(b"general.file_type") + b"\x04\0\0\0\x0f\0\0\0")
    sh.path("m.gguf").write_bytes(b"GGUF\3\0\0\0" + (7).to_bytes(8, "little") + (3).to_bytes(8, "little") + pairs)
    sh.run("inspect", "m.gguf", out=["^  version +3$", "^  tensors +7$", "^  model +llama$", "^  quantised +Q4_K_M$"])
    sh.path("cut.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes([255]) * 30)
    sh.run("inspect", "cut.gguf", out="GGUF")
    sh.path("m.onnx").write_bytes(b"\x08\x07\x12\x07pytorch")
    sh.path("m.npy").write_bytes(b"\x93NUMPY\x01\0" + bytes(120))
    with zipfile.ZipFile(sh.path("script.pt"), "w") as archive:
        for name in ("script/data/0", "script/data.pkl", "script/code/__torch__/m.py", "script/constants.pkl"):
            archive.writestr(name, "x")
    with zipfile.ZipFile(sh.path("exported.pt2"), "w") as archive:
        archive.writestr("m/models/model.json", "{}")
    sh.path("tf").mkdir()
    sh.path("tf/model.ckpt-7.index").write_bytes(bytes(48))
    sh.path("tf/model.ckpt-7.data-00000-of-00001").write_bytes(bytes(8))
    sh.path("saved").mkdir()
    sh.path("saved/saved_model.pb").write_bytes(b"\x08\1")
    for name, words in (("m.gguf", "GGUF"), ("m.onnx", "ONNX"), ("m.npy", "NumPy"), ("script.pt", "TorchScript"),
                        ("exported.pt2", "torch.export"), ("tf", "TensorFlow"), ("tf/model.ckpt-7.index", "TensorFlow"),
                        ("saved", "SavedModel")):
        sh.run("inspect", name, out=[words, "reading it is not supported", "^  files +"])
        sh.run("convert", name, "out", code=12, err=f"{words}.*reading it is not supported")


def case_files_that_are_no_checkpoints_are_named_with_the_next_step(sh):
    sh.path("m.tar.gz").write_bytes(gzip.compress(b"x" * 100))
    with zipfile.ZipFile(sh.path("m.zip"), "w") as archive:
        archive.writestr("readme", "x")
    for name, mode in (("m.tar", "w"), ("old.nemo", "w:gz")):
        with tarfile.open(sh.path(name), mode) as archive:
            archive.addfile(tarfile.TarInfo("model_config.yaml"), io.BytesIO())
    sh.path("page.pt").write_text("<!DOCTYPE html>\n<html></html>")
    sh.path("error.bin").write_text('<?xml version="1.0"?><Error/>')
    sh.path("d.pkl").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    sh.path("w.msgpack").write_bytes(b"\x81\xa1a\1")
    sh.path("settings.json").write_text("{}")
    for name, what, hint in (("m.tar.gz", "a gzip archive, not a checkpoint", "unpack it first: tar -xf m.tar.gz"),
                             ("m.zip", "a zip archive, not a checkpoint", "unzip m.zip"),
                             ("m.tar", "no known checkpoint here; it holds model_config.yaml", "formats"),
                             ("old.nemo", "a compressed NeMo archive", "mkdir old && tar -xf old.nemo -C old"),
                             ("page.pt", "a web page, not a checkpoint: the download failed", "hf download"),
                             ("error.bin", "an XML document", "error page"), ("d.pkl", "a pickle that torch.save did not write", "Python"),
                             ("w.msgpack", "MessagePack", "flax"), ("settings.json", "a JSON file, not a checkpoint", "formats")):
        sh.run("inspect", name, code=12, err=[f"^error: {name}: .*{what}", f"^hint: .*{hint}"])
    sh.path("m.safetensors").write_bytes((sh.checkpoint(SINGLE) / "model.safetensors").read_bytes())
    sh.run("inspect", "d.pkl", code=12, err="^hint: load it in Python")  # not a part of what is beside it
    sh.run("inspect", "settings.json", code=12, err="^hint: the directory . looks like safetensors")
    for name in ("lfs.safetensors", "lfs.pt"):
        sh.path(name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        sh.run("inspect", name, code=13, err=[f"^error: {name}: a Git LFS pointer: the data was not downloaded", "^hint: .*git lfs pull"])
    sh.run("inspect", "hf://gpt2", code=12, err="hf download gpt2")
    sh.run("inspect", "s3://bucket/run", code=12, err="aws s3 cp --recursive s3://bucket/run DIR")


# --- facts and objects -----------------------------------------------------------------------------------------------


def case_a_link_that_leads_nowhere_is_not_its_own_neighbour(sh):
    sh.path("model").symlink_to("nowhere")
    sh.run("verify", "model", code=10, err="no such file or directory", not_err="did you mean")


def case_inspect_shows_model_optimizer_and_adapter(sh):
    facts = [r"^  model +llama · LlamaForCausalLM · 2 layers", r"^  optimizer +lr 0 · betas \(0.9, 0.999\) · weight_decay 0 · 2 groups$",
             r"^  saved +20\d\d-\d\d-\d\d \d\d:\d\d UTC"]
    sh.run("inspect", sh.checkpoint(TRAINER), out=facts)
    sh.run("inspect", sh.checkpoint("folders/hf_trainer"), "-v", out="^  with it .*, trainer_state.json, training_args.bin$")
    sh.run("inspect", sh.checkpoint("deepspeed/bf16opt_dp2"), out="^  optimizer +lr 0.001 and 0.0005 .* 2 groups")
    sh.run("inspect", sh.checkpoint("folders/peft_lora"), out="^  adapter +LORA · rank 2 · for the base model ./hf")
    sh.run("convert", sh.checkpoint(TRAINER), "copy")  # config.json is inside then
    sh.run("inspect", "copy", out=facts[0])
    check("llama" in sh.document("inspect", "copy")["data"]["facts"]["model"], "no model")


def case_inspect_shows_what_was_said_of_a_checkpoint(sh):
    store = ("--store", "s")
    sh.run("save", sh.checkpoint("safetensors/single"), *store, "--run", "a", "--step", "2", "--metric", "loss=2.5", "--tag", "rel")
    sh.run("mark", "a@2", "--metric", "acc=0.5", "--note", "a good one", *store)
    sh.run("pin", "a@2", "--until", "2031-01-02", *store)
    sh.run("inspect", "a@2", *store, not_out="metric\\.", out=[
        r"^  metrics     acc 0\.5 · loss 2\.5$", "^  tags        rel$", "^  pinned      by .* until 2031-01-02T", "^  note        a good one$"])
    sh.run("why", "a@2", *store, out="^  why       the store has no policy; pinned by ")


def case_inspect_fits_the_terminal(sh):
    code, text = sh.terminal("inspect", sh.checkpoint("deepspeed/bf16opt_dp2"), columns=80)
    lines = text.replace("\r", "").split("\n")
    check(code == 0 and any(line.startswith("  optimizer ") for line in lines), text)
    check(all(len(line) <= 80 for line in lines if not line.startswith("next: ")), text)
    check(any("weight_decay" in line for line in lines), text)


def case_inspect_names_quantised_weights(sh):
    shutil.copytree(sh.checkpoint(SINGLE), sh.path("q"))
    config = {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    sh.path("q/config.json").write_text(json.dumps(config))
    sh.run("inspect", "q", out="^  quantised +gptq · 4 bits · groups of 128: tensors hold packed values")
    sh.path("q/config.json").write_text("not json")
    sh.run("inspect", "q", not_out="quantised|^  model")


def case_ls_objects_shows_values(sh):
    out = sh.run("ls", sh.checkpoint(TRAINER), "--objects", out=[r"^optimizer.param_groups.0.betas.0 +0.9$", r"^scheduler.last_epoch +4$",
                                                                 r"^\d+ values"]).out
    check("model.embed" not in out, "tensors")
    rows = sh.run("ls", sh.checkpoint(TRAINER), "--objects", "--tsv", "--only", "*.lr").out.splitlines()
    check(rows[0] == "NAME\tVALUE" and all(row.endswith("lr\t0.0") for row in rows[1:]) and len(rows) == 3, str(rows))
    sh.run("ls", sh.checkpoint(TRAINER), "--objects", "-q", "--only", "scheduler.last*", out=r"^scheduler.last_epoch\n\Z")
    sh.run("ls", sh.checkpoint(TRAINER), "--objects", "--only", "nothing", code=10, err="no object matches --only nothing")
    objects = sh.document("ls", sh.checkpoint(TRAINER))["data"]["objects"]
    check({"name": "scheduler.last_epoch", "value": "4"} in objects, str(objects[:3]))


def case_diff_compares_tied_names_blobs_and_values(sh):
    one, two, other = Tensor([1, 2]), Tensor([1, 2]), Tensor([3, 4])
    for name, value in (("tied", {"emb": one, "head": one}), ("apart", {"emb": one, "head": two}), ("unlike", {"emb": one, "head": other}),
                        ("without", {"emb": one}), ("renamed", {"head": one}), ("lr", {"emb": one, "lr": 0.1}), ("lr2", {"emb": one, "lr": 0.2}),
                        ("values", {"lr": 0.1})):
        torch_save(value, sh.path(name + ".pt"))
    sh.run("diff", "tied.pt", "tied.pt", out=" 1 identical, 0 different", not_err="tied")
    sh.run("diff", "tied.pt", "apart.pt", out=[" 2 identical, 0 different", "^note +tied on one side only, with the same values: head$"])
    sh.run("diff", "apart.pt", "tied.pt", out=[" 2 identical, 0 different", "^note +tied on one side only"])
    sh.run("diff", "tied.pt", "unlike.pt", code=1, out=[" 1 identical, 1 different", "different +head"])
    sh.run("diff", "tied.pt", "without.pt", out=[" 1 identical, 0 different, 0 only here, 0 only there", "tied names that are only here: head$"])
    sh.run("diff", "without.pt", "tied.pt", out="tied names that are only there: head$")
    sh.run("diff", "tied.pt", "renamed.pt", out=[" 1 identical, 0 different, 0 only here", "only here: emb$"])
    sh.run("diff", "lr.pt", "without.pt", out=r"^note +plain values that are only here: lr$")
    sh.run("diff", "without.pt", "lr.pt", out=r"^note +plain values that are only there: lr$")
    sh.run("diff", "lr.pt", "lr2.pt", out=[" 1 identical", r"^note +plain values that differ: lr \(0.1 here, 0.2 there\)$"])
    for name, attribute in (("p", 1), ("q", 2)):
        torch_save({"p": Parameter([1, 2], {"foo": Tensor([7, 8, 9]), "bar": attribute})}, sh.path(name + ".pt"))
    sh.run("diff", "p.pt", "p.pt", out="0 different")
    sh.run("diff", "p.pt", "q.pt", code=1, out="different +data.pkl")


# --- one level up ----------------------------------------------------------------------------------------------------


def case_a_directory_of_checkpoints_leads_to_the_newest(sh):
    for step in (900, 1000, 100):
        shutil.copytree(sh.checkpoint(SINGLE), sh.path(f"hf/checkpoint-{step}"))
    note = "^note: hf is a directory of checkpoints: using checkpoint-1000, the newest of its 3 checkpoints$"
    for words in (("inspect", "hf"), ("ls", "hf"), ("verify", "hf"), ("export", "hf", "a.safetensors"), ("convert", "hf/", "b.safetensors")):
        sh.run(*words, err=note)
    sh.run("diff", "hf/checkpoint-900", "hf", err=note, out=" identical, 0 different")
    check(sh.document("inspect", "hf")["data"]["path"] == "hf/checkpoint-1000", "another path")
    sh.run("ls", "hf", "-q", not_err="note")
    for name in ("a", "b"):  # nothing says which is newer
        shutil.copytree(sh.checkpoint(SINGLE), sh.path(f"models/{name}"))
    sh.run("inspect", "models", code=12, err="2 checkpoints, not one: ")


def case_a_directory_of_checkpoints_tells_what_speaks_against_the_newest(sh):
    for step in (5, 10):
        shutil.copytree(sh.checkpoint(TRAINER), sh.path(f"hf/checkpoint-{step}"))
    sh.path("hf/checkpoint-10/optimizer.pt").unlink()
    sh.path("hf/checkpoint-15").mkdir()
    sh.run("inspect", "hf", err="using checkpoint-10, the newest of its 2 checkpoints; unfinished, or superseded by a rollback: checkpoint-15; "
                                "it lacks optimizer.pt, which checkpoint-5 has$")
    shutil.copytree(sh.checkpoint(SINGLE), sh.path("hf/global_step12"))  # two series of names
    sh.run("inspect", "hf", code=12, err="3 checkpoints, not one: ")


def case_a_run_and_a_store_lead_to_the_newest_or_say_what_they_are(sh):
    save(sh, "a", 1)
    save(sh, "a", 3)
    save(sh, "a", 2)  # saved last
    lists = "'ckpt list --store st --run a' lists its checkpoints$"
    sh.run("inspect", "st", out="step 2", err=f"^note: st is a store of the run a: using a@2, the newest of its 3 .*{lists}")
    sh.run("inspect", "st/a/", out="step 2", err=f"^note: st/a is a run: using a@2, .*{lists}")
    save(sh, "prod/b", 5)
    sh.run("verify", "st", code=12, err=["^error: st: a store of 2 runs: a, prod/b$", "^hint: 'ckpt list --store st' lists.*a@latest --store st"])
    sh.run("convert", "st/prod/b", "out", out="^done ", err="^note: st/prod/b is a run: using prod/b@5, its only checkpoint")
    shutil.rmtree(sh.path("st/a"))
    shutil.rmtree(sh.path("st/prod"))
    sh.run("inspect", "st", code=10, err=["st: a store without checkpoints", "ckpt save SRC --run RUN --store st"])


def case_an_unfinished_save_is_called_so(sh):
    partial = sh.path("run/step-000000005.partial-" + "0" * 32)
    partial.mkdir(parents=True)
    sh.path(f"{partial}.leaves").touch()  # the record of its finished parts
    sh.run("inspect", "run", code=12, err=["no finished checkpoint here, only a save or conversion that did not finish: step-000000005.partial-0*$",
                                           "^hint: run the same command again to resume it, or 'ckpt repair run' to see what can be removed$"])
    sh.run("inspect", partial, code=13, err="a save or conversion that never finished")


def case_a_path_that_does_not_exist_is_answered_with_the_nearest(sh):
    sh.path("runs/exp7").mkdir(parents=True)
    shutil.copy(sh.checkpoint(SINGLE) / "model.safetensors", sh.path("module.safetensors"))
    for words in (("inspect",), ("ls",), ("verify",), ("export", "x.npy"), ("convert", "out")):
        sh.run(words[0], "modul.safetensors", *words[1:], code=10,
               err=["^error: modul.safetensors: no such file or directory$", r"^hint: did you mean module.safetensors\?$"], not_err="explain")
    sh.run("inspect", "rnus/exp7", code=10, err=r"did you mean runs/exp7\?")
    sh.run("inspect", "runs/ex7/", code=10, err=r"did you mean runs/exp7\?")
    sh.run("inspect", "meta-llama/Llama-2-7b", code=10, err="hf download meta-llama/Llama-2-7b")
    sh.run("inspect", "runs/quite-different", code=10, not_err="^hint")
    sh.path("runs/ckpt.toml").write_text("[[policy]]\nkeep.last = 1\n")
    for words in (("list", "--store"), ("prune", "--store"), ("policy", "show", "--store"), ("doctor",), ("repair",), ("pin", "exp7@1", "--store")):
        sh.run(*words, "run", code=10, err=r"^hint: did you mean runs\?$")
    sh.run("policy", "check", "runs/ckpt.tml", code=10, err=r"^hint: did you mean runs/ckpt.toml\?$")


def case_tables_for_scripts_stand_alone(sh):
    single = sh.checkpoint(SINGLE)
    sh.run("inspect", single, "--files", "--tsv", out=r"\AFILE\tBYTES\nmodel.safetensors\t\d+\n\Z")
    sh.run("inspect", single, "-v", out="^model.safetensors +500 B$")
    sh.run("inspect", single, not_out="^model.safetensors")
    sh.run("inspect", sh.checkpoint("torch/dcp_plain"), out="^ +blob u8 +4 items ")  # pickled objects are no tensors
    sh.run("ls", single, "--tree", "--tsv", code=2, err="--tsv cannot be used with --tree or --depth")


def case_paths_below_a_store_are_names_too(sh):
    save(sh, "prod/b", 5)
    for word in ("prod/b@5", "prod/b/step-000000005.g1", "prod/b"):
        sh.run("inspect", word, "--store", "st", out="step 5")
        sh.run("verify", word, env={"CKPT_STORE": "st"}, out=" ok ")
    sh.run("inspect", "prod/c", "--store", "st", code=10, err="prod/c: no such file or directory")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
