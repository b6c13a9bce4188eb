"""Eight times as many of what a file or a user may have many take about eight times the work: never the square of it.

What is compared is processor time of one machine with itself, so that no machine is too slow.
"""
import json
import os
import shutil
import subprocess
import zipfile

from runner import check, main

TIMES = 8
MOST = 24  # a square would be 64, and what a command costs in any case makes it less


def seconds(sh, words, code):
    """Processor time of a command and of what it started."""
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
