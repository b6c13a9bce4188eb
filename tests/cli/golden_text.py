"""The whole output of commands, as people see it: at 80 and at 140 columns, on a terminal and in a pipe.

A file of tests/golden_text holds the commands of one scenario, each with its output. What differs from run to run (times,
ids, memory, free space) is replaced by fixed words of the same width where columns depend on it.
"""
import atexit
import getpass
import os
import pathlib
import re
import shutil
import socket
import tempfile
import time

COLUMNS = (80, 140)
PLACES = ("terminal", "pipe")
ENVIRONMENT = {"CKPT_PROGRESS": "none", "CKPT_MEMORY": "1G", "CKPT_THREADS": "2", "CKPT_IO": "threads"}
AGE_S = 40.5 * 86400  # shown as "40 d", hours from both neighbours

PLAN = ("plan", "--params", "70B", "--bw", "40G", "--stall", "1.9s", "--nodes", "128", "--mtbf", "30000h/node", "--restart", "10m")
SCENARIOS = {
    "list": [("list", "runs"), ("list", "runs", "-q"), ("list", "runs", "--run", "lama8b"), ("list", "runs", "--where", "metric.loss < 2")],
    "status": [("status", "runs"), ("status", "runs", "--run", "llama8b"), ("status", "nowhere")],
    "prune": [("prune", "--store", "runs"), ("prune", "--store", "runs", "--check-policy"), ("prune", "--store", "runs", "--keep-last", "0"),
              ("prune", "--store", "runs", "--apply"), ("prune", "--store", "runs", "--apply", "-y"), ("prune", "--store", "runs")],
    "inspect": [("inspect", "ds"), ("inspect", "runs/llama8b/step-000001000.g1"), ("inspect", "ds", "--files"), ("inspect", "notes.txt")],
    "convert": [("convert", "ds", "out", "--to", "dcp", "-n"), ("convert", "ds", "w.safetensors", "--only", "weights"),
                ("convert", "ds", "w.safetensors", "--only", "weights"), ("convert", "ds", "w.safetensors"), ("convert", "missing", "out")],
    "verify": [("verify", "ds"), ("verify", "broken"), ("verify", "ds", "--against", "mesh"), ("verify", "--all", "--store", "runs"), ("verify", "missing")],
    "tensors": [("ls", "ds"), ("ls", "ds", "--tree"), ("ls", "ds", "--objects"), ("stats", "ds", "--only", "weights"), ("export", "ds", "arrays", "--only", "*norm*"),
                ("export", "ds", "rows.npy", "--slice", "nothing[:2]"), ("convert", "ds", "virtual", "--virtual"), ("materialize", "virtual")],
    "store": [("save", "ds", "--store", "runs", "--run", "new"), ("save", "ds", "--store", "runs", "--run", "new"), ("mark", "llama8b@1000", "--tag", "paper", "--store", "runs"),
              ("pin", "llama8b@1000", "--reason", "cited", "--store", "runs"), ("why", "llama8b@1000", "--store", "runs"), ("why", "llama8b@2000", "--store", "runs"),
              ("unpin", "llama8b@1000", "--store", "runs"), ("why", "llama8b@9", "--store", "runs"), ("next-save", "runs/llama8b", "--every-steps", "1000", "--step", "3500")],
    "trash": [("rm", "llama8b@1000", "--store", "runs"), ("rm", "llama8b@1000", "--store", "runs", "--apply"), ("list", "runs", "--trash"),
              ("undelete", "llama8b@1000", "--store", "runs"), ("undelete", "--store", "runs")],
    "policy": [("policy", "show", "runs"), ("policy", "check", "runs"), ("policy", "init", "runs", "--preset", "research"), ("policy", "simulate", "runs")],
    "repair": [("repair", "broken"), ("repair", "broken", "--out", "rest"), ("repair", "runs")],
    "help": [(), ("-h",), ("--help",), ("convert", "-h"), ("convert", "--help"), ("prune", "-h"), ("help", "exit-codes"), ("help", "units"), ("explain", "E1504"), ("convrt",)],
    "plan": [(*PLAN, "--keep", "last=3,6h*8,1d*14", "--gpus", "1024", "--gpu-hour", "$2.50", "--curve"), ("plan", "--params", "7B", "--bw", "2G"), ("plan",)],
}

POLICY = """[[rule]]
runs = "*"
keep = { last = 1, best = { metric = "loss", n = 1 } }
[trash]
purge_early_when_free_below = "0%"
"""


def age(folder):
    """All files were written AGE_S ago, at a full second and some digits."""
    moment = (int(time.time() - AGE_S) * 10**9) + 123456789
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, ns=(moment, moment))


def prepare(sh):
    """Fills an empty directory: made once, and copied with its times."""
    if not _made:
        _made.append(tempfile.mkdtemp(prefix="ckpt-cli-"))
        atexit.register(shutil.rmtree, _made[0], ignore_errors=True)
        make(sh)
        shutil.copytree(sh.directory, _made[0], dirs_exist_ok=True)
    else:
        shutil.copytree(_made[0], sh.directory, dirs_exist_ok=True)


_made = []


def make(sh):
    shutil.copytree(sh.checkpoint("ckpt/1.0-mesh"), sh.path("mesh"))
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4"), sh.path("ds"))
    sh.path("notes.txt").write_text("no checkpoint\n")
    age(sh.directory)
    for step, marks in (("1000", ("loss=2.25",)), ("2000", ("loss=1.5", "--tag", "release")), ("3000", ("loss=1.75",))):
        sh.run("save", "mesh", "--store", "runs", "--run", "llama8b", "--step", step, "--metric", *marks)
    shutil.copytree(sh.path("runs/llama8b/step-000003000.g3"), sh.path("broken"))
    data = sh.path("broken/shards/weights/00000-00000.safetensors")
    with open(data, "r+b") as file:
        file.seek(data.stat().st_size // 2)
        file.write(b"\xff\x00\xff")
    shutil.copytree(sh.path("ds"), sh.path("runs/prod/ds"))
    sh.path("runs/ckpt.toml").write_text(POLICY)


RULES = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "2026-01-02T03:04:05Z"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-01-02 03:04 UTC"),
    (r"\b[0-9a-f]{32}\b", "0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d"),
    (r"(?<=  )[0-9a-f]{8}(?=$|  )", "0a1b2c3d"),
    (r"\b\d+ (ms|s|min) ago\b", "1 s ago"),
    (r"(   | in )(\d+ min )?\d+(\.\d+)? (ms|s)\b(   \S+ [KMGTP]?i?B/s)?", r"\1TIME"),
    (r"at least \d+(\.\d+)? [KMG]iB of memory", "at least SIZE of memory"),
    (r"(^free(?: {3})?|peak memory) \d+(\.\d+)? [KMGTP]?i?B\b", r"\1 SIZE"),
]


def fixed(text, name, directory):
    text = text.replace(f"{getpass.getuser()}@{socket.gethostname()}", "USER@HOST").replace(f"by {getpass.getuser()} ", "by USER ")
    text = text.replace(str(directory), "DIR").replace("\r\n", "\n").replace("\x1b", "\\e")
    text = re.sub(r"\n +(?=DIR)", " ", text)  # whose length decides where a line breaks
    for pattern, word in RULES[:2] if name == "plan" else RULES:
        text = re.sub(pattern, word, text, flags=re.M)
    return text


def file_name(name, columns, place):
    return f"{name}-{columns}-{place}.txt"


def output(sh, name, columns, place):
    """The contents of the file of this name, in the prepared directory."""
    out = ""
    for words in SCENARIOS[name]:
        out += f"$ ckpt {' '.join(words)}\n"
        if place == "terminal":
            code, text = sh.terminal(*words, env=ENVIRONMENT, columns=columns)
            out += fixed(text, name, sh.directory)
        else:
            result = sh.run(*words, code=tuple(range(256)), env={**ENVIRONMENT, "COLUMNS": str(columns)})
            code = result.code
            out += fixed(result.out, name, sh.directory)
            out += "".join(f"2> {line}\n" for line in fixed(result.err, name, sh.directory).splitlines())
        out += f"[exit {code}]\n\n"
    return out


def folder():
    return pathlib.Path(__file__).resolve().parent.parent / "golden_text"
