"""Runs README.md and docs/*.md as written, from top to bottom. A block ```console holds commands ("$ ...", continued after a backslash) and their
output: its lines must be printed in that order, "..." is any number of lines, or any rest of a line, and numbers, sizes and times are not compared. A
command that ends in "# exit N" ends with that code; "$ export ..." holds for the commands after it. A block with the name of a file after its
language (```cpp train.cpp) is that file, or its next lines if an earlier block was its beginning."""
import os
import pathlib
import re
import shutil
import subprocess

from runner import Skipped, check, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[0-9a-f]{8,}|\d[\d.,:TZ/-]*( ?(B|KiB|MiB|GiB|ms|s|min|h)\b)?(/s)?")


def blocks(page):
    """(file, text) of each block of a file, and ("", text) of each console block, in the order of the page."""
    for language, name, text in re.findall(r"^```(\w+) ?([^\n`]*)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S):
        if name or language == "console":
            yield name, text


def commands(block):
    """(command, exit code, expected lines), of all commands of a console block."""
    command, expected = None, []
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        if line.startswith("$ "):
            if command:
                yield (*command, expected)
            code = re.search(r"\s+# exit (\d+)$", line)
            command, expected = (line[2:code.start() if code else None], int(code[1]) if code else 0), []
        elif line.strip() not in ("", "..."):
            expected.append(line)
    if command:
        yield (*command, expected)


def plain(line):
    return " ".join(NUMBER.sub("#", line).split())


def walk(sh, page, environment=()):
    """Runs the page from top to bottom in the case's directory."""
    tools = sh.path(".tools")
    tools.mkdir()
    (tools / "ckpt").symlink_to(sh.program)
    environment = sh.environment({"PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "100", **sh.mpi_environment, **dict(environment)})
    ran = 0
    for name, block in blocks(page):
        if name:
            with open(sh.path(name), "a", encoding="utf-8") as file:
                file.write(block)
            continue
        for command, code, expected in commands(block):
            keeps = command.startswith("export ")
            run = subprocess.run(["bash", "-c", command + ("; env -0" if keeps else "")], cwd=sh.directory, env=environment, timeout=300,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            shown = f"$ {command}\n{run.stdout}"
            check(run.returncode == code, f"{page}: exit {run.returncode}, not {code}", shown)
            if keeps:
                environment = dict(line.split("=", 1) for line in run.stdout.split("\0") if line)
            printed = iter([plain(line) for line in run.stdout.splitlines()])
            for line in expected:
                begin, cut, _ = line.partition(" ...")
                check(any(got == plain(line) or (cut and got.startswith(plain(begin))) for got in printed), f"{page}: not printed, or not in this order: {line}", shown)
            ran += 1
    check(ran >= 5, f"{page}: {ran} commands")


def case_the_first_page_works_as_written(sh):
    sh.path("examples").symlink_to(ROOT / "examples")
    walk(sh, "README.md")


def deepspeed_run(sh):
    shutil.copytree(sh.checkpoint("deepspeed/zero2_bf16_dp4"), sh.path("runs/exp7"))


def case_the_researchers_page_works_as_written(sh):
    deepspeed_run(sh)
    shutil.copytree(sh.checkpoint("folders/hf_trainer"), sh.path("runs/trainer/checkpoint-4"))
    walk(sh, "docs/researcher.md")


def case_the_operators_page_works_as_written(sh):
    deepspeed_run(sh)
    walk(sh, "docs/operator.md")


def case_the_page_on_retention_works_as_written(sh):
    deepspeed_run(sh)
    for run, steps in (("llama8b", range(500, 3000, 500)), ("scratch/a", range(100, 400, 100))):
        for step in steps:
            sh.run("save", "runs/exp7", "--store", "store", "--run", run, "--step", str(step), "--metric", f"loss={9000 - step}")
    sh.path("store/ckpt.toml").write_text(
        '[[rule]]\nruns = "llama*"\nkeep = { last = 2, every_steps = 1000 }\n[[rule]]\nruns = "scratch/*"\nkeep = { last = 3 }\n')
    walk(sh, "docs/retention.md")


def case_the_trainers_page_works_as_written(sh):
    if not sh.build or not sh.mpirun:
        raise Skipped("programs cannot be linked to a library with sanitizers" if not sh.build else "built without MPI")
    sh.path("build").mkdir()
    sh.path("build/release").symlink_to(sh.build)
    walk(sh, "docs/trainer.md", {"HOME": str(sh.directory), "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_odls_base_sigkill_timeout": "0"})


if __name__ == "__main__":
    main({k: v for k, v in globals().items() if k.startswith("case_")})
