"""Breaks one rank of a job under MPI while it saves, and checks what the other ranks report and what remains on disk.

    python3 break_ranks.py --program save_ranks --mpirun mpirun --case kill [--every N] [--first N]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RANKS = 3
SKIPPED = 77
PATIENCE = 3  # seconds, of survivors


class Job:
    """A run that holds `steps` when a case begins."""
    steps = 1

    def __init__(self, options, directory):
        self.options, self.run = options, pathlib.Path(directory) / "run"

    def start(self, verb, io, *words, ranks=RANKS, before=()):
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_odls_base_sigkill_timeout": "0",
                       "ASAN_OPTIONS": "detect_leaks=0"}
        run = subprocess.run([*before, self.options.mpirun, "--oversubscribe", "--enable-recovery", "-n", str(ranks),
                              self.options.program, verb, str(self.run), io, *map(str, words)],
                             text=True, capture_output=True, timeout=250, env=environment, stdin=subprocess.DEVNULL)
        run.told = {}  # rank: its lines
        for rank, text in re.findall(r"^rank (\d+): (.*)$", run.stdout, re.M):
            run.told.setdefault(int(rank), []).append(text)
        return run

    def save_all(self):
        first = self.start("save", "auto", 1, self.steps)
        saved = [f"step {step}: saved" for step in range(1, self.steps + 1)]
        check(all(first.told.get(rank) == saved for rank in range(RANKS)), "the first save", first)

    def fresh(self):
        shutil.rmtree(self.run, ignore_errors=True)
        self.save_all()

    def look(self, where, *runs):
        """Whether the earlier checkpoint is as it should be."""

    def loaded(self, ranks, run):
        """The step that all ranks of another job find."""
        load = self.start("load", "auto", ranks=ranks)
        steps = {text for lines in load.told.values() for text in lines}
        check(load.returncode == 0 and len(steps) == 1 and len(load.told) == ranks, "not one step for all", run, load)
        return int(steps.pop().split()[-1])

    def goes_on(self, step, run):
        after = self.start("save", "auto", step, step, ranks=2)
        check(all(after.told.get(rank) == [f"step {step}: saved"] for rank in range(2)), "the next save", run, after)
        left = [path.name for path in self.run.iterdir() if ".partial-" in path.name]
        check(not left, f"{left} stays", run, after)
        self.look(f"after step {step}", run, after)


def check(condition, text, *runs):
    if not condition:
        for run in runs:
            print(run.args, run.returncode, run.stdout, run.stderr, sep="\n  ")
        sys.exit(f"FAILED: {text}")


def case_kill(job, options):
    """Survivors get peer_failed, whichever rank failed; the previous checkpoint stays, or the new one is complete."""
    kills = 0
    engines = ("threads", "uring")
    for rank in options.victims:
        number = options.first
        over = False
        while not over:
            # A sample takes the engines in turn.
            for io in engines if options.every == 1 else engines[kills % 2:][:1]:
                job.fresh()
                step = job.steps + 1
                run = job.start("save", io, step, step, "--rank", rank, "--do", "kill", "--at", number, "--patience", PATIENCE)
                over = rank in run.told
                if over:  # the save had already ended
                    check(set(run.told) == set(range(RANKS)), "a rank is silent", run)
                    break
                kills += 1
                look_after_a_kill(job, rank, f"{io}, operation {number}", run)
            number += options.every
        print(f"rank {rank}: killed at every {options.every}. of {number} operations")
    check(kills >= 25 * len(options.victims) // options.every, f"only {kills} kills")


def look_after_a_kill(job, rank, where, run):
    committed = False
    new = job.steps + 1
    for other in set(range(RANKS)) - {rank}:
        lines = run.told.get(other, [])
        check(len(lines) == 2 and lines[1].startswith("next call: 16 "), f"{where}: rank {other}", run)
        check(lines[0] == f"step {new}: saved" or lines[0].startswith(f"step {new}: 16 "), where, run)
        committed = committed or lines[0] == f"step {new}: saved"
    job.look(where, run)
    step = job.loaded(2, run)
    check(step == new or (step == job.steps and not committed), f"{where}: step {step} is found", run)
    job.goes_on(new + 1, run)


def case_no_space_on_one_rank(job, options):
    for rank in options.victims:
        number = options.first
        while True:
            job.fresh()
            step = job.steps + 1
            run = job.start("save", "auto", step, step + 1, "--rank", rank, "--do", "fill", "--at", number)
            check(set(run.told) == set(range(RANKS)), "a rank is silent", run)
            first = [run.told[each][0] for each in range(RANKS)]
            check(len(set(text.split()[2] for text in first)) == 1, "no agreement", run)
            check(all(run.told[each][1] == f"step {step + 1}: saved" for each in range(RANKS)), "training does not go on", run)
            job.look(f"full from operation {number} on", run)
            if first[0] == f"step {step}: saved":
                break
            # After the rename only the directory's own sync is left to fail.
            told = first[rank].startswith(f"step {step}: 14 ") or "visible, but possibly not durable" in first[rank]
            check(told, f"operation {number}", run)
            for other in set(range(RANKS)) - {rank}:
                check(f"rank {rank}" in first[other] and "injected failure" in first[other], "rank and cause", run)
            check(job.loaded(2, run) == step + 1, "the next save is not the newest", run)
            number += options.every
        check(number > 5, "nothing was full")


def case_slow_rank(job, _):
    job.fresh()
    run = job.start("save", "auto", 2, 3, "--rank", 1, "--do", "slow", "--patience", 60)
    check(all(run.told.get(rank) == ["step 2: saved", "step 3: saved"] for rank in range(RANKS)), "not saved", run)
    check(job.loaded(2, run) == 3, "not found", run)


def case_no_rings(job, _):
    """If containers forbid io_uring, threads take over; an explicit request fails with the reason, on all ranks."""
    job.fresh()
    run = job.start("save", "auto", 2, 2, "--forbid-rings")
    if run.returncode == SKIPPED:
        print("skipped: system calls cannot be forbidden here")
        return SKIPPED
    check(all(run.told.get(rank) == ["step 2: saved"] for rank in range(RANKS)), "not saved", run)
    run = job.start("save", "uring", 3, 3, "--forbid-rings")
    check(len(run.told) == RANKS and all("io_uring" in lines[0] for lines in run.told.values()), "not told", run)
    check(job.loaded(2, run) == 2, "not found", run)


def case_no_locked_memory(job, _):
    job.fresh()
    before = ["setpriv", "--bounding-set", "-ipc_lock", "bash", "-c", 'ulimit -l 0 && [ "$(ulimit -l)" = 0 ] && exec "$@"', "x"]
    if os.geteuid() != 0:
        before = before[3:]
    for step, io in enumerate(("auto", "threads"), 2):
        run = job.start("save", io, step, step, before=before)
        check(all(run.told.get(rank) == [f"step {step}: saved"] for rank in range(RANKS)), f"{io}: not saved", run)
    run = job.start("save", "uring", 4, 4, before=before)  # some kernels account rings as locked memory
    saved = all(run.told.get(rank) == ["step 4: saved"] for rank in range(RANKS))
    told = all(run.told.get(rank, [""])[0].startswith("open: 12 io_uring: ") for rank in range(RANKS))
    check(saved or told, "neither saved nor told", run)
    check(job.loaded(2, run) == (4 if saved else 3), "not found", run)


def case_a_directory_that_cannot_be_written(job, options):
    """Another user's directory, because root may write everywhere."""
    job.fresh()
    before = ()
    if os.geteuid() == 0:
        before = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        place = job.run.parent
        place.chmod(0o755)
        program = pathlib.Path(options.program)
        for file in (program, program.parent / "libckpt_mpi.so", program.parent.parent / "lib" / "libckpt_mpi.so"):
            if file.exists():  # the build may be in a directory that only root can read
                shutil.copy(file, place)
        options.program = str(place / program.name)
        probe = subprocess.run([*before, options.program], capture_output=True, text=True)
        if probe.returncode != 2:
            print(f"skipped: no other user can run the program: {probe.stderr}")
            return SKIPPED
    else:
        job.run.chmod(0o555)
    run = job.start("save", "auto", 2, 2, before=before)
    check(len(run.told) == RANKS, "a rank is silent", run)
    for rank, lines in run.told.items():
        check("Permission denied" in lines[0] and not lines[0].endswith("saved"), f"rank {rank}", run)
    job.run.chmod(0o755)
    check(job.loaded(2, run) == 1, "not found", run)


def main(job=Job, cases=globals(), add_words=lambda parser: None, places=("/dev/shm", None)):
    """Runs one of `cases` with a `job`, made in the first of `places` that exists (None: the default directory for
    temporary files)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--every", type=int, default=1, help="only every so many operations")
    parser.add_argument("--first", type=int, default=0, help="the operation to begin with")
    parser.add_argument("--victims", type=int, nargs="+", default=[0, RANKS - 1], help="the ranks that are broken")
    add_words(parser)
    options = parser.parse_args()
    directory = tempfile.mkdtemp(dir=next(place for place in places if place is None or os.path.isdir(place)))
    try:
        return cases["case_" + options.case](job(options, directory), options) or 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
