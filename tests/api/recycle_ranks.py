"""A job under MPI saves into retired files; and one of its ranks is broken meanwhile. Runs the cases of break_ranks.py,
and checks which rank got which file. On ext4 and XFS only: in the working directory, else in /tmp.

    python3 recycle_ranks.py --program save_ranks --mpirun mpirun --ckpt CKPT --case kill [--every N] [--first N]
"""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import break_ranks
from break_ranks import RANKS, SKIPPED, case_kill, case_no_space_on_one_rank, check
from retired import label, labels, shards, suited

GONE, KEPT = 1, (2, 3)
POLICY = '[trash]\nrecycle = 1\npurge_early_when_free_below = "0%"\n[[rule]]\nruns = "*"\nkeep = { last = 1, steps = [2, 3] }\n'


class Job(break_ranks.Job):
    """A store whose first step is retired, with its files labelled, as the newest save begins."""
    steps = 3

    def __init__(self, options, directory):
        super().__init__(options, directory)
        self.store = pathlib.Path(directory) / "store"
        self.run, self.made = self.store / "run", pathlib.Path(directory) / "made"
        (self.store / ".ckpt").mkdir(parents=True)
        self.save_all()
        (self.store / "ckpt.toml").write_text(POLICY)
        self.old = shards(self.live(GONE))
        self.kept = {step: self.tree(step) for step in KEPT}
        self.store.rename(self.made)

    def live(self, step):
        return self.run / f"step-{step:09}.g{step}"

    def tree(self, step):
        """All but its marks: a load leaves one."""
        place = self.live(step)
        files = {p.relative_to(place).as_posix(): p for p in place.rglob("*") if p.is_file()}
        return {name: p.read_bytes() for name, p in files.items() if not name.startswith("marks/")}

    def ckpt(self, *words):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}
        environment["ASAN_OPTIONS"] = "detect_leaks=0"
        return subprocess.run([self.options.ckpt, *map(str, words), "--no-mpi"], text=True, capture_output=True, timeout=120,
                              env=environment)

    def fresh(self):
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(self.made, self.store)
        pruned = self.ckpt("prune", "--store", self.store, "--apply", "-y")
        check(pruned.returncode == 0 and sorted(self.waiting()) == sorted(self.old.values()), "nothing is retired", pruned)

    def waiting(self):
        return labels(self.store / ".ckpt/recycle")

    def committed(self):
        """Labels of files in checkpoints."""
        return [each for place in self.run.iterdir() if ".partial-" not in place.name for each in labels(place) if each]

    def look(self, where, *runs):
        for step in KEPT:
            check(self.tree(step) == self.kept[step], f"{where}: step {step}, which is kept, is not what it was", *runs)
        check(not self.live(GONE).exists(), f"{where}: step {GONE} is back", *runs)
        trash = self.store / ".ckpt/trash/run"
        check([p.name for p in trash.iterdir()] == [self.live(GONE).name + ".json"], f"{where}: the trash", *runs)
        taken = self.committed()
        check(len(taken) == len(set(taken)), f"{where}: two checkpoints hold one file", *runs)
        check(not set(taken) & set(self.waiting()), f"{where}: a committed file may be overwritten", *runs)
        for place in sorted(self.run.glob("step-*")):
            if ".partial-" not in place.name:
                verified = self.ckpt("verify", place)
                check(verified.returncode == 0, f"{where}: {place.name} does not verify", *runs, verified)


def case_take(job, _):
    """A job with as many ranks takes all files, each rank those of its size; jobs with fewer or more ranks take what
    fits, and no file twice."""
    for ranks, io in ((RANKS, "threads"), (RANKS, "uring"), (2, "threads"), (4, "threads")):
        job.fresh()
        run = job.start("save", io, 4, 4, ranks=ranks)
        check([run.told.get(rank) for rank in range(ranks)] == [["step 4: saved"]] * ranks, "not saved", run)
        job.look(f"{ranks} ranks", run)
        new = job.live(4)
        inside = {path.relative_to(new).as_posix(): label(path) for path in new.rglob("*") if path.is_file()}
        taken = {each for each in inside.values() if each}
        check(taken and taken <= set(job.old.values()), f"{ranks} ranks: {inside}", run)
        if ranks == RANKS:
            check(taken == set(job.old.values()) and not job.waiting(), f"{inside}, not {job.old}", run)
            weights = {name: each for name, each in job.old.items() if name.startswith("shards/weights/")}
            check(weights.items() <= inside.items(), f"{inside}: a rank got another's, not {weights}", run)
        check(job.loaded(2, run) == 4, "not what is found", run)


def add_words(parser):
    parser.add_argument("--ckpt", required=True)


if __name__ == "__main__":
    places = [place for place in (os.getcwd(), "/tmp") if suited(place)]
    sys.exit(break_ranks.main(Job, globals(), add_words, places) if places else SKIPPED)
