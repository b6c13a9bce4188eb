"""What operators install: Slurm scripts, cron, systemd, logrotate, Prometheus, man pages and completions."""
import json
import os
import re
import shutil
import signal
import subprocess

from runner import Skipped, check, main

SCRIPTS = ("train.sbatch", "save-when-due", "task-prolog", "epilog")


def packaging(sh):
    return (sh.golden / "../../packaging").resolve()


def stub(sh, name, body):
    """A stub that precedes all other programs in PATH and records its arguments."""
    folder = sh.directory / "bin"
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\necho \"{name} $*\" >> '{sh.directory}/called'\n{body}\n")
    file.chmod(0o755)


def called(sh):
    file = sh.directory / "called"
    return file.read_text() if file.exists() else ""


def script(sh, name, *words, env=None, code=0):
    """Runs a script as Slurm would, with ckpt and the stubs in PATH."""
    folder = sh.directory / "bin"
    folder.mkdir(exist_ok=True)
    if not (folder / "ckpt").exists():
        (folder / "ckpt").symlink_to(sh.program)
    environment = sh.environment({"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_NAME": "demo", "SLURM_JOB_ID": "41",
                                  "CKPT_STORE": str(sh.directory / "runs"), **(env or {})})
    run = subprocess.run(["bash", packaging(sh) / "slurm" / name, *words], cwd=sh.directory, env=environment, timeout=120,
                         capture_output=True, text=True)
    check(run.returncode == code, f"{name}: exit {run.returncode}, not {code}\n{run.stdout}\n{run.stderr}")
    return run


def make_run(sh, *generations):
    run = sh.directory / "runs/demo"
    for generation in generations:
        shutil.copytree(sh.golden / "ckpt/1.0-mesh/ckpt", run / f"step-000000010.g{generation}")
    return run


def case_scripts_are_shell_and_can_be_run(sh):
    for name in SCRIPTS:
        file = packaging(sh) / "slurm" / name
        check(os.access(file, os.X_OK), f"{name} cannot be run")
        run = subprocess.run(["bash", "-n", file], capture_output=True, text=True)
        check(run.returncode == 0, run.stderr)
    if shutil.which("shellcheck"):
        run = subprocess.run(["shellcheck", *(packaging(sh) / "slurm" / n for n in SCRIPTS)], capture_output=True, text=True)
        check(run.returncode == 0, run.stdout)


def case_the_job_resumes_from_the_newest_whole_checkpoint_and_requeues_itself(sh):
    stub(sh, "srun", "echo \"RESUME=$RESUME\" >> called; exit ${TRAINER_CODE:-0}")
    stub(sh, "scontrol", "")
    script(sh, "train.sbatch")
    check(called(sh).splitlines()[1] == "RESUME=", f"a new run resumes: {called(sh)}")
    run = make_run(sh, 1, 2)
    shard = max((run / "step-000000010.g2").rglob("*.safetensors"), key=lambda f: f.stat().st_size)
    os.truncate(shard, shard.stat().st_size - 1)
    os.remove(sh.directory / "called")
    ended = script(sh, "train.sbatch", env={"TRAINER_CODE": "75", "TRAIN": "./mine"})
    lines = called(sh).splitlines()
    check(lines == [f"srun ./mine {run}", f"RESUME={run}/step-000000010.g1", "scontrol requeue 41"], f"{lines}\n{ended.stdout}{ended.stderr}")
    check("cannot resume from" in ended.stderr and "g2" in ended.stderr, ended.stderr)
    os.remove(sh.directory / "called")
    script(sh, "train.sbatch", env={"TRAINER_CODE": "9"}, code=9)
    check("scontrol" not in called(sh), "a trainer that failed is not started again")


def case_the_signal_of_slurm_reaches_the_trainer_which_is_requeued(sh):
    # srun as Slurm runs it: its task gets USR1, saves, and ends with 75.
    stub(sh, "srun", "trap 'echo saved >> called; exit 75' USR1; kill -USR1 $$; exit 1")
    stub(sh, "scontrol", "")
    script(sh, "train.sbatch")
    check(called(sh).splitlines()[1:] == ["saved", "scontrol requeue 41"], called(sh))
    text = (packaging(sh) / "slurm/train.sbatch").read_text()
    check(re.search(r"^#SBATCH --signal=USR1@300$", text, re.M) and "#SBATCH --requeue" in text, "Slurm is not told")


def case_a_trainer_without_the_library_is_told_to_save(sh):
    stub(sh, "scancel", "")
    make_run(sh, 1)
    (sh.directory / "runs/ckpt.toml").write_text("[interval]\nevery_steps = 100\nbefore_end = '5m'\n")
    (sh.directory / "step").write_text("99\n")
    once = {"ONCE": "1"}
    script(sh, "save-when-due", "demo", "step", env=once)
    check(called(sh) == "", f"not yet: {called(sh)}")
    (sh.directory / "step").write_text("100\n")
    script(sh, "save-when-due", "demo", "step", env=once)
    check(called(sh) == "scancel --signal=USR1 41.0\n", called(sh))
    (sh.directory / "step").write_text("99\n")
    script(sh, "save-when-due", "demo", "step", env={**once, "SLURM_JOB_END_TIME": "1000"})  # long past: save at once
    check(called(sh).count("scancel") == 2, called(sh))


def case_prolog_and_epilog_never_fail(sh):
    told = {"CKPT_RUN": "demo"}
    check(script(sh, "task-prolog", env=told).stdout == "export CKPT_CAN_RESUME=0\n", "a store that is not there yet")
    os.remove(sh.directory / "bin/ckpt")
    stub(sh, "ckpt", "exit 16")
    check("cannot be read" in script(sh, "task-prolog", env=told).stdout, "the store's disk fails")
    os.remove(sh.directory / "bin/ckpt")
    make_run(sh, 1)
    check(script(sh, "task-prolog", env=told).stdout == "export CKPT_CAN_RESUME=1\n", "there is one")
    check(script(sh, "task-prolog", env={"CKPT_RUN": "other"}).stdout == "export CKPT_CAN_RESUME=0\n", "there is none")
    check(script(sh, "task-prolog").stdout == "", "nobody asked")
    script(sh, "epilog", env={"CKPT_TEXTFILE": str(sh.directory / "none")})
    script(sh, "epilog", env={"CKPT_TEXTFILE": str(sh.directory)})
    check("ckpt_checkpoints" in (sh.directory / "ckpt.prom").read_text(), "no metrics")


def case_the_prometheus_file_is_what_its_format_asks_for(sh):
    make_run(sh, 1)
    odd = os.fsencode(sh.directory / "runs") + b"/a\"b\\c\nd\xff"
    os.makedirs(odd)
    os.rename(sh.directory / "runs/demo/step-000000010.g1", odd + b"/step-000000010.g1")
    make_run(sh, 1)
    file = sh.directory / "ckpt.prom"
    sh.run("status", "--store", "runs", "--prom", "-", out="^ckpt_checkpoints", not_out="^RUN")
    check(not (sh.directory / "-").exists(), "a file of that name")
    sh.run("status", "--store", "runs", "--prom", file)
    before, old = file.stat().st_ino, file.read_text(encoding="utf-8")
    held = open(file, encoding="utf-8")
    sh.run("status", "--store", "runs", "--prom", file)
    text = file.read_text(encoding="utf-8")
    check(file.stat().st_ino != before and held.read() == old, "written in place: a scrape could see half of it")
    check([name for name in os.listdir(sh.directory) if name.startswith("ckpt.prom")] == ["ckpt.prom"], "left over")
    check(text.endswith("\n"), "the last line has no end")
    family, seen = None, set()
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("# HELP "):
            family = line.split()[2]
            check(family not in seen and lines[i + 1] == f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}", f"{line}: no TYPE, or told twice")
            seen.add(family)
        elif not line.startswith("# TYPE "):
            sample = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{run="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)', line)
            check(sample and sample[1] == family, f"{line!r} is not a sample of {family}")
            float(sample[4])
    check(len(set(lines)) == len(lines) and r'run="a\"b\\c\nd%FF"' in text, text)


def case_units_of_systemd_are_accepted(sh):
    if shutil.which("systemd-analyze") is None:
        raise Skipped("no systemd-analyze")
    units = sh.directory / "units"
    shutil.copytree(packaging(sh) / "systemd", units)
    service = units / "ckpt-prune@.service"
    service.write_text(service.read_text().replace("ExecStart=ckpt ", f"ExecStart={sh.program} "))
    run = subprocess.run(["systemd-analyze", "verify", "--man=no", units / "ckpt-prune@.service", units / "ckpt-prune@.timer"],
                         capture_output=True, text=True, timeout=60)
    wrong = [line for line in run.stderr.splitlines() if "ckpt-prune" in line]
    check(not wrong, "\n".join(wrong))


def case_every_verb_has_its_completions_and_its_page(sh):
    scripts = {shell: sh.run("completion", shell).out for shell in ("bash", "zsh", "fish")}
    names = re.search(r"case \$word in (\S+)\) verb=", scripts["bash"])[1].split("|")
    check({"convert", "prune", "next-save", "status", "plan"} <= set(names), str(names))
    paged = {"ckpt"}
    common = {f.strip("-") for f in sh.run("help", "version").out.split() if f.startswith("--")}
    for verb in names:
        text = sh.run("help", verb).out
        flags = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)", text, re.M))
        line = re.search(rf"^    {verb}\) flags='([^']*)'", scripts["bash"], re.M)[1].split()
        check({f"--{f}" for f in flags} <= set(line), f"bash: {verb}: {flags} in {line}")
        zsh = re.search(rf"^    {verb}\) shift.*?;;$", scripts["zsh"], re.M | re.S)[0]
        fish = "".join(l for l in scripts["fish"].splitlines(True) if verb in l or "__fish_seen_subcommand_from" not in l)
        for flag in flags:
            check(f"--{flag}[" in zsh, f"zsh: {verb} --{flag}")
            check(re.search(rf"-l {flag}\b", fish), f"fish: {verb} --{flag}")
        own = flags - common
        if own or verb in ("convert", "export", "verify", "inspect", "ls"):
            paged.add("ckpt-" + verb)
    listed = re.search(r"set\(pages ([^)]*)\)", (sh.golden / "../../cli/CMakeLists.txt").read_text())[1].split()
    check(set(listed) == paged, f"pages: {sorted(set(listed) ^ paged)}")


def cron_command(line):
    """The command that cron passes to the shell: the first bare % ends the command, and \\% is a %."""
    command = re.split(r"(?<!\\)%", line.split(None, 6)[6])[0]
    return command.replace("\\%", "%")


def case_crontab_lines_run_as_cron_runs_them(sh):
    (sh.directory / "bin").mkdir()
    (sh.directory / "bin/ckpt").symlink_to(sh.program)
    stub(sh, "logger", "exit 0")
    environment = sh.environment({"PATH": f"{sh.directory}/bin:{os.environ['PATH']}", "CKPT_STORE": str(sh.path("runs"))})
    for step in range(1, 4):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "runs", "--run", "r", "--step", str(step))
    sh.path("runs/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 2 }\n')
    for name in ("ckpt-prune", "ckpt-verify"):
        lines = [line for line in (packaging(sh) / "cron" / name).read_text().splitlines() if re.match(r"[0-9*]", line)]
        check(len(lines) == 1, f"{name}: {lines}")
        run = subprocess.run(["sh", "-c", cron_command(lines[0])], env=environment, capture_output=True, text=True, timeout=120)
        check(run.returncode == 0 and run.stdout + run.stderr == "" and not called(sh), f"{name}: {run} {called(sh)}")
    states = [c["state"] for c in sh.document("list", "--store", "runs")["data"]["checkpoints"]]
    check(states == ["verified", "complete"], f"neither pruned nor verified by a share: {states}")


def case_crontab_lines_tell_of_trouble(sh):
    (sh.directory / "bin").mkdir()
    (sh.directory / "bin/ckpt").symlink_to(sh.program)
    stub(sh, "logger", "exit 0")
    environment = sh.environment({"PATH": f"{sh.directory}/bin:{os.environ['PATH']}", "CKPT_STORE": str(sh.path("runs"))})
    for step in range(1, 6):
        sh.run("save", sh.checkpoint("safetensors/single"), "--store", "runs", "--run", "r", "--step", str(step))
    sh.path("runs/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 1 }\n')
    for name, told in (("ckpt-prune", "this policy is new or changed and would delete 4 of 5"), ("ckpt-verify", ": damaged: ")):
        if name == "ckpt-verify":
            for shard in sh.path("runs/r").glob("*/shards/weights/*"):
                shard.write_bytes(b"x" * shard.stat().st_size)
        line, = [line for line in (packaging(sh) / "cron" / name).read_text().splitlines() if re.match(r"[0-9*]", line)]
        run = subprocess.run(["sh", "-c", cron_command(line)], env=environment, capture_output=True, text=True, timeout=120)
        check(run.stdout == "" and told in run.stderr, f"{name}: nothing to mail: {run}")
        check(name.split("-")[1] in called(sh), f"{name}: nothing in syslog: {called(sh)}")
        os.remove(sh.directory / "called")


def case_alerts_and_the_dashboard_use_metrics_that_there_are(sh):
    make_run(sh, 1)
    sh.run("verify", "--all", "--store", "runs")
    sh.run("prune", "--store", "runs", "--keep-last", "1", "--apply", "--purge-early-below", "0")
    sh.run("status", "--store", "runs", "--prom", "ckpt.prom")
    known = set(re.findall(r"^# TYPE (\S+)", sh.path("ckpt.prom").read_text(), re.M))
    alerts = (packaging(sh) / "prometheus/ckpt-alerts.yml").read_text()
    dashboard = json.loads((packaging(sh) / "prometheus/grafana-dashboard.json").read_text())
    queries = [line for line in alerts.splitlines() if line.strip().startswith("expr:")]
    queries += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = set(re.findall(r"\bckpt_\w+", " ".join(queries)))
    check(len(used) >= 15 and not used - known, f"not there: {used - known}")
    check({"ckpt_last_prune_timestamp_seconds", "ckpt_last_verify_timestamp_seconds", "ckpt_last_save_timestamp_seconds"} <= known, str(known))
    check(not [name for name in known if name.endswith("_seconds") and not name.endswith("_timestamp_seconds")], str(known))
    check(len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]), "two panels with one id")
    if shutil.which("promtool"):
        run = subprocess.run(["promtool", "check", "rules", packaging(sh) / "prometheus/ckpt-alerts.yml"], capture_output=True, text=True)
        check(run.returncode == 0, run.stdout + run.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
