"""Completion of names in stores and checkpoints, by `ckpt complete` and the script for bash."""
import os
import shutil
import subprocess

from runner import check, main

OURS = "ckpt/1.0-mesh"


def make_store(sh):
    for run, step, more in (("llama", 3, ("--tag", "paper")), ("llama", 12, ()), ("prod/gpt", 5, ())):
        sh.run("save", sh.checkpoint(OURS), "--store", "st", "--run", run, "--step", str(step), *more)
    shutil.copytree(sh.checkpoint("safetensors/single"), sh.path("st/hf/checkpoint-100"))
    return ("--store", "st")


def names(sh, kind, *words, env=None):
    return sh.run("complete", kind, "--", *words, env=env).out.split()


def case_names_of_a_store_are_listed(sh):
    store = make_store(sh)
    check(names(sh, "runs", "prune", *store) == ["hf", "llama", "prod/gpt"], str(names(sh, "runs", "prune", *store)))
    checkpoints = names(sh, "checkpoints", "pin", "--store=st")
    check({"llama@latest", "llama@3", "llama@12", "prod/gpt@5", "hf@100"} <= set(checkpoints), str(checkpoints))
    check(len(checkpoints) == len(set(checkpoints)), "a name twice")
    for name in checkpoints:
        sh.run("inspect", name, *store)
    check(names(sh, "tags", "list", env={"CKPT_STORE": "st"}) == ["paper"], "no tag")
    check(names(sh, "runs", "prune", "--store", "nowhere") == [] and names(sh, "nonsense") == [], "not silent")


def case_tensor_names_are_those_of_the_first_argument(sh):
    store = make_store(sh)
    tensors = sorted(sh.run("ls", sh.checkpoint(OURS), "-q").out.split())
    check(sorted(names(sh, "tensors", "ls", sh.checkpoint(OURS), "--glob")) == tensors, "other names")
    check(sorted(names(sh, "tensors", "export", "--verify", "read", "llama@12", *store, "--only")) == tensors, "by name in a store")
    check(names(sh, "tensors", "ls", "nowhere", "--glob") == [] and names(sh, "tensors") == [], "not silent")


def case_completion_writes_nothing(sh):
    os.makedirs(sh.path("st/llama"))
    shutil.copytree(sh.checkpoint(OURS), sh.path("st/llama/step-000000003.g1"))
    before = sorted(str(path) for path in sh.directory.rglob("*"))
    names(sh, "runs", "prune", "--store", "st")
    names(sh, "checkpoints", "pin", "--store", "st")
    names(sh, "tensors", "ls", "st/llama/step-000000003.g1", "--glob")
    check(sorted(str(path) for path in sh.directory.rglob("*")) == before, "something was written")
    sh.run("--help", not_out="^  complete ")
    sh.run("-h", not_out="^  complete ")


def case_names_that_a_shell_would_interpret_are_left_out(sh):
    for run in ("good", "bad $(touch x)", "b;ad", "b'ad"):
        os.makedirs(sh.path("st") / run / "checkpoint-1")
    check(names(sh, "runs", "prune", "--store", "st") == ["good"], "unsafe names")


def case_bash_completes_names(sh):
    make_store(sh)
    script = sh.run("completion", "bash").out
    os.symlink(sh.program, sh.path("ckpt"))

    def complete(*words):
        line = " ".join(f"'{w}'" for w in words)
        command = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ckpt; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        env = {**sh.environment(), "PATH": f"{sh.directory}:{os.environ['PATH']}", "CKPT_STORE": "st"}
        return subprocess.run(["bash", "-c", script + command], text=True, capture_output=True, cwd=sh.directory, env=env).stdout.split()

    check(complete("ckpt", "pin", "ll") == ["llama@latest", "llama@12", "llama@3"], str(complete("ckpt", "pin", "ll")))
    check(complete("ckpt", "pin", "llama", "@", "1") == ["12"], "bash splits words at @")
    check(complete("ckpt", "pin", "llama", "@") == ["latest", "12", "3"], "bash splits words at @")
    check(complete("ckpt", "prune", "prod") == ["prod/gpt"], "no run")
    check(complete("ckpt", "list", "--tag", "p") == ["paper"], "no tag")
    check(complete("ckpt", "list", "--run", "h") == ["hf"], "no run")
    check(complete("ckpt", "verify", "st") == ["st"], "no path")
    check(complete("ckpt", "policy", "s") == ["show", "simulate"] and complete("ckpt", "policy", "show", "s") == ["st"], "not the store after the action")
    check(complete("ckpt", "policy", "init", "--preset", "p") == ["production"], "no preset")
    check("llama@12" in complete("ckpt", "verify", "llama@12", "--against", "lla"), "no name after --against")
    check(complete("ckpt", "ls", "llama", "@", "12", "--glob", "col") == ["column.w"], "no tensor")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
