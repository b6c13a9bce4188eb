"""Folders as users have them: extra files of a model, and several checkpoints in one folder."""
import json
import os
import shutil

from runner import Skipped, check, main
from torch_file import Tensor, save

SINGLE = "safetensors/single"
ZERO2 = "deepspeed/zero2_bf16_dp4"
CONFIG = b'{\n  "model_type": "llama",\n  "torch_dtype": "float32"\n}\n'
EXTRAS = {"config.json": CONFIG, "tokenizer.json": b'{"version":"1.0"}', "merges.txt": b"#version: 0.2\n",
          "chat_template.jinja": b"{{ messages }}", "modeling_x.py": b"raise SystemExit('never run')\n", "LICENSE": b"MIT\n",
          "README.md": b"# model\n", "vocab.txt": b"", "additional_chat_templates/tools.jinja": b"{{ tools }}"}


def folder(sh, name="hf", extras=EXTRAS):
    """A folder of a model: weights and extra files."""
    shutil.copytree(sh.checkpoint(SINGLE), sh.path(name))
    for path, text in extras.items():
        sh.path(name).joinpath(path).parent.mkdir(exist_ok=True)
        sh.path(name).joinpath(path).write_bytes(text)
    return sh.path(name)


def extras_of(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*")
            if p.is_file() and not p.name.endswith(".safetensors")}


def case_a_trainers_folder_of_torch_files_is_done_once(sh):
    for name in ("folders/hf_trainer", "folders/accelerate"):
        words = ("convert", sh.checkpoint(name), name.replace("/", "-"), "--to", "torch", "--allow-skipped")
        sh.run(*words, out="^done ")
        sh.run(*words, out="^already done")


def case_a_model_in_the_cache_of_the_hub_is_named_by_its_revision(sh):
    repository = sh.path("models--org--name")
    shutil.copytree(sh.checkpoint("folders/hf_tokenizer"), repository / "snapshots" / "0abc")
    shutil.copytree(repository / "snapshots" / "0abc", repository / "snapshots" / "1def")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1def")
    sh.run("inspect", repository.name, code=12, err=r"give the path of a revision, models--org--name/snapshots/1def")
    sh.run("inspect", repository.name + "/snapshots/1def")


def case_an_empty_file_of_state_is_damage(sh):
    for name, files in (("folders/hf_trainer", ("optimizer.pt", "scheduler.pt", "rng_state.pth")), ("folders/accelerate", ("optimizer.bin", "scheduler.bin"))):
        for file in files:
            folder = shutil.copytree(sh.checkpoint(name), sh.path("folder"))
            (folder / file).write_bytes(b"")
            sh.run("verify", "folder", code=1, out=["DAMAGED", f"without content: {file}: the save never finished"])
            sh.run("convert", "folder", "out", code=3, err=file)
            shutil.rmtree(folder)
            shutil.rmtree(sh.path("out"))


def case_a_folder_of_a_model_goes_as_it_is(sh):
    folder(sh)
    sh.run("convert", "hf", "hf2", "--to", "safetensors", out="^note +with the model: LICENSE, README.md, .*config.json")
    check(extras_of(sh.path("hf2")) == EXTRAS, str(sorted(extras_of(sh.path("hf2")))))
    sh.run("convert", "hf", "hf2", "--to", "safetensors", out="^already done")
    sh.path("hf/LICENSE").write_bytes(b"GPL\n")
    sh.run("convert", "hf", "hf2", "--to", "safetensors", code=2, err="already exists")


def case_the_universal_format_keeps_them(sh):
    folder(sh)
    sh.run("convert", "hf", "u")
    check(not sh.path("u/config.json").exists(), "they stand inside")
    sh.run("verify", "u", out="^u +ok")
    sh.run("verify", "u", "--against", "hf", out="4 identical, 0 different, 0 only here")
    document = sh.document("inspect", "u")
    check(sorted(document["data"]["extras"]) == sorted(EXTRAS), str(document["data"]["extras"]))
    sh.run("convert", "u", "u2")
    sh.run("convert", "u2", "hf2", "--to", "safetensors", "--verify", "full")
    check(extras_of(sh.path("hf2")) == EXTRAS, str(sorted(extras_of(sh.path("hf2")))))
    sh.run("save", "hf", "--store", "st", "--run", "r", "--step", "5")
    sh.run("convert", "r@5", "hf3", "--to", "safetensors", "--store", "st")
    check(extras_of(sh.path("hf3")) == EXTRAS, str(sorted(extras_of(sh.path("hf3")))))
    manifest = json.loads(sh.path("u/manifest.json").read_text())
    check(manifest["features"]["optional"] == ["extras"], str(manifest["features"]))


def case_a_changed_byte_of_them_is_found(sh):
    folder(sh)
    sh.run("convert", "hf", "u")
    blobs = sh.path("u/blobs/00000-00000.safetensors")
    damaged = blobs.read_bytes().replace(b"{{ tools }}", b"{{ fools }}")
    blobs.write_bytes(damaged)
    sh.run("verify", "u", code=1, out="blobs/00000-00000.safetensors")
    sh.run("convert", "u", "out", "--to", "safetensors", code=15)
    check(not sh.path("out").exists(), "it was written")


def case_the_dtype_follows_a_cast(sh):
    folder(sh)
    wanted = CONFIG.replace(b"float32", b"bfloat16")
    sh.run("convert", "hf", "half", "--to", "safetensors", "--dtype", "bf16", out="dtype changed in config.json")
    check(sh.path("half/config.json").read_bytes() == wanted, "config.json")
    sh.run("convert", "hf", "u", "--dtype", "bf16")
    sh.run("verify", "u", out="^u +ok")
    sh.run("convert", "u", "back", "--to", "safetensors")
    check(sh.path("back/config.json").read_bytes() == wanted, "config.json")
    sh.run("convert", "u", "full", "--to", "safetensors", "--dtype", "fp32")
    check(sh.path("full/config.json").read_bytes() == CONFIG, "config.json")
    sh.path("hf/config.json").write_bytes(b"no JSON")
    sh.run("convert", "hf", "other", "--to", "safetensors", "--dtype", "bf16")
    check(sh.path("other/config.json").read_bytes() == b"no JSON", "config.json")


def case_they_are_left_out_where_asked(sh):
    folder(sh)
    sh.run("convert", "hf", "out", "--to", "safetensors", "--no-extras", out="not copied: .*config.json")
    check(os.listdir(sh.path("out")) == ["model.safetensors"], str(os.listdir(sh.path("out"))))
    sh.run("convert", "hf", "u")
    sh.run("convert", "u", "out2", "--to", "safetensors", "--no-extras", out="not copied: .*config.json")
    check(os.listdir(sh.path("out2")) == ["model.safetensors"], str(os.listdir(sh.path("out2"))))
    sh.run("convert", "u", "u2", "--no-extras")
    sh.run("convert", "u2", "out3", "--to", "safetensors")
    check(os.listdir(sh.path("out3")) == ["model.safetensors"], str(os.listdir(sh.path("out3"))))
    sh.run("convert", "hf", "one.safetensors", out="not copied: .*config.json")
    sh.run("convert", "hf", "optim", "--only", "weights", "--assets", "hf", "--no-extras", code=2, err="contradict")


def case_assets_come_from_another_folder(sh):
    folder(sh)
    for source in (sh.checkpoint(ZERO2), sh.checkpoint(SINGLE)):
        name = "of_" + source.parent.name
        sh.run("convert", source, name, "--to", "safetensors", "--only", "weights", "--assets", "hf")
        check(extras_of(sh.path(name)) == EXTRAS, str(sorted(extras_of(sh.path(name)))))
    # Files of the source are not replaced.
    own = folder(sh, "own", {"config.json": b'{"model_type":"gpt2"}'})
    sh.run("convert", "own", "both", "--to", "safetensors", "--assets", "hf")
    check(extras_of(sh.path("both")) == {**EXTRAS, "config.json": (own / "config.json").read_bytes()}, "")
    sh.path("empty").mkdir()
    sh.run("convert", "own", "x", "--to", "safetensors", "--assets", "empty", code=2, err="no config.json, tokenizer")
    sh.run("convert", "own", "x", "--to", "safetensors", "--assets", "nowhere", code=10, err="nowhere")
    sh.run("convert", "own", "x.npy.h5", "--to", "hdf5", "--assets", "hf", code=2, err="cannot hold these files")


def case_an_adapter_keeps_its_name(sh):
    folder(sh, "peft", {"adapter_config.json": b'{"peft_type":"LORA"}', "README.md": b"x"})
    sh.run("convert", "peft", "out", "--to", "safetensors")
    check(sorted(os.listdir(sh.path("out"))) == ["README.md", "adapter_config.json", "adapter_model.safetensors"],
          str(os.listdir(sh.path("out"))))
    sh.run("convert", "out", "u")
    sh.run("convert", "u", "back", "--to", "safetensors")
    check(sh.path("back/adapter_model.safetensors").exists(), str(os.listdir(sh.path("back"))))
    sh.run("convert", "u", "torch", "--to", "torch")
    check(sh.path("torch/adapter_model.bin").exists(), str(os.listdir(sh.path("torch"))))


def case_a_folder_of_accelerate_stays_one_where_its_random_states_are_copied(sh):
    shutil.copytree(sh.checkpoint("folders/accelerate_fsdp"), sh.path("state"))
    sh.run("convert", "state", "out", "--to", "torch")
    check(sorted(os.listdir(sh.path("out"))) == ["optimizer.bin", "pytorch_model.bin", "random_states_0.pkl", "scheduler.bin"],
          str(os.listdir(sh.path("out"))))


def case_weights_of_a_lightning_checkpoint_are_those_of_its_module(sh):
    shutil.copytree(sh.checkpoint("torch/lightning"), sh.path("run"))
    sh.run("convert", "run/epoch=0-step=3.ckpt", "w.safetensors", "--only", "weights")
    names = [row["name"] for row in sh.document("ls", "w.safetensors")["data"]["tensors"]]
    check(len(names) == 8 and all(name.startswith(("encoder.", "head.")) for name in names), str(names))
    sh.run("convert", "run/epoch=0-step=3.ckpt", "again.ckpt", "--to", "torch")
    check(sh.path("again.ckpt").is_file(), "a file, as Lightning loads it")
    for target, words in (("dcp", ()), ("deepspeed", ("--zero-stage", "1", "--dp", "2"))):
        sh.run("convert", "again.ckpt", target, "--to", target, *words)


def case_a_trainers_folder_with_deepspeed_is_one_checkpoint(sh):
    trainer = sh.checkpoint("folders/hf_trainer")
    shutil.copytree(sh.checkpoint(ZERO2), sh.path("checkpoint-3"))
    for name in ("config.json", "trainer_state.json", "training_args.bin", "scheduler.pt", "model.safetensors"):
        shutil.copy(trainer / name, sh.path("checkpoint-3"))
    shutil.copy(trainer / "rng_state.pth", sh.path("checkpoint-3/rng_state_1.pth"))
    sh.run("inspect", "checkpoint-3", out="^note +model.safetensors: the trainer's copy of the weights, not read")
    sh.run("convert", "checkpoint-3", "u", out="^source +deepspeed zero-2 and 2 of the trainer")
    for source, out in (("checkpoint-3", "direct"), ("u", "stored")):
        sh.run("convert", source, out, "--to", "deepspeed", "--zero-stage", "1", "--dp", "2")
        made = sh.path(out)
        for name in ("config.json", "trainer_state.json", "training_args.bin"):
            check((made / name).read_bytes() == (trainer / name).read_bytes(), f"{out}/{name}")
        check({"scheduler.pt", "rng_state_1.pth", "latest", "global_step3"} <= set(os.listdir(made)), str(os.listdir(made)))
    for name, genuine in (("scheduler.pt", "scheduler.pt"), ("rng_state_1.pth", "rng_state.pth")):
        check(sh.path(f"direct/{name}").read_bytes() == (trainer / genuine).read_bytes(), name)
    sh.run("verify", "direct", "--against", "checkpoint-3", out="0 different, 0 only here, 0 only there")


def case_a_trainers_folder_of_ours_is_replaced_with_what_was_written_beside_it(sh):
    trainer = sh.checkpoint("folders/hf_trainer")
    shutil.copytree(sh.checkpoint(ZERO2), sh.path("checkpoint-3"))
    for name in ("config.json", "trainer_state.json", "training_args.bin", "scheduler.pt"):
        shutil.copy(trainer / name, sh.path("checkpoint-3"))
    for out, words, again in (("ds", ("--to", "deepspeed", "--dp", "2", "--zero-stage"), ("1", "2")),
                              ("pt", ("--to", "torch", "--weights"), ("param", "master"))):
        sh.run("convert", "checkpoint-3", out, *words, again[0])
        before = sorted(os.listdir(sh.path(out)))
        check({"config.json", "trainer_state.json"} <= set(before), str(before))
        sh.run("convert", "checkpoint-3", out, *words, again[1], "--overwrite")
        check(sorted(os.listdir(sh.path(out))) == before, str(os.listdir(sh.path(out))))
        sh.run("inspect", out, not_err="skipped")
        # What is not what we wrote is not ours.
        for name, text in (("config.json", "{}"), ("notes.txt", ""), ("ckpt.beside", '{"notes.txt":"0000000000000000"}')):
            shutil.copytree(sh.path(out), sh.path("kept"))
            (sh.path(out) / name).write_text(text)
            sh.run("convert", "checkpoint-3", out, *words, again[0], "--overwrite", code=2, err=f"it also holds .*{name}")
            shutil.rmtree(sh.path(out))
            sh.path("kept").rename(sh.path(out))


def case_the_order_of_the_parameters_makes_a_trainers_folder_resumable(sh):
    trainer = sh.checkpoint("folders/hf_trainer")
    layer = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
             "input_layernorm", "post_attention_layernorm"]
    names = [f"model.layers.{n}.{part}.weight" for n in (0, 1) for part in layer]
    names = ["model.embed_tokens.weight", *names, "model.norm.weight", "lm_head.weight"]
    sh.path("order.json").write_text(json.dumps({"ckpt-map": 1, "parameters": names}))
    sh.path("short.json").write_text(json.dumps({"ckpt-map": 1, "parameters": names[:-1]}))
    sh.path("wrong.json").write_text(json.dumps({"ckpt-map": 1, "parameters": [*names, "model.norm.wieght"]}))
    stage2 = ("--to", "deepspeed", "--zero-stage", "2", "--dp", "2")
    for target in (stage2, ("--to", "deepspeed-universal"), ("--to", "dcp")):
        sh.run("convert", trainer, "out", *target, code=12, err="in the order of the model, which the source does not record"
               "(.|\n)*hint: --map FILE +lists them: .\"ckpt-map\": 1, \"parameters\": ")
        sh.run("convert", trainer, "out", *target, "--map", "short.json", code=12, err="the listed ones do not match its groups and shapes, or match them in several ways")
        sh.run("convert", trainer, "out", *target, "--map", "wrong.json", code=2, err="model.norm.wieght(.|\n)*did you mean model.norm.weight")
        check(not sh.path("out").exists(), "out")
    sh.run("convert", trainer, "ds", *stage2, "--map", "order.json")
    lost = "^warning: not written: 1 Python object, which dcp cannot hold: rng_state.numpy"
    sh.run("convert", "ds", "dcp", "--to", "dcp", code=3, err=lost, not_out="rng_state.cpu")
    sh.run("convert", trainer, "direct", "--to", "dcp", "--map", "order.json", "-q", code=3, err=lost)
    check("rng_state.cpu" in sh.run("ls", "-q", "direct").out.splitlines(), "torch's random state is lost")
    sh.run("verify", "direct", "--against", "dcp", out="0 different, 0 only here, 0 only there")
    # A new optimizer is laid out in the same order: DeepSpeed takes its masters by position.
    sh.run("convert", trainer, "fresh", *stage2, "--fresh-optimizer", code=12, err="DeepSpeed loads parameters in the order of the model")
    sh.run("convert", trainer, "fresh", *stage2, "--fresh-optimizer", "--map", "order.json")
    sh.run("convert", trainer, "whole", "--to", "deepspeed", "--zero-stage", "0", "--dp", "1", "--fresh-optimizer")
    sh.run("verify", "fresh", "--against", "ds", code=1, out="0 different, 0 only here, 42 only there")


def case_a_quantised_model_keeps_its_integers_and_what_tells_of_them(sh):
    config = b'{"model_type":"llama","torch_dtype":"float16","quantization_config":{"quant_method":"gptq","bits":4,"dtype":"float16"}}'
    sh.path("gptq").mkdir()
    sh.path("gptq/config.json").write_bytes(config)
    header = json.dumps({"w.qweight": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]},
                         "w.scales": {"dtype": "F16", "shape": [2], "data_offsets": [8, 12]}}).encode()
    packed = bytes(range(1, 9))
    sh.path("gptq/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + packed + bytes(4))
    for words, same in (([], True), (["--dtype", "bf16"], False)):
        target = "bf16" if words else "copy"
        told = r"^warning: .*quantised \(gptq · 4 bits\): --dtype casts only"
        sh.run("convert", "gptq", target, "--to", "safetensors", *words, out="with the model: config.json", err=() if same else told,
               not_err=told if same else ())
        data = sh.path(target).joinpath("model.safetensors").read_bytes()
        check(packed in data and b'"I32"' in data, "the packed integers")
        written = json.loads(sh.path(target).joinpath("config.json").read_text())
        check(written["quantization_config"] == json.loads(config)["quantization_config"], str(written))
        check((written == json.loads(config)) == same, str(written))


def case_overwrite_takes_them_into_account(sh):
    folder(sh)
    sh.run("convert", "hf", "out", "--to", "safetensors")
    sh.run("convert", "hf", "out", "--to", "safetensors", "--dtype", "bf16", "--overwrite", out="^replace out, .* in 10 files")
    sh.run("convert", sh.checkpoint(SINGLE), "out", "--to", "safetensors", "--overwrite")
    check(os.listdir(sh.path("out")) == ["model.safetensors"], str(os.listdir(sh.path("out"))))
    # Files that another program added or changed stay.
    sh.run("convert", "hf", "two", "--to", "safetensors")
    sh.path("two/config.json").write_bytes(CONFIG + b"\n")
    sh.path("two/notes.txt").write_bytes(b"mine")
    before = extras_of(sh.path("two"))
    sh.run("convert", sh.checkpoint(SINGLE), "two", "--to", "safetensors", "--overwrite", code=2,
           err=["config.json", "notes.txt"])
    check(extras_of(sh.path("two")) == before, "something changed")
    # In a folder that no conversion wrote, no file counts as ours.
    folder(sh, "theirs")
    sh.run("convert", sh.checkpoint(SINGLE), "theirs", "--to", "safetensors", "--overwrite", code=2, err="config.json")


def refused(sh, name, reason):
    for words in (["--to", "safetensors"], ["--to", "ckpt"]):
        sh.run("convert", name, "out", *words, code=15, err=[reason, "--no-extras"])
    check(not sh.path("out").exists(), "it was written")
    sh.run("convert", name, "without", "--to", "safetensors", "--no-extras")
    check(os.listdir(sh.path("without")) == ["model.safetensors"], str(os.listdir(sh.path("without"))))
    shutil.rmtree(sh.path("without"))
    sh.run("inspect", name)


def case_hostile_extras_are_refused(sh):
    hf = folder(sh, "links", {"config.json": CONFIG})
    os.symlink("/etc/passwd", hf / "tokenizer.json")
    refused(sh, "links", "links/tokenizer.json: a link that leads out of its folder")
    hf = folder(sh, "gone", {"config.json": CONFIG})
    os.symlink("nowhere", hf / "tokenizer.json")
    refused(sh, "gone", "a link to a file that is missing")
    hf = folder(sh, "pipe", {"config.json": CONFIG})
    os.mkfifo(hf / "generation_config.json")
    refused(sh, "pipe", "pipe/generation_config.json: not a file")
    hf = folder(sh, "huge", {"tokenizer_config.json": b"{}"})
    with open(hf / "vocab.json", "wb") as file:
        file.truncate(10 << 30)
    refused(sh, "huge", "huge/vocab.json: 10737418240 bytes")
    hf = folder(sh, "out_of", {"config.json": CONFIG})
    sh.path("elsewhere").mkdir()
    sh.path("elsewhere/x.jinja").write_bytes(b"secret")
    os.symlink(sh.path("elsewhere"), hf / "additional_chat_templates")
    refused(sh, "out_of", "a link that leads out of its folder")


def case_links_of_a_hub_cache_are_followed(sh):
    hf = folder(sh)
    snapshot = sh.path("hub/models--a--b/snapshots/abc")
    blobs = sh.path("hub/models--a--b/blobs")
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(p for p in hf.iterdir() if p.is_file())):
        shutil.copy(path, blobs / f"{number}")
        os.symlink(f"../../blobs/{number}", snapshot / path.name)
    sh.run("convert", "hub/models--a--b/snapshots/abc", "out", "--to", "safetensors")
    check(sh.path("out/config.json").read_bytes() == CONFIG and not sh.path("out/config.json").is_symlink(), "config.json")


def case_names_that_differ_only_in_case_are_two_files(sh):
    two = {"config.json": CONFIG, "CONFIG.json": b"{}", "Config.json": b'{"a":1}'}
    hf = folder(sh, "hf", two)
    if len(extras_of(hf)) != len(two):
        raise Skipped("the file system does not tell upper from lower case")
    sh.run("convert", "hf", "out", "--to", "safetensors", not_out="not copied")
    check(extras_of(sh.path("out")) == two, str(extras_of(sh.path("out"))))
    sh.run("convert", "hf", "u")
    sh.run("convert", "u", "back", "--to", "safetensors")
    check(extras_of(sh.path("back")) == two, str(extras_of(sh.path("back"))))
    folder(sh, "own", {"config.json": CONFIG})
    folder(sh, "theirs", {"Config.json": b"{}", "tokenizer_config.json": b"{}"})
    sh.run("convert", "own", "both", "--to", "safetensors", "--assets", "theirs")
    check(sorted(extras_of(sh.path("both"))) == ["Config.json", "config.json", "tokenizer_config.json"],
          str(extras_of(sh.path("both"))))


def hostile(path, claims):
    """A safetensors file that claims that its conversion wrote other files."""
    header = json.dumps({"__metadata__": {"format": "pt", "ckpt.id": "0" * 32, "ckpt.beside": json.dumps(claims)},
                         "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"x")


def case_a_file_names_no_other_files_as_its_own(sh):
    sh.path("dl").mkdir()
    mine = {"train.py": b"print('weeks of work')\n", "README.md": b"# notes\n", "data.json": b"[1]"}
    for name, text in mine.items():
        sh.path("dl").joinpath(name).write_bytes(text)
    sh.path("elsewhere.py").write_bytes(b"")
    sh.path("dl/link.py").symlink_to(sh.path("elsewhere.py"))
    before = extras_of(sh.path("dl"))
    nothing = "d8984701d306aa99"  # of no bytes at all
    for claims in ({name: len(text) for name, text in mine.items()},  # sizes can be guessed
                   {name: nothing for name in mine}, {name: f"{len(text):016x}" for name, text in mine.items()},
                   {"link.py": nothing}, {"../elsewhere.py": nothing}):
        hostile(sh.path("dl/model.safetensors"), claims)
        sh.run("convert", sh.checkpoint(SINGLE), "dl", "--to", "safetensors", "--overwrite", code=2,
               err=["train.py", "README.md", "data.json", "link.py"])
        check(extras_of(sh.path("dl")) == before and sh.path("elsewhere.py").exists(), f"{claims}: something changed")
    # An edited file of the same size belongs to the user.
    folder(sh)
    sh.run("convert", "hf", "out", "--to", "safetensors")
    sh.path("out/config.json").write_bytes(CONFIG.replace(b"float32", b"float64"))
    sh.run("convert", "hf", "out", "--to", "safetensors", "--dtype", "bf16", "--overwrite", code=2, err="config.json")
    # A link to the very same bytes, too.
    sh.path("out/config.json").unlink()
    sh.path("out/config.json").symlink_to(sh.path("hf/config.json"))
    sh.run("convert", "hf", "out", "--to", "safetensors", "--dtype", "bf16", "--overwrite", code=2, err="config.json")


def steps(sh, folder, values):
    sh.path(folder).mkdir()
    for name, step in values.items():
        value = {"model": {"w": Tensor([1, 2])}}
        save(value if step is None else {**value, "global_step": step}, sh.path(folder) / name)


def case_files_of_several_steps_are_several_checkpoints(sh):
    steps(sh, "run", {"ck_1.pt": 1, "ck_2.pt": 2, "ck_10.pt": 10})
    for words in (["inspect", "run"], ["convert", "run", "out"], ["convert", "run", "out", "--only", "weights"], ["verify", "run"],
                  ["save", "run", "--store", "st", "--run", "r"]):
        sh.run(*words, code=12, err=["3 checkpoints, not one: ck_10.pt .step 10., ck_2.pt .step 2., ck_1.pt .step 1.",
                                     "run/ck_10.pt is the newest"])
    check(not sh.path("out").exists(), "they were merged")
    sh.run("convert", "run/ck_10.pt", "out")
    steps(sh, "lightning", {"epoch=3-step=120.ckpt": 120, "last.ckpt": 130})
    sh.run("inspect", "lightning", code=12, err="2 checkpoints, not one: last.ckpt .step 130., epoch=3-step=120.ckpt .step 120.")
    steps(sh, "unsaid", {"a.pt": None, "b.pt": None})
    os.utime(sh.path("unsaid/b.pt"), (1, 1))
    sh.run("inspect", "unsaid", code=12, err="2 checkpoints, not one: a.pt, b.pt")


def case_parts_of_one_checkpoint_stay_one(sh):
    sh.path("run").mkdir()
    for number in (1, 2):
        save({f"w{number}": Tensor([number])}, sh.path(f"run/part_{number}.pt"))
    sh.run("convert", "run", "out.safetensors", err="form no numbered set and are read as one")


def case_a_folder_of_checkpoints_names_the_newest(sh):
    for step in (100, 1000, 900):
        shutil.copytree(sh.checkpoint(SINGLE), sh.path(f"hf/checkpoint-{step}"))
    sh.path("hf/logs").mkdir()
    sh.run("save", "hf", "--run", "r", "--step", "1", code=12,
           err=["3 checkpoints, not one: checkpoint-1000 .step 1000., checkpoint-900 .step 900., checkpoint-100 .step 100.",
                "give the path of one: hf/checkpoint-1000 is the newest, safetensors .1 .*safetensors"])
    sh.run("inspect", "hf", err="^note: hf is a directory of checkpoints: using checkpoint-1000, the newest of its 3 checkpoints$")
    for step in range(2000, 2040):
        sh.path(f"hf/logs-{step}").mkdir()
    shutil.rmtree(sh.path("hf/checkpoint-100"))
    shutil.rmtree(sh.path("hf/checkpoint-900"))
    sh.run("inspect", "hf", err="using checkpoint-1000, its only checkpoint$")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
