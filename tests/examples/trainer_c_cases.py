"""examples/trainer.c: killed, and resumed on other numbers of ranks, with the losses of an undisturbed run."""
import re
import subprocess

from full_disk import run_on_small_disk
from runner import check, main


def train(sh, ranks, *words):
    # Without a delay mpirun kills the remaining ranks at once; else it takes seconds.
    environment = sh.environment({**sh.mpi_environment, "OMPI_MCA_odls_base_sigkill_timeout": "0"})
    run = subprocess.run([sh.mpirun, "--oversubscribe", "-n", str(ranks), f"{sh.examples}/trainer_c", *map(str, words)],
                         cwd=sh.directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
    return run, {int(line.split()[1]): line for line in run.stdout.splitlines() if line.startswith("step ")}


def case_killed_and_resumed_on_other_numbers_of_ranks_loses_no_bit(sh):
    _, undisturbed = train(sh, 1, "undisturbed", 40, 0)
    check(len({line.split()[3] for line in undisturbed.values()}) == 40, "losses that do not change")
    last = 0
    for ranks in (2, 3, 1, 4):
        run, losses = train(sh, ranks, "run", 40, 2, last + 8)
        check(run.returncode != 0, "not killed", run.stderr)
        began = int(re.search(r"^trainer_c: begins after step (\d+)$", run.stderr, re.M)[1])
        # A save every second step, but none at the one of the kill; before each the one before it is durable.
        check(began in ((last - 4, last - 2) if last else (0,)), f"began after {began}, killed at {last}", run.stderr)
        check(set(losses) >= set(range(began + 1, last + 8)), "not all steps told", run.stdout)
        check(all(line == undisturbed[step] for step, line in losses.items()), "another loss", run.stdout)
        last += 8
    run, losses = train(sh, 2, "run", 40, 2)
    check(run.returncode == 0 and losses[40] == undisturbed[40], "another end", run.stderr)
    check("saved 'step-000000040." in run.stderr, "not saved at the end", run.stderr)


def case_a_full_disk_ends_in_an_error_on_any_number_of_ranks(sh):
    for ranks in (1, 3):
        command = [f"{sh.examples}/trainer_c", "run", "12", "5"]
        run = run_on_small_disk(sh, [sh.mpirun, "--oversubscribe", "-n", str(ranks), *command], 8)
        if run is None:
            return
        check(run.returncode != 0, "a save that failed, and nobody is told", run.stdout + run.stderr)
        check("space" in run.stderr, "no reason", run.stderr)


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
