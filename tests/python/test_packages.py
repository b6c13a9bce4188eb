"""./package: the tarball runs from any directory without this machine's libraries, the .deb depends on what it needs alone."""
import os
import re
import subprocess
import tarfile

import pytest

from conftest import ROOT

pytestmark = pytest.mark.skipif(not os.path.exists(ROOT / "build" / "release" / "bin" / "ckpt"), reason="no release build")


def make(kind):
    run = subprocess.run([ROOT / "package", kind], capture_output=True, text=True)
    if kind == "tarball" and not (ROOT / "build" / "glibc-2.31").exists():
        pytest.skip("no glibc 2.31 to link against: " + (run.stdout + run.stderr).strip().splitlines()[-1])
    assert run.returncode == 0, run.stdout + run.stderr
    return ROOT / [line for line in run.stdout.splitlines() if line.startswith("build/package/")][-1]


def test_the_tarball_runs_from_another_directory_with_an_empty_environment(tmp_path):
    archive = make("tarball")
    lowest = re.search(r"-glibc(\d+)\.(\d+)\.tar\.gz$", archive.name)
    assert lowest and (int(lowest[1]), int(lowest[2])) <= (2, 31), archive.name
    with tarfile.open(archive) as files:
        files.extractall(tmp_path)
    root = tmp_path / archive.name[:-len(".tar.gz")]
    for words in (["convert", ROOT / "examples" / "deepspeed-zero3", tmp_path / "m.h5", "--only", "weights"],
                  ["inspect", tmp_path / "m.h5"]):
        run = subprocess.run([root / "bin" / "ckpt", *words], capture_output=True, text=True, env={}, cwd="/")
        assert run.returncode == 0, run.stderr
    for name in ("bin/ckpt", "lib/libckpt.so.1", "libexec/ckpt/ckpt-h5"):
        linked = subprocess.run(["ldd", root / name], capture_output=True, text=True, check=True).stdout
        paths = re.findall(r"=> (\S+)", linked)
        others = [path for path in paths if os.path.realpath(root) not in os.path.realpath(path)
                  and not re.search(r"/lib(c|m|dl|pthread)\.so\.\d$|/ld-linux", path)]
        assert paths and not others, (name, others)
    symbols = subprocess.run(["nm", "-D", "--defined-only", root / "lib" / "libckpt.so.1"], capture_output=True, text=True, check=True).stdout
    assert all(line.split()[-1].startswith(("ckpt_", "CKPT_")) for line in symbols.splitlines()), symbols


def test_the_deb_recommends_hdf5_suggests_mpi_and_has_pages_and_completions():
    make("deb")
    debs = list((ROOT / "build" / "package").glob("ckpt_*.deb"))
    assert len(debs) == 1
    fields = dict(line.split(": ", 1) for line in subprocess.run(
        ["dpkg-deb", "-f", debs[0], "Version", "Depends", "Recommends", "Suggests"], capture_output=True, text=True, check=True).stdout.splitlines())
    assert fields["Version"] == re.search(r"project\(ckpt VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert "libc6" in fields["Depends"] and "mpi" not in fields["Depends"] and "hdf5" not in fields["Depends"]
    assert "libhdf5" in fields["Recommends"] and "libopenmpi" in fields["Suggests"]
    files = subprocess.run(["dpkg-deb", "-c", debs[0]], capture_output=True, text=True, check=True).stdout
    for name in ("bin/ckpt", "lib/libckpt.so.1", "share/man/man1/ckpt.1.gz", "share/bash-completion/completions/ckpt"):
        assert f"./usr/{name}" in files, name
