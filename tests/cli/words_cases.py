"""Help, usage errors, units, and the JSON document of each command that needs no checkpoint."""
import os
import re
import subprocess

from runner import check, main


def case_no_word_shows_the_first_screen_and_is_a_mistake(sh):
    sh.run(code=2, err=["^Usage: ckpt COMMAND", "^Files:$", "^  convert +Convert a checkpoint", "ckpt inspect runs"])


def case_help_shows_verbs_examples_and_topics(sh):
    short = sh.run("-h", out=["^Usage: ckpt COMMAND", "^Examples:", "^Files:$", "^Store:$", "^Plan and check:$", "^More:$",
                              "^  convert +Convert a checkpoint", "^  prune +Delete checkpoints", "^  doctor +Check a directory"])
    check("--memory SIZE" not in short.out, "global options belong to --help", short)
    long = sh.run("--help", out=["^Usage: ckpt COMMAND", "^  convert SRC DST", "^  verify PATH", "^  inspect PATH", "^  ls PATH",
                                 r"^  prune \[RUN\]", "^Examples:", "^Global options:", "--memory SIZE"])
    check(sh.run("help").out == long.out, "another text")
    check(max(map(len, (short.out + long.out).splitlines())) <= 100, "lines too long", long)


def case_help_fits_the_terminal(sh):
    for words in (["-h"], ["--help"], ["convert", "--help"], ["prune", "-h"]):
        code, text = sh.terminal(*words, columns=80)
        lines = text.replace("\r", "").split("\n")
        wide = [line for line in lines if len(line) > 80 and not line.startswith("  ckpt ")]
        check(code == 0 and not wide, f"{words}: wider than the terminal: {wide}")


def case_h_is_the_short_help_of_a_command(sh):
    for verb in ("convert", "prune", "list"):
        short, long = sh.run(verb, "-h", out=["^Usage:", "^Examples:", "^Options:"]).out, sh.run(verb, "--help").out
        check(len(short) < len(long) and "Global options" not in short, f"{verb} -h is not short")
        check(short.index("Examples:") < short.index("Options:"), "examples come first")


def case_every_verb_has_help_and_every_flag_of_the_issue(sh):
    flags = {
        "convert": "to from only weights dtype shard-size zero-stage dp ep tag fresh-optimizer ranks placement memory threads io dry-run overwrite verify strip-prefix add-prefix",
        "verify": "quick against finite sample seed from", "inspect": "from files tsv", "ls": "long tree sort only dtype depth objects tsv quiet",
        "plan": "params bw stall mtbf nodes rework keep zero-stage curve svg json",
        "doctor": "need bench size io json",
        "prune": "store apply yes dry-run check check-policy policy import-policy keep keep-last keep-every keep-within keep-daily keep-best "
                 "keep-tag max-size min-free max-delete grace purge-early-below include-damaged drop-series lock-timeout",
        "undelete": "store all since pin lock-timeout", "rm": "store dry-run lock-timeout",
        "mark": "store metric tag note remove-metric remove-tag remove-note", "why": "store policy",
        "save": "store run step metric tag pin pin-reason note from map only dry-run restart verify json",
        "list": "store trash run tag state where since sort limit csv rebuild quiet json", "status": "store run prom json",
        "pin": "store reason owner until label", "unpin": "store label",
        "next-save": "store step every-steps every optimal max-overhead before-end time-left mtbf restart step-time json",
        "help": "json", "version": "json", "explain": "json", "completion": "quiet verbose progress color log-file no-mpi"}
    for verb, names in flags.items():
        text = sh.run("help", verb, out=f"^Usage: ckpt {verb}").out
        check(sh.run(verb, "--help").out == text, "ckpt VERB --help says something else")
        for name in names.split():
            check(f"--{name}" in text, f"{verb}: --{name} is not in its help")


def case_help_has_topics(sh):
    table = sh.run("help", "exit-codes").out
    for code in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17, 70, 130, 143):
        check(re.search(rf"^ *{code}  \w", table, re.M), f"{code} is not in the table")
    documented = re.findall(r"^\| ([\d, ]+) \|", (sh.golden / "../../docs/exit-codes.md").read_text(), re.M)
    for code in ", ".join(documented).split(", "):
        check(re.search(rf"^ *{code}  \w", table, re.M), f"{code} stands in docs/exit-codes.md only")
    codes = {code.strip() for row in documented for code in row.split(",")}
    check(set(re.findall(r"^ *(\d+)  \w", table, re.M)) == codes, f"the help has other codes than docs/exit-codes.md: {table}")
    sh.run("help", "formats", out=["^safetensors +yes +yes", "^deepspeed +yes", "^megatron +yes +yes", "^megatron-legacy +yes +yes"])
    sh.run("help", "units", out="2\\^32")
    sh.run("help", "environment", out="CKPT_MEMORY")
    sh.run("help", "exit-code", code=2, err="did you mean 'ckpt help exit-codes'")


def case_options_of_one_target_format_are_refused_by_others(sh):
    words = ("convert", "m", "out", "--to", "safetensors")
    for option in (["--zero-stage", "2"], ["--dp", "3"], ["--ep", "2"], ["--tag", "t"], ["--fresh-optimizer"], ["--ranks", "2"],
                   ["--placement", "*=S0"], ["--tp", "2"], ["--pp", "2"], ["--vpp", "2"], ["--decoder-first", "1"], ["--decoder-last", "1"]):
        sh.run(*words, *option, code=2, err=f"out: {option[0]} is not an option of the safetensors format")
    sh.run(*words, "--dp", "0", code=2, err="--dp")
    sh.run(*words, "--zero-stage", "4", code=2, err="--zero-stage: '4' is not one of 0, 1, 2, 3")
    sh.run(*words, "--tag", "a/b", code=2, err="--tag: 'a/b' is not a directory name")
    sh.run(*words, "--placement", "S0", code=2, err="--placement: 'S0' is not NAME=PLACEMENTS")


def case_mistakes_are_answered_with_a_hint_and_exit_2(sh):
    for words, hint in ((["convrt", "a", "b"], "did you mean 'ckpt convert'?"),
                        (["verifi", "a"], "did you mean 'ckpt verify'?"),
                        (["convert", "a", "b", "--overwrit"], "did you mean '--overwrite'?"),
                        (["convert", "a", "b", "--to", "safetensor"], "did you mean '--to safetensors'?"),
                        (["convert", "a", "b", "--to"], "safetensors"),
                        (["convert", "a", "b", "--dtype", "fp23"], "did you mean '--dtype fp32'?"),
                        (["convert", "a"], "ckpt convert SRC DST"),
                        (["ls", "a", "b"], "ckpt ls PATH"),
                        (["inspect"], "ckpt inspect PATH"),
                        (["ls", "a", "--memory", "4X"], "4GiB"),
                        (["convert", "a", "b", "--shard-size", "0"], "not be 0")):
        result = sh.run(*words, code=2, err=["^error: ", "^hint: "] if hint != "not be 0" else "^error: ", not_err="explain")
        check(hint in result.err, f"no hint {hint!r}", result)
        check(result.out == "", "a mistake belongs on standard error", result)


def case_words_of_other_tools_lead_to_the_command(sh):
    for word, hint in (("cat", "'ckpt export SRC OUT' writes tensors to files, 'ckpt ls SRC --objects'"),
                       ("upload", "'ckpt save SRC --run RUN' imports a checkpoint"), ("merge", "ckpt does not merge models"),
                       ("watch", "'ckpt status'"), ("nan", "'ckpt stats PATH'"), ("restore", "'ckpt undelete'")):
        sh.run(word, "a", "b", code=2, err=[f"unknown command '{word}'", f"^hint: .*{re.escape(hint)}"])
    for alias, verb in (("load", "export"), ("extract", "export"), ("import", "save"), ("compare", "diff"), ("statistics", "stats")):
        sh.run("help", alias, out=f"^Usage: ckpt {verb} ")
    sh.run("prune", "--run", "r", code=2, err=["unknown option '--run' of 'ckpt prune'", r"^hint: it is an argument: ckpt prune \[RUN\]"])


def case_synonyms_of_formats_and_dtypes_are_accepted(sh):
    sh.run("convert", sh.checkpoint("safetensors/single"), "half.safetensors", "--to", "hf", "--dtype", "float16", out="^done ")
    sh.run("ls", "half.safetensors", out=" F16 ")
    sh.run("convert", "half.safetensors", "half", "--to", "pytorch", "--from", "huggingface", out="target +torch")
    sh.run("convert", "half.safetensors", "x", "--to", "hug", code=2, err="--to: 'hug' is not one of")


def case_a_path_in_place_of_a_verb_is_answered_with_the_command(sh):
    sh.path("run").mkdir()
    sh.run("run", code=2, err="did you mean 'ckpt inspect run'")
    sh.run("run", "out", code=2, err="did you mean 'ckpt convert run out'")


def case_values_from_the_environment_are_named_when_they_are_wrong(sh):
    sh.run("ls", "a", code=2, err="CKPT_MEMORY: 'lots' is not a size", env={"CKPT_MEMORY": "lots"})
    sh.run("ls", "a", code=2, err="CKPT_PROGRESS: 'loud' is not one of", env={"CKPT_PROGRESS": "loud"})
    sh.run("ls", "a", code=2, err="CKPT_PROGRESS_EVERY: 'often' is not a time", env={"CKPT_PROGRESS_EVERY": "often"})


def case_every_id_is_explained(sh):
    sh.run("explain", "E1503", out=[r"^CKPT-E1503: .*exit code 15", "older checkpoint"])
    sh.run("explain", "ckpt-e200", out="^CKPT-E200")
    sh.run("explain", "E9999", code=10, err="unknown error id")
    sh.run("explain", "14", out=["^exit code 14: no space", "^  CKPT-E1400  "])
    check(sh.document("explain", "15")["data"]["ids"] == [f"CKPT-E{n}" for n in (1500, 1501, 1502, 1503, 1510, 1511)], "ids of 15")
    document = sh.document("explain", "E1503")
    check(document["data"]["exit_code"] == 15, "another exit code")


def case_version_tells_formats_features_and_the_build(sh):
    check(re.fullmatch(r"ckpt \d+\.\d+\.\d+\n", sh.run("--version").out), "another form")
    data = sh.document("version")["data"]
    check(re.fullmatch("[0-9a-f]{40}", data["build_id"]), f"build id {data['build_id']!r}")
    formats = {f["name"]: f for f in data["formats"]}
    for name in ("ckpt", "safetensors", "deepspeed", "dcp", "torch"):
        check(formats[name]["readable"], f"{name} cannot be read")
    for name in ("ckpt", "safetensors", "hdf5"):
        check(formats[name]["writable"], f"{name} cannot be written")


def case_documents_of_commands_without_a_checkpoint_fit_their_schemas(sh):
    sh.document("help")
    check(len(sh.document("help", "exit-codes")["data"]["exit_codes"]) > 14, "no table")
    sh.document("help", "convert")
    sh.document("completion", "bash")
    sh.document("help", "nothing", code=2)
    sh.document("completion", "tcsh", code=2)
    sh.document("explain", "nothing", code=10)


def case_mistakes_under_json_are_documents_too(sh):
    sh.document("convrt", code=2, schema="error")
    sh.document("--bogus", code=2, schema="error")
    for verb in ("convert", "verify", "inspect", "ls"):
        document = sh.document(verb, "a", "--bogus", code=2)
        check(document["errors"][0]["id"] == "CKPT-E200" and document["data"] is None, "another error")
    sh.document("ls", "a", "--sort=sideways", code=2, env={"CKPT_COLOR": "never"})


def case_completion_scripts_are_accepted_by_their_shells(sh):
    for shell in ("bash", "zsh", "fish"):
        script = sh.run("completion", shell, out=["convert", "shard-size", "safetensors"]).out
        try:
            run = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
        except OSError:  # not installed, or in a directory of PATH that this user cannot read
            continue
        check(run.returncode == 0, f"{shell}: {run.stderr}")


def case_bash_completes_verbs_flags_and_values(sh):
    script = sh.run("completion", "bash").out
    def complete(*words):
        line = " ".join(f"'{w}'" for w in words)
        command = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ckpt; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return subprocess.run(["bash", "-c", script + command], text=True, capture_output=True,
                              cwd=sh.directory).stdout.split()
    check("convert" in complete("ckpt", "con"), "no verb")
    check("--shard-size" in complete("ckpt", "convert", "a", "--sh"), "no flag")
    check("--memory" in complete("ckpt", "convert", "a", "--mem"), "no flag of every verb")
    check(complete("ckpt", "convert", "a", "b", "--to", "safe") == ["safetensors"], "no value")
    check(complete("ckpt", "convert", "a", "b", "--to", "=", "safe") == ["safetensors"], "no value after =")
    check("exit-codes" in complete("ckpt", "help", "exit"), "no topic")
    sh.path("a checkpoint").mkdir()
    check(complete("ckpt", "convert", "a c") == ["a", "checkpoint"], "no path with a blank")
    sh.path("rules.json").write_text("{}")
    check(complete("ckpt", "convert", "a", "b", "--map", "rul") == ["rules.json"], "no file of an option")
    check(complete("ckpt", "doctor", "a ") == ["a", "checkpoint"] and complete("ckpt", "doctor", "rul") == [], "not only directories")


def case_help_is_instant(sh):
    def once():
        """Milliseconds of processor time, which other processes of a busy machine can only add to a little."""
        child = subprocess.Popen([sh.program, "--help"], stdout=subprocess.DEVNULL, env=sh.environment())
        used = os.wait4(child.pid, 0)[2]
        return (used.ru_utime + used.ru_stime) * 1000
    once()
    least = min(once() for _ in range(15))
    for _ in range(300):
        if least <= sh.speed_limit_ms:
            break
        least = min(least, once())
    print(f"        ckpt --help: {least:.1f} ms of processor time")
    check(sh.speed_limit_ms == 0 or least <= sh.speed_limit_ms, f"--help takes {least:.1f} ms")


def case_help_touches_no_mpi_and_no_hdf5(sh):
    run = subprocess.run(["ldd", sh.program], text=True, capture_output=True)
    check(run.returncode == 0 and not re.search("libmpi|hdf5", run.stdout), run.stdout + run.stderr)
    sh.run("--help", env={"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, out="^Usage")


def case_an_empty_word_is_a_mistake_and_never_means_everything(sh):
    store = ("--store", "s")
    sh.run("save", sh.checkpoint("safetensors/single"), *store, "--run", "r", "--step", "1")
    for words, error in ((("list", "--run", "", *store), "--run is empty"), (("status", "--run=", *store), "--run is empty"),
                         (("next-save", "", *store), "ckpt next-save: an argument is empty"), (("undelete", "", *store), "an argument is empty"),
                         (("verify", ""), "an argument is empty"), (("list", "--store", ""), "--store is empty"),
                         (("inspect", "r@", *store), "r@: nothing after the '@'"), (("mark", "r@1", "--note", "", *store), "--note is empty"),
                         (("prune", "--keep-tag", "", "--keep-last", "1", *store), "--keep-tag is empty")):
        sh.run(*words, code=2, err=error)
    sh.run("list", "-q", env={"CKPT_STORE": ""}, launcher=("env", "-C", sh.path("s")), out="^r@1$")  # as if it were not set


def case_contradictions_are_refused(sh):
    store = ("--store", "s")
    sh.run("save", sh.checkpoint("safetensors/single"), *store, "--run", "r", "--step", "1")
    for words, error in ((("list", "--tsv", "--csv"), "--tsv and --csv"), (("list", "-q", "--tsv"), "--quiet and --tsv"),
                         (("mark", "r@1", "--tag", "x", "--remove-tag", "x"), "--tag x and --remove-tag x"),
                         (("mark", "r@1", "--metric", "l=1", "--remove-metric", "l"), "--metric l and --remove-metric l"),
                         (("mark", "r@1", "--note", "n", "--remove-note"), "--note and --remove-note")):
        sh.run(*words, *store, code=2, err=f"{error} cannot be used together$")
    check(not list(sh.path("s/r").rglob("marks/*")), "a mark was written")
    sh.run("mark", "r@1", "--tag", "y", "--remove-tag", "x", *store, code=10, err="^error: r@1: no tag 'x'")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
