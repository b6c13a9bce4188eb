"""cmake --install: the installed files, and that the installed program finds its parts."""
import os
import subprocess

from runner import check, main


def case_the_installed_program_finds_its_plug_in_and_its_helper(sh):
    prefix = sh.path("prefix")
    run = subprocess.run(["cmake", "--install", sh.build, "--prefix", prefix], capture_output=True, text=True)
    check(run.returncode == 0, run.stdout + run.stderr)
    files = {os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names}
    wanted = ["bin/ckpt", "share/bash-completion/completions/ckpt", "share/zsh/vendor-completions/_ckpt",
              "share/fish/vendor_completions.d/ckpt.fish", "share/ckpt/schemas/convert.schema.json",
              "include/ckpt/ckpt.h", "include/ckpt/ckpt.hpp", "include/ckpt/comm.h", "include/ckpt/mpi.hpp"]
    if sh.pages:
        wanted += [f"share/man/man1/{page}.1" for page in ("ckpt", "ckpt-convert", "ckpt-doctor", "ckpt-inspect", "ckpt-list", "ckpt-export",
                                                           "ckpt-ls", "ckpt-mark", "ckpt-materialize", "ckpt-next-save", "ckpt-pin", "ckpt-plan", "ckpt-prune", "ckpt-repair", "ckpt-rm", "ckpt-save", "ckpt-status", "ckpt-undelete",
                                                           "ckpt-unpin", "ckpt-verify", "ckpt-why")]
    missing = [name for name in wanted if name not in files]
    check(not missing, f"not installed: {missing}\n{sorted(files)}")
    strays = [name for name in files if not name.startswith(("bin/", "include/ckpt/", "lib", "share/"))]
    check(not strays, f"strays: {strays}")
    sh.program = str(prefix / "bin" / "ckpt")
    sh.run("convert", sh.checkpoint("safetensors/single"), "one.safetensors", out="^done ")
    if any(name.endswith("/ckpt-h5") for name in files):
        sh.run("convert", sh.checkpoint("safetensors/single"), "one.h5", out="^done ")
    if any(name.endswith("libckpt_mpi.so") for name in files):
        sh.run("convert", sh.checkpoint("safetensors/single"), "two.safetensors", out="^done ", env=sh.mpi_environment,
               launcher=[sh.mpirun, "--oversubscribe", "-n", "2"])
        check(sh.path("one.safetensors").read_bytes() == sh.path("two.safetensors").read_bytes(), "other bytes")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
