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


def case_undelete_is_offered_what_is_in_the_trash(sh):
    store = make_store(sh)
    sh.run("rm", "llama@3", *store)
    check(names(sh, "checkpoints", "undelete", *store) == ["llama@3"], str(names(sh, "checkpoints", "undelete", *store)))


def case_tensor_names_are_those_of_the_first_argument(sh):
    store = make_store(sh)
    tensors = sorted(sh.run("ls", sh.checkpoint(OURS), "-q").out.split())
    check(sorted(names(sh, "tensors", "ls", sh.checkpoint(OURS), "--only")) == tensors, "other names")
    check(sorted(names(sh, "tensors", "export", "--verify", "read", "llama@12", *store, "--only")) == tensors, "by name in a store")
    check(names(sh, "tensors", "ls", "nowhere", "--only") == [] and names(sh, "tensors") == [], "not silent")


def case_completion_writes_nothing(sh):
    os.makedirs(sh.path("st/llama"))
    shutil.copytree(sh.checkpoint(OURS), sh.path("st/llama/step-000000003.g1"))
    before = sorted(str(path) for path in sh.directory.rglob("*"))
    names(sh, "runs", "prune", "--store", "st")
    names(sh, "checkpoints", "pin", "--store", "st")
    names(sh, "tensors", "ls", "st/llama/step-000000003.g1", "--only")
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
    check(complete("ckpt", "mark", "llama@12", "--remove-tag", "p") == ["paper"], "no tag to remove")
    check(complete("ckpt", "list", "--run", "h") == ["hf"], "no run")
    check(complete("ckpt", "verify", "st") == ["st"], "no path")
    check(complete("ckpt", "policy", "s") == ["show", "simulate"] and complete("ckpt", "policy", "show", "s") == ["st"], "not the store after the action")
    check(complete("ckpt", "policy", "init", "--preset", "p") == ["production"], "no preset")
    check("llama@12" in complete("ckpt", "verify", "llama@12", "--against", "lla"), "no name after --against")
    check(complete("ckpt", "ls", "llama", "@", "12", "--only", "col") == ["column.w"], "no tensor")


def case_fish_completes_names(sh):
    make_store(sh)
    sh.path("ckpt.fish").write_text(sh.run("completion", "fish").out)
    os.makedirs(sh.path("bin"))
    os.symlink(sh.program, sh.path("bin/ckpt"))

    def complete(line):
        env = {**sh.environment(), "PATH": f"{sh.path('bin')}:{os.environ['PATH']}", "CKPT_STORE": "st", "HOME": str(sh.directory)}
        run = subprocess.run(["fish", "--no-config", "-c", f"source ckpt.fish; complete -C '{line}'"], text=True, capture_output=True, cwd=sh.directory, env=env)
        check(run.returncode == 0 and not run.stderr, run.stderr)
        return {found.split("\t")[0] for found in run.stdout.splitlines()}

    check(complete("ckpt pin ll") == {"llama@latest", "llama@12", "llama@3"}, str(complete("ckpt pin ll")))
    check(complete("ckpt prune prod") == {"prod/gpt"}, "no run")
    check(complete("ckpt list --tag p") == {"paper"}, "no tag")
    check(complete("ckpt ver") == {"verify", "version"}, "no command")
    check("st/" in complete("ckpt verify s"), "no path")
    check(complete("ckpt convert a b --to s") == {"safetensors"}, "no format")
    check(complete("ckpt policy s") >= {"show", "simulate"}, "no action")
    check(complete("ckpt ls llama@12 --only col") == {"column.w"}, "no tensor")


# An interactive zsh in a pseudo terminal completes a line, whose candidates go to a file: what it displays may be skipped
# while input waits. A word on the terminal says that this is done.
ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
line() { zpty -w z "$1"; }
line "PS1=; unsetopt zle_bracketed_paste beep; fpath=($PWD/functions \\$fpath); autoload -Uz compinit; compinit -u -D"
line "source $PWD/capture.zsh; print -r -- BE''GIN"
zpty -r z out '*BEGIN*'
zpty -w -n z "$1"$'\\t'
zpty -r z out '*END*'
zpty -d z
"""
CAPTURE = """
complete_and_tell() {
  zle list-choices
  zle -I
  print -r -- END
}
zle -N complete_and_tell
bindkey '^I' complete_and_tell
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\\ * ]]; then
    local -a candidates
    builtin compadd -A candidates "$@"
    print -rl -- $candidates >> candidates
  fi
  builtin compadd "$@"
}
"""


def case_zsh_completes_names(sh):
    make_store(sh)
    os.makedirs(sh.path("functions"))
    sh.path("functions/_ckpt").write_text(sh.run("completion", "zsh").out)
    os.makedirs(sh.path("bin"))
    os.symlink(sh.program, sh.path("bin/ckpt"))

    sh.path("capture.zsh").write_text(CAPTURE)

    def complete(line):
        env = {**sh.environment(), "PATH": f"{sh.path('bin')}:{os.environ['PATH']}", "CKPT_STORE": "st", "HOME": str(sh.directory), "TERM": "xterm"}
        sh.path("candidates").write_text("")
        subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", line], capture_output=True, cwd=sh.directory, env=env, timeout=60)
        return set(sh.path("candidates").read_text().split())

    check(complete("ckpt pin ll") >= {"llama@latest", "llama@12", "llama@3"}, str(complete("ckpt pin ll")))
    check(complete("ckpt list --tag p") >= {"paper"}, "no tag")
    check(complete("ckpt ver") >= {"verify", "version"}, "no command")
    check(complete("ckpt policy s") >= {"show", "simulate"}, "no action")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
