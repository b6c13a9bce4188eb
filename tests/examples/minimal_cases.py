"""examples/minimal.cpp: stopped, and resumed on another number of ranks."""
import array
import subprocess

from full_disk import run_on_small_disk
from runner import check, main


def case_what_three_ranks_save_two_resume(sh):
    for ranks, steps in ((3, 100), (2, 300), (2, 300)):
        run = subprocess.run([sh.mpirun, "--oversubscribe", "-n", str(ranks), f"{sh.examples}/minimal", "run", str(steps)],
                             cwd=sh.directory, env=sh.environment(sh.mpi_environment), stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=180)
        check(run.returncode == 0, run.stdout + run.stderr)
    saved = sorted(path.name for path in sh.path("run").glob("step-*"))
    check(saved == ["step-000000100.g1", "step-000000200.g2", "step-000000300.g3"], str(saved))
    sh.run("export", f"run/{saved[-1]}", "w.npy", "--only", "w")
    values = array.array("f", sh.path("w.npy").read_bytes()[-1000 * 64 * 4:])
    check(set(values) == {300.0}, f"not 300 in every element: {set(values)}")


def case_a_full_disk_ends_in_an_error_on_any_number_of_ranks(sh):
    for ranks in (1, 3):
        command = [f"{sh.examples}/minimal", "run", "100"]
        run = run_on_small_disk(sh, [sh.mpirun, "--oversubscribe", "-n", str(ranks), *command], 100)
        if run is None:
            return
        check(run.returncode != 0, "a save that failed, and nobody is told", run.stdout + run.stderr)
        check('"code":14' in run.stderr, "no reason", run.stderr)


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
