"""Limits of the machine, and files that exceed them: open files, memory, dimensions, times."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

from runner import Skipped, check, main
from torch_file import Tensor, save


# Runs the command after FILE, and writes its peak memory to FILE.
PEAK = """import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(code)"""


def shards(sh, name, count):
    """A model of `count` files, one small tensor each, with an index."""
    directory = sh.path(name)
    directory.mkdir()
    index = {"metadata": {"total_size": 4 * count}, "weight_map": {}}
    for i in range(count):
        header = json.dumps({f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        file = f"model-{i + 1:05}-of-{count:05}.safetensors"
        (directory / file).write_bytes(len(header).to_bytes(8, "little") + header + bytes([i % 251, i // 251, 0, 64]))
        index["weight_map"][f"t{i}"] = file
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def with_open_files(limit):
    return ["prlimit", f"--nofile={limit}:{limit}"]


def case_open_files_are_one_budget_of_the_process(sh):
    model = shards(sh, "model", 400)
    for limit, threads in ((256, 16), (64, 4)):
        for io in ("threads", "auto"):
            target = f"one-{limit}-{io}.safetensors"
            sh.run("convert", model, target, "--threads", str(threads), "--io", io, launcher=with_open_files(limit), out="^done ")
    sh.run("verify", "one-64-auto.safetensors", "--against", model, launcher=with_open_files(64), out="400 identical")


def case_a_target_of_many_files_needs_few_open_ones(sh):
    model = shards(sh, "model", 150)
    sh.run("convert", model, "out", "--to", "safetensors", "--shard-size", "8", launcher=with_open_files(64), out="^done ")
    check(len(os.listdir(sh.path("out"))) > 70, "shards")
    sh.run("verify", "out", "--against", model, out="150 identical")


def case_the_limit_of_open_files_is_raised_as_far_as_it_goes(sh):
    model = shards(sh, "model", 200)
    sh.run("convert", model, "out.safetensors", launcher=["prlimit", "--nofile=24:1024"], out="^done ")


def case_a_thread_that_the_system_refuses_is_no_error_of_ours(sh):
    sh.measures_memory()
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return  # the limit counts the processes of a separate user
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("source"))
    os.chmod(sh.directory, 0o777)
    nobody = ["prlimit", "--nproc=1:1", "setpriv", "--reuid", "65534", "--clear-groups"]
    sh.run("convert", "source", "out", "--no-mpi", "--io", "threads", launcher=nobody, code=16,
           err=["cannot start a thread: Resource temporarily unavailable", "ulimit -u"], not_err="please report")
    check(sorted(os.listdir(sh.directory)) == ["source"], str(os.listdir(sh.directory)))


def case_a_limit_of_file_sizes_is_a_lack_of_space(sh):
    sh.path("big.safetensors").write_bytes((70).to_bytes(8, "little") + b'{"a":{"dtype":"U8","shape":[4000000],"data_offsets":[0,4000000]}}'.ljust(70) + bytes(4000000))
    sh.run("convert", "big.safetensors", "out", launcher=["prlimit", "--fsize=1000000:1000000"], code=14,
           err=["file size limit", "ulimit -f"])
    check(sorted(os.listdir(sh.directory)) == ["big.safetensors"], str(os.listdir(sh.directory)))


def case_names_too_long_for_a_partial_are_refused(sh):
    source = sh.checkpoint("safetensors/single")
    sh.run("convert", source, "x" * 208, code=2, err=["208 bytes", "a target is 207", "255"])
    sh.run("convert", source, "x" * 207, out="^done ")
    sh.run("export", source, "y" * 250, "--to", "npy", code=2, err="a target is 207")
    sh.run("save", source, "--store", "s", "--run", "r" * 300, "--step", "1", code=2, err="a name has 300 bytes; the limit is 255")


def case_repeated_elements_are_looked_at_once(sh):
    save({"e": Tensor([1.0], shape=[1 << 45], steps=[0]), "x": Tensor([1.0, float("nan")])}, sh.path("e.pt"))
    sh.run("verify", "e.pt", out="ok")
    sh.run("verify", "e.pt", "--finite", code=1, out="1 NaN")


def case_a_manifest_over_the_memory_is_not_looked_at(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "1")
    checkpoint = sh.path("st/r/step-000000001.g1")
    for manifest in (checkpoint / "manifest.json", checkpoint / "index" / "manifest.json"):
        with manifest.open("r+b") as file:
            file.truncate(40 << 20)
    data = sh.document("repair", "st", "--memory", "64M", code=3)["data"]
    check("memory" in json.dumps(data), str(data))


def case_list_and_status_read_no_manifest_over_the_memory(sh):
    sh.measures_memory()
    sh.needs_free(200)
    at = ("--store", "st")
    for step in ("1", "2"):
        sh.run("save", sh.checkpoint("safetensors/single"), *at, "--run", "r", "--step", step, "--metric", f"n={step}")
    manifest = sh.path("st/r/step-000000001.g1/manifest.json")
    text = manifest.read_text()
    manifest.write_text(text.rstrip()[:-1] + ',"zz":"' + "a" * (60 << 20) + '"}')
    for verb in (("list",), ("status",), ("list", "--rebuild")):
        shutil.rmtree(sh.path("st/.ckpt"), ignore_errors=True)
        peak = sh.path("peak")
        sh.run(*verb, *at, "--memory", "64M", launcher=["/usr/bin/env", "python3", "-c", PEAK, str(peak)])
        check(int(peak.read_text()) < 64 << 20, f"{verb}: {int(peak.read_text()) >> 20} MiB resident")
    one = [c for c in sh.document("list", *at, "--memory", "64M")["data"]["checkpoints"] if c["step"] == 1][0]
    check(one["state"] == "unreadable" and "--memory" in one["reason"], str(one))
    manifest.write_text(text)  # nothing remains
    states = [c["state"] for c in sh.document("list", *at)["data"]["checkpoints"]]
    check(states == ["complete"] * 2, f"not read again: {states}")


def case_a_conversion_of_many_tensors_is_refused_within_the_memory(sh):
    sh.measures_memory()
    count = 50_000
    header = {f"model.layers.{i // 7}.block.{i % 7}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
              for i in range(count)}
    text = json.dumps(header).encode()
    sh.path("m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4 * count))
    for target in (("o.safetensors",), ("o", "--to", "ckpt"), ("d", "--to", "dcp"), ("o.pt",)):
        for attempt in range(3):  # what it asks for is enough; where it is an estimate, at the second try
            bound = 72 if attempt == 0 else int(re.search(r"the minimum is (\d+)M", result.err)[1])
            result = sh.run("convert", "m.safetensors", *target, "--memory", f"{bound}M", code=(0, 17),
                            launcher=[sys.executable, "-c", PEAK, sh.path("peak")])
            peak = int(sh.path("peak").read_text()) >> 20
            check(peak <= bound + bound // 10, f"{target}: {peak} MiB at --memory {bound}M", result)
            if result.code == 0:
                break
        check(result.code == 0 and attempt > 0, f"{target}: refused at what it asked for", result)


def case_a_directory_of_an_archive_is_held_within_the_memory(sh):
    with zipfile.ZipFile(sh.path("many.pt"), "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        for i in range(300_000):
            archive.writestr(f"archive/data/{i}", b"")
    sh.run("ls", "many.pt", "--memory", "64M", code=17, id="E1700")


def case_many_tiny_tensors_are_converted_in_the_memory_that_is_named_as_the_least(sh):
    sh.measures_memory()
    save({f"t{i}": Tensor([1.0]) for i in range(30_000)}, sh.path("tiny.pt"))
    for target in ("tiny.safetensors", "tiny"):
        words = ("convert", "tiny.pt", target, "--to", "dcp" if target == "tiny" else "safetensors", "--memory")
        told = sh.run(*words, "16M", code=17, id="E1700").err
        least = re.search(r"the minimum is (\d+)M", told)
        check(least, told)
        peak = sh.path("peak")
        sh.run(*words, least[1] + "M", launcher=["/usr/bin/env", "python3", "-c", PEAK, str(peak)])
        check(int(peak.read_text()) <= int(least[1]) << 20, f"{target}: {int(peak.read_text()) >> 20} MiB of {least[1]}")


def case_one_long_name_makes_no_other_row_as_long(sh):
    header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in (*range(2000), "w" * 1_000_000)}
    text = json.dumps(header).encode()
    sh.path("wide.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    for verb in (("ls",), ("ls", "--tree", "-v"), ("stats",)):
        out = sh.run(*verb, "wide.safetensors", out="^t7 ").out
        check(1_000_000 < len(out) < 3_000_000, f"{verb}: {len(out)} characters")


def case_a_policy_or_a_log_with_names_without_end_is_refused(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "r", "--step", "1")
    for line in (".".join(["a"] * 150_000) + " = 1", "[" + ".".join(["a"] * 150_000) + "]\nb = 1"):
        sh.path("st/ckpt.toml").write_text(line + "\n")
        for verb in (("policy", "check", "st"), ("policy", "show", "st"), ("prune", "--store", "st")):
            sh.run(*verb, code=2, err="line 1: more than 1000 dots")
    sh.path("metrics.csv").write_text("step," + "a" * 500_000 + "\n" + "".join(f"{i},2\n" for i in range(4000)))
    sh.run("mark", "r", "--metrics-from", "metrics.csv", "--store", "st", code=15, err="a column's name is longer than 1024 bytes")


def case_times_beyond_2262_do_not_overflow(sh):
    source = shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("late"))
    far = 15_000_000_000  # 2445
    for file in source.iterdir():
        try:
            os.utime(file, (far, far))
        except OverflowError:
            raise Skipped("this file system has no such times")
        if file.stat().st_mtime < far:
            raise Skipped("this file system has no such times")
    sh.run("save", source, "--store", "st", "--run", "r", "--step", "1")
    created = sh.document("list", "--store", "st")["data"]["checkpoints"][0]["created"]
    check(created > "2200", f"saved in {created}")


def case_the_log_is_a_regular_file(sh):
    os.mkfifo(sh.path("pipe"))
    sh.path("link").symlink_to("elsewhere")
    for name, why in (("pipe", "No such device or address|not a regular file"), ("link", "symbolic link"), ("/dev/null", "not a regular file")):
        sh.run("version", "--log-file", name, code=16, err=why)
    check(not sh.path("elsewhere").exists(), "what the link leads to was made")


def case_names_that_hide_something_are_shown_for_what_they_are(sh):
    name = "a\u202eb\u200bc\ufeffd\u009b"
    header = json.dumps({name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, ensure_ascii=False).encode()
    sh.path("m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    sh.run("ls", "--tsv", "m.safetensors", out=r"^a\?b\?c\?d\?\t")
    shown = sh.run("ls", "m.safetensors", "--json").out
    check(all(f"\\u{ord(c):04x}" in shown and c not in shown for c in "\u202e\u200b\ufeff\u009b"), shown)
    check(sh.document("ls", "m.safetensors")["data"]["tensors"][0]["name"] == name, "another name")
    result = sh.run("inspect", "no\udcff\udcc2\udc9bsuch", code=10)
    check("no??such" in result.err, "invalid bytes", result)


def case_a_list_for_programs_holds_no_name_that_reads_as_another(sh):
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "=cmd|calc", "--step", "1")
    sh.run("list", "--store", "st", "--csv", out="^\"'=cmd")
    sh.run("save", sh.checkpoint("safetensors/single"), "--store", "st", "--run", "a\nb", "--step", "1", code=2, err="control character")
    os.rename(sh.path("st/=cmd|calc"), sh.path("st/a\u202eb"))
    result = sh.run("list", "--store", "st", "-q", err="omitted 1 name")
    check(result.out == "", "a name that is another", result)
    os.rename(sh.path("st/a\u202eb"), sh.path("st/a\u202eb\x7f\u009bc"))
    for words in (("list",), ("prune", "--keep-last", "1")):
        shown = sh.run(*words, "--store", "st", "--json").out
        check("a\\u202eb\\u007f\\u009bc" in shown, "not escaped", shown)
        check(not any(c in shown for c in "\u202e\x7f\u009b"), "raw", shown)
        document = sh.document(*words, "--store", "st")
        check(document["data"]["checkpoints"][0]["run"] == "a\u202eb\x7f\u009bc", "another name", shown)


def case_a_text_that_many_keys_share_is_not_written_out_for_each(sh):
    shared = "x" * 200_000  # once in the file
    save({(shared,) * 100 + (i,): Tensor([1.0]) for i in range(60)}, sh.path("keys.pt"))
    sh.run("ls", "keys.pt", out="key@", not_out="xxxx")


def case_a_policy_of_too_many_rules_is_refused(sh):
    sh.path("store").mkdir()
    sh.path("store/ckpt.toml").write_text("keep = [" + "{ last = 1 }, " * 20000 + "]\n")
    sh.run("prune", "--store", "store", code=2, err="more than 64 rules")


def case_a_dimension_that_a_format_holds_signed_is_never_written_wrong(sh):
    """Only a tensor without elements can have one of 2^63 or more. What is written must be readable."""
    for number, shape in enumerate(([2**63, 0], [0, 2**64 - 1], [0, 2**62, 2])):
        header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]},
                             "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        source = f"{number}.safetensors"
        sh.path(source).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        for form in ("torch", "dcp"):
            sh.run("convert", source, f"{form}-{number}", "--to", form, code=12, err="w: torch holds no dimension or stride of 2.63")
        for form in ("safetensors", "ckpt"):
            sh.run("convert", source, f"{form}-{number}", "--to", form)
            sh.run("verify", f"{form}-{number}", "--against", source, out="2 identical")
        sh.run("export", source, f"npy-{number}", "--to", "npy", code=12, err="NumPy holds no dimension or stride of 2.63")


def case_sigterm_ends_every_command(sh):
    """Wherever a command is, it ends as a stopped one does: no other error, no hang, nothing half-written."""
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(60_000)}
    text = json.dumps(header).encode()
    for name in ("model.safetensors", "other.safetensors"):
        sh.path(name).write_bytes(len(text).to_bytes(8, "little") + text + bytes(4 * len(header)))
    sh.run("save", "model.safetensors", "--store", "store", "--run", "r", "--step", "1")
    there = sorted(os.listdir(sh.directory))
    seen = 0
    for words in (("inspect", "model.safetensors"), ("ls", "model.safetensors"), ("diff", "model.safetensors", "other.safetensors"),
                  ("verify", "model.safetensors"), ("convert", "model.safetensors", "out.safetensors"),
                  ("convert", "r@1", "out", "--to", "dcp", "--store", "store"), ("save", "model.safetensors", "--store", "store", "--run", "r", "--step", "2"),
                  ("verify", "--all", "--store", "store"), ("prune", "--store", "store", "--keep-last", "3")):
        started = time.monotonic()
        sh.run(*words)
        whole = time.monotonic() - started
        clean(sh, there)
        seen += sum(is_stopped(sh, words, share * whole, there) for share in (0.1, 0.4, 0.7))
    for attempt in range(40):  # what ends within a second may end as it would have, and a machine may have been slow above
        if seen <= 3:
            seen += is_stopped(sh, ("convert", "model.safetensors", "out.safetensors"), 0.005 * (1 + attempt % 8), there)
    check(seen > 3, f"{seen} stopped")


def is_stopped(sh, words, seconds, there):
    """Sends SIGTERM to a command after some time: whether it ended by it, and as one that is stopped does."""
    process = subprocess.Popen([sh.program, *words], cwd=sh.directory, env=sh.environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    check(process.returncode in (0, 143, -signal.SIGTERM), f"{words}: exit {process.returncode}", out + err)
    check(process.returncode != 143 or "stopped" in err, f"{words}: no word of it", out + err)
    clean(sh, there)
    sh.run("list", "--store", "store")
    return process.returncode != 0


def clean(sh, there):
    """Removes what the last command wrote; what continues a conversion is named like its target."""
    for name in set(os.listdir(sh.directory)) - set(there):
        check(name.startswith((".out", "out")), f"left behind: {name}")
        path = sh.path(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in sh.path("store/r").iterdir():
        if "00002" in path.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
