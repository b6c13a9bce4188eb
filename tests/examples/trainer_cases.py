"""examples/trainer.cpp: killed in every way, resumed on any mesh, with the losses of an undisturbed run."""
import os
import re
import signal
import subprocess
import time

from full_disk import run_on_small_disk
from runner import check, main

SMALL = "--width 40"  # 3 does not divide its parameters: parts of unequal length
LARGE = "--width 512 --layers 2"
SLOW = "--width 256 --layers 2"
STEPS = {SMALL: 400, LARGE: 4, SLOW: 40}  # that are compared
references = {}


def start(sh, ranks, words, size=SMALL, options=()):
    command = [sh.mpirun, "--oversubscribe", *options, "-n", str(ranks), f"{sh.examples}/trainer", "--dir", "run"]
    # Without a delay mpirun kills the remaining ranks at once; else it takes seconds.
    environment = sh.environment({**sh.mpi_environment, "OMPI_MCA_odls_base_sigkill_timeout": "0"})
    return subprocess.Popen([*command, *size.split(), *words.split()], cwd=sh.directory, text=True, env=environment,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Run:
    """A finished run of the trainer: its exit code, {step: line}, its first step, and its other output."""

    def __init__(self, sh, process, size=SMALL):
        try:
            out, self.err = process.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            process.kill()  # and with it the ranks: mpirun's are bound to it
            raise
        self.code = process.returncode
        self.losses = {int(line.split()[1]): line for line in out.splitlines() if line.startswith("step ")}
        began = re.search(r"^trainer: begins after step (\d+)$", self.err, re.M)
        self.began = int(began[1]) if began else None
        for step, line in self.losses.items():
            check(line == reference(sh, size)[step], f"another loss: {line}, not {reference(sh, size)[step]}", self)

    def __str__(self):
        return f"[exit {self.code}] {sorted(self.losses)}\n{self.err}"


def reference(sh, size=SMALL):
    """The lines of one undisturbed rank, with no checkpoint read or written."""
    if size not in references:
        words = ["--dir", "undisturbed", *size.split(), "--steps", str(STEPS[size]), "--every", "0"]
        run = subprocess.run([f"{sh.examples}/trainer", *words], cwd=sh.directory, env=sh.environment(sh.mpi_environment),
                             capture_output=True, text=True, timeout=180)
        check(run.returncode == 0, run.stderr)
        references[size] = {int(line.split()[1]): line for line in run.stdout.splitlines()}
        losses = {line.split()[3] for line in references[size].values()}
        check(len(losses) == STEPS[size], "losses that do not change")
    return references[size]


def train(sh, ranks, words, code=0, began=None, size=SMALL):
    """Runs to the end. `code`: None for any but 0. `began`: the step that it must continue after."""
    run = Run(sh, start(sh, ranks, words, size), size)
    check(run.code == code if code is not None else run.code != 0, f"exit {run.code}", run)
    check(began is None or run.began == began, f"began after {run.began}, not {began}", run)
    return run


def checkpoints(sh):
    return sorted(name for name in os.listdir(sh.path("run")) if name.startswith("step-") and ".partial-" not in name)


def step_of(checkpoint):
    return int(checkpoint[5:14])


MESHES = [(1, ""), (2, "--dp 2 --zero 1"), (2, "--tp 2"), (3, "--dp 3 --zero 2"), (4, "--dp 2 --tp 2 --zero 3"),
          (2, "--pp 2"), (4, "--tp 2 --pp 2"), (4, "--dp 2 --pp 2 --zero 2"), (3, "--dp 3 --zero 3")]


def case_killed_on_one_mesh_and_resumed_on_the_next_loses_no_bit(sh):
    """Each run resumes what the one before saved, saves after its second step and dies after, in or before its fourth."""
    step = 0
    for number, (ranks, mesh) in enumerate(MESHES):
        where = ("step", "save", "commit")[number % 3]
        run = train(sh, ranks, f"{mesh} --every 2 --staging 0 --steps {step + 9} --die-at {step + 4} --die-in {where} "
                               f"--die-rank {number % ranks}", code=None, began=step)
        check(set(run.losses) >= set(range(step + 1, step + 4)), "not all steps told", run)
        step += 4 if where == "commit" else 2  # without staging memory commit returns when it is durable
        check(step_of(checkpoints(sh)[-1]) == step, f"{checkpoints(sh)}, not step {step}", run)
        sh.run("verify", sh.path("run") / checkpoints(sh)[-1])
    train(sh, 1, f"--steps {step + 2}", began=step)


def case_saved_in_tiers_it_resumes_from_either(sh):
    killed = train(sh, 2, "--dp 2 --zero 1 --local nvme/run --staging 0 --every 2 --steps 9 --die-at 5 --die-in step",
                   code=None, began=0)
    check("step-000000004.g2" in os.listdir(sh.path("nvme/run")), "not durable in the local directory", killed)
    train(sh, 3, "--dp 3 --zero 2 --local nvme/run --every 2 --steps 8", began=4)
    check([step_of(name) for name in checkpoints(sh)][-2:] == [6, 8], f"not drained: {checkpoints(sh)}")
    newest = checkpoints(sh)[-1]
    sh.run("verify", sh.path("run") / newest, "--against", sh.path("nvme/run") / newest)
    local = sorted(os.listdir(sh.path("nvme/run")))
    check(local[-2:] == checkpoints(sh)[-2:], f"not the newest two: {local}")
    check(not set(local[:-2]) & set(checkpoints(sh)), f"more than two drained copies are kept: {local}")
    os.rename(sh.path("nvme"), sh.path("lost"))
    train(sh, 2, "--tp 2 --local nvme/run --every 2 --steps 10", began=8)


def case_what_any_mesh_saves_is_the_same_model(sh):
    for number, (ranks, mesh) in enumerate(MESHES):
        train(sh, ranks, f"{mesh} --every 3 --steps 3")
        os.rename(sh.path("run"), sh.path(f"run{number}"))
        if number:
            sh.run("verify", f"run{number}/step-000000003.g1", "--against", "run0/step-000000003.g1")


def case_from_1_mib_up_replicas_write_a_part_each(sh):
    train(sh, 3, "--dp 3 --every 2 --steps 2", size=LARGE)
    shards = sh.path("run") / checkpoints(sh)[-1] / "shards" / "weights"
    sizes = [os.path.getsize(shards / name) for name in sorted(os.listdir(shards))]
    check(len(sizes) == 3 and max(sizes) - min(sizes) < 16384, f"unequal shares: {sizes}")
    train(sh, 2, "--tp 2 --every 2 --steps 4", began=2, size=LARGE)


def case_kill_9_of_any_rank_while_saving_in_the_background(sh):
    """The kill comes from outside, at any moment; checkpoints that are durable by then are complete."""
    step = 0
    for victim in (0, 2):
        process = start(sh, 3, "--dp 3 --zero 1 --every 1 --steps 400")
        while not sh.path("run").exists() or not any(step_of(name) > step + 2 for name in checkpoints(sh)):
            check(process.poll() is None, "ended by itself")
            time.sleep(0.01)
        ranks = sorted(pid for pid in descendants(process.pid) if name_of(pid) == "trainer")
        os.kill(ranks[victim], signal.SIGKILL)
        run = Run(sh, process)
        check(run.code != 0, "success without a rank", run)
        step = step_of(checkpoints(sh)[-1])
        train(sh, 2, f"--tp 2 --steps {step + 2} --every 0", began=step)
        check(not any(".partial-" in name for name in os.listdir(sh.path("run"))), "left over", run)


def descendants(launcher):
    below = [launcher]
    for pid in below:
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                below += map(int, file.read().split())
        except OSError:
            pass
    return below


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def case_survivors_of_a_lost_rank_end_within_their_patience(sh):
    """mpirun lets the job continue without the rank; the others' commit returns 16, and they end."""
    began = time.monotonic()
    process = start(sh, 3, "--dp 3 --zero 1 --every 2 --staging 0 --steps 9 --die-at 4 --die-rank 1 --patience 8",
                    options=["--enable-recovery"])
    run = Run(sh, process)
    check(time.monotonic() - began < 120, "more than 120 s", run)
    check(len(re.findall('^trainer: commit: .*"code":16', run.err, re.M)) >= 1, "nobody told", run)
    check(max(run.losses) == 4, "went on without the rank", run)
    train(sh, 2, "--pp 2 --steps 6", began=2)


def flip_a_byte(path):
    with open(path, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def case_a_damaged_newest_checkpoint_falls_back_to_the_one_before(sh):
    train(sh, 4, "--dp 2 --tp 2 --zero 1 --every 3 --steps 6")
    flip_a_byte(sh.path("run") / checkpoints(sh)[-1] / "shards" / "optim" / "00001-00000.safetensors")
    run = train(sh, 2, "--pp 2 --steps 7 --every 7", began=3)
    check(re.search(r"^ckpt: step-000000006.g2: cannot be used, trying the previous one: .*00001-00000", run.err, re.M),
          "the damaged file is not told", run)
    train(sh, 1, "--steps 8 --every 0", began=7)  # what was saved from there on supersedes the damaged one


def case_where_every_checkpoint_is_damaged_training_does_not_begin_anew(sh):
    train(sh, 2, "--dp 2 --every 2 --steps 4")
    for name in checkpoints(sh):
        flip_a_byte(sh.path("run") / name / "shards" / "weights" / "00000-00000.safetensors")
    run = train(sh, 2, "--pp 2 --steps 7", code=15)
    check(run.began is None and not run.losses, "trained", run)
    for name in checkpoints(sh):
        os.truncate(sh.path("run") / name / "manifest.json", 100)
    run = train(sh, 2, "--pp 2 --steps 7", code=15)
    check(run.began is None and not run.losses, "trained", run)


def case_a_signal_saves_and_stops_at_the_same_step_everywhere(sh):
    first = reference(sh, SLOW)[1]  # known before: the signal has to come while the job runs
    process = start(sh, 3, "--dp 3 --every 0 --steps 40", size=SLOW)
    check(process.stdout.readline() == first + "\n", "another first line")
    process.send_signal(signal.SIGUSR1)  # mpirun passes it on
    run = Run(sh, process, SLOW)
    last = max(run.losses, default=1)
    check(run.code == 0, f"exit {run.code}", run)
    check([step_of(name) for name in checkpoints(sh)] == [last], f"{checkpoints(sh)} after step {last}", run)
    check(last < 40, "it was not the signal that ended it", run)
    train(sh, 2, f"--dp 2 --steps {last + 1} --every 0", began=last, size=SLOW)


def case_a_full_disk_ends_in_an_error_on_any_number_of_ranks(sh):
    for ranks in (1, 3):
        command = [f"{sh.examples}/trainer", "--dir", "run", "--dp", str(ranks), *SMALL.split(), "--steps", "7"]
        run = run_on_small_disk(sh, [sh.mpirun, "--oversubscribe", "-n", str(ranks), *command], 16)
        if run is None:
            return
        check(run.returncode != 0, "a save that failed, and nobody is told", run.stdout + run.stderr)
        check('"code":14' in run.stderr, "no reason", run.stderr)


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
