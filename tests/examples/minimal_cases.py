"""examples/minimal.cpp, which README.md shows: stopped, and resumed on another number of ranks."""
import array
import subprocess

from runner import check, main


def case_what_three_ranks_save_two_resume(sh):
    for ranks, steps in ((3, 100), (2, 300), (2, 300)):
        run = subprocess.run([sh.mpirun, "--oversubscribe", "-n", str(ranks), f"{sh.examples}/minimal", "run", str(steps)],
                             cwd=sh.directory, env=sh.environment(sh.mpi_environment), stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=180)
        check(run.returncode == 0, run.stdout + run.stderr)
    saved = sorted(path.name for path in sh.path("run").glob("step-*"))
    check(saved == ["step-000000100.g1", "step-000000200.g2", "step-000000300.g3"], str(saved))
    sh.run("load", f"run/{saved[-1]}", "w.npy", "--only", "w")
    values = array.array("f", sh.path("w.npy").read_bytes()[-1000 * 64 * 4:])
    check(set(values) == {300.0}, f"not 300 in every element: {set(values)}")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
