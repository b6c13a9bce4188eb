"""Work grows about linearly with the number of things that a file or a user may have: eight times as many take about
eight times the work, never its square. Compares processor times of one machine, so that no machine is too slow.
"""
import json
import os
import shutil
import subprocess
import zipfile

import torch_file
from runner import check, main

TIMES = 8
MOST = 24  # quadratic work would be 64, less the fixed cost of a command


def seconds(sh, words, code):
    """Processor time of a command and its children."""
    process = subprocess.Popen([sh.program, *map(os.fspath, words)], cwd=sh.directory, env=sh.environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode in code, f"exit {process.returncode}", said)
    return usage.ru_utime


def grows(sh, count, make, code=(0,)):
    """`make(count)` gives the words of a command whose work has this size."""
    small = max(seconds(sh, make(count), code), 0.02)
    large = seconds(sh, make(TIMES * count), code)
    check(large <= MOST * small, f"{count}: {small:.2f} s, {TIMES * count}: {large:.2f} s")
    print(f"        {count}: {small:.2f} s, {TIMES * count}: {large:.2f} s")


def safetensors(path, names):
    header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(len(names)))
    return path


def case_rules_of_a_policy(sh):
    sh.path("store").mkdir()

    def short(count):
        sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "a*"\nkeep = { last = 1 }\n' * count)
        return ["prune", "--store", "store"]

    def full(count):
        sh.path("store/ckpt.toml").write_text("keep = [" + "{ last = 1 }, " * count + "]\n")
        return ["prune", "--store", "store"]

    grows(sh, 1000, short)
    grows(sh, 1000, full, code=(2,))


def case_tensors_of_a_file(sh):
    grows(sh, 2000, lambda count: ["ls", safetensors(sh.path(f"{count}.safetensors"), [f"t{i}" for i in range(count)])])


def case_groups_of_an_hdf5_target(sh):
    def make(count):
        names = [f"model.layers.{i}.weight" for i in range(count)]
        return ["convert", safetensors(sh.path(f"{count}.safetensors"), names), sh.path(f"{count}.h5"), "--verify", "none"]

    grows(sh, 500, make)


def case_entries_of_an_archive(sh):
    def make(count):
        path = sh.path(f"{count}.pt")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}.")
            for i in range(count):
                archive.writestr(f"archive/data/{i}", b"")
        return ["ls", path]

    grows(sh, 2000, make)


def training(path, names, options=None, others=None):
    """A training state whose optimizer numbers its parameters."""
    one = torch_file.Tensor([1.0])
    model = {name: torch_file.Tensor([1.0]) for name in names}
    state = {i: {"step": 3, "exp_avg": one, "exp_avg_sq": one} for i in range(len(names))}
    group = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, **(options or {}), "params": list(range(len(names)))}
    torch_file.save({"model": model, "optimizer": {"state": state, "param_groups": [group]}, "step": 3, **(others or {})}, path)
    return path


def case_parameters_of_a_training_state(sh):
    def to(*words):
        def make(count):
            source = training(sh.path(f"{count}.pt"), [f"layers.{i}.weight" for i in range(count)])
            return ["convert", source, f"out{count}", *words, "-n"]
        return make

    for words in (("--to", "dcp"), ("--to", "torch"), ("--to", "ckpt"), ("--to", "deepspeed", "--zero-stage", "1", "--dp", "2"),
                  ("--to", "deepspeed", "--zero-stage", "3", "--dp", "2"), ("--to", "deepspeed", "--zero-stage", "0", "--dp", "1"),
                  ("--to", "deepspeed-universal")):
        print("        " + " ".join(words))
        grows(sh, 500, to(*words))


def case_checksums_of_an_archive(sh):
    def make(count):
        source = sh.path(f"{count}.pt")
        torch_file.save({f"t{i}": torch_file.Tensor([1.0]) for i in range(count)}, source)
        return ["convert", source, f"{count}.safetensors", "--threads", "1"]

    grows(sh, 8000, make)


def case_experts_of_a_training_state(sh):
    def make(layers):
        experts = 8
        names = [f"h.{i}.deepspeed_moe.experts.deepspeed_experts.{e}.w" for i in range(layers) for e in range(experts)]
        path = training(sh.path(f"{layers}.pt"), names, {"name": "ep_size_1", "moe": True}, {"num_experts": [experts] * layers})
        return ["convert", path, f"out{layers}", "--to", "deepspeed", "--zero-stage", "1", "--dp", "1", "-n"]

    grows(sh, 200, make)


def case_slices_of_a_load(sh):
    def make(count):
        source = safetensors(sh.path(f"{count}.safetensors"), [f"t{i}" for i in range(count)])
        words = [word for i in range(count) for word in ("--slice", f"t{i}[0:1]")]
        return ["export", source, f"out{count}", "--to", "npy", "-n", *words]

    grows(sh, 2000, make)


def case_rules_of_a_map(sh):
    def make(count):
        source = safetensors(sh.path(f"{count}.safetensors"), [f"t{i}" for i in range(count)])
        rules = [{"tensor": f"t{i}", "name": f"u{i}"} for i in range(count)]
        sh.path(f"{count}.json").write_text(json.dumps({"ckpt-map": 1, "rules": rules}))
        return ["ls", source, "--map", sh.path(f"{count}.json")]

    grows(sh, 2000, make)


def case_shards_of_a_model(sh):
    def make(count):
        folder = sh.path(f"model{count}")
        folder.mkdir()
        index = {}
        for i in range(count):
            index[f"t{i}"] = safetensors(folder / f"model-{i + 1:05}-of-{count:05}.safetensors", [f"t{i}"]).name
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": count}, "weight_map": index}))
        return ["convert", folder, f"whole{count}.safetensors", "-n"]

    grows(sh, 200, make)


def case_checkpoints_of_a_store(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "one", "--run", "r", "--step", "1")

    def make(count):
        store = sh.path(f"store{count}")
        for i in range(1, count + 1):
            shutil.copytree(sh.path("one/r/step-000000001.g1"), store / "r" / f"step-{i:09}.g{i}", copy_function=os.link)
        return ["list", "--store", store, "--rebuild"]

    grows(sh, 50, make)


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
