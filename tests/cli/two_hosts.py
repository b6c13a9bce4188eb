"""Two hosts save into one run and prune its store at the same time. The hosts are simulated: each has its own
namespaces of processes, host name and mounts, and both have the same directory. No saved checkpoint is lost or
incomplete, no generation is used twice, kept checkpoints stay, and the catalog equals the contents of the disk.

    python3 two_hosts.py --ckpt CKPT --golden GOLDEN [--saves N]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from breaking import SKIPPED, check

HOST = """hostname "$1" && mount -t proc proc /proc || exit 77
step=$2 last=$3; shift 3
while [ "$step" -le "$last" ]; do
  "$CKPT" save "$SOURCE" --store store --run r --step "$step" --tag "$(hostname)" -q || exit
  "$CKPT" prune --store store --keep-last 2 --purge-early-below 0 --apply -y --lock-timeout 1s >&2
  case $? in 0|3|11) ;; *) exit 99 ;; esac
  step=$((step + 1))
done"""


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, pathlib.Path(directory)
        self.store = self.directory / "store"

    def environment(self, source="safetensors/single"):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CKPT_")}
        golden = pathlib.Path(self.options.golden).absolute()
        return {**kept, "CKPT": self.options.ckpt, "SOURCE": str(golden / source / "ckpt"), "CKPT_NO_MPI": "1"}

    def run(self, *words):
        return subprocess.run([self.options.ckpt, *words], text=True, capture_output=True, timeout=120, cwd=self.directory,
                              env=self.environment())

    def host(self, name, source, first, last):
        return subprocess.Popen([*unshared(), "sh", "-c", HOST, "sh", name, str(first), str(last)], text=True, cwd=self.directory,
                                env=self.environment(source), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def unshared():
    words = ["unshare", "--pid", "--fork", "--uts", "--mount"]
    return words if os.geteuid() == 0 else [*words, "--map-root-user"]


def why_skipped():
    if shutil.which("unshare") is None or shutil.which("hostname") is None:
        return "skipped: unshare or hostname is missing"
    probe = subprocess.run([*unshared(), "sh", "-c", "hostname probe && mount -t proc proc /proc"], text=True, capture_output=True)
    return "" if probe.returncode == 0 else f"skipped: namespaces are not permitted here: {probe.stderr.strip()}"


def rows(run):
    check(run.returncode == 0, "a list", run)
    return {row["directory"]: row for row in json.loads(run.stdout)["data"]["checkpoints"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--saves", type=int, default=5, help="of each host")
    options = parser.parse_args()
    options.ckpt = os.path.abspath(options.ckpt)
    reason = why_skipped()
    if reason:
        print(reason)
        return SKIPPED
    directory = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        job = Job(options, directory)
        hosts = [job.host("n1", "safetensors/single", 1, options.saves), job.host("n2", "torch/pt_mixed", 101, 100 + options.saves)]
        ended = [host.communicate(timeout=240) for host in hosts]
        for host, (out, err) in zip(hosts, ended):
            check(host.returncode == 0, f"a host ended with {host.returncode}\n{out}\n{err}")
        steps = [int(line.removeprefix("r@")) for out, _ in ended for line in out.split()]
        check(len(steps) == 2 * options.saves, f"{steps}")
        live, trash = job.store / "r", job.store / ".ckpt/trash/r"
        saved = []
        for step in steps:
            places = [path for place in (live, trash) for path in place.glob(f"step-{step:09}.g*") if path.is_dir()]
            check(len(places) == 1, f"{step} is in {places}")
            verified = job.run("verify", places[0])
            check(verified.returncode == 0, f"{places[0]}", verified)
            saved.append(places[0].name)
        generations = sorted(int(re.search(r"\.g(\d+)$", name)[1]) for name in saved)
        check(generations == list(range(1, 2 * options.saves + 1)), f"generations {generations}")
        strays = [name for name in os.listdir(live) if name not in saved]
        check(not strays, f"left over: {strays}")
        steps = sorted(int(name[5:14]) for name in os.listdir(live))
        check(steps[-2:] == [100 + options.saves - 1, 100 + options.saves], f"what the policy keeps is gone: {steps}")
        pruned = job.run("prune", "--store", "store", "--keep-last", "2", "--purge-early-below", "0", "--apply", "-y")
        check(pruned.returncode == 0, "a last prune", pruned)
        listed = rows(job.run("list", "--store", "store", "--json"))
        check(sorted(row["step"] for row in listed.values())[-2:] == steps[-2:], f"{listed}")
        check({row["tags"][0] for row in listed.values()} <= {"n1", "n2"} and sorted(listed) == sorted(os.listdir(live)), f"{listed}")
        check(rows(job.run("list", "--store", "store", "--json", "--rebuild")) == listed, "another catalog from the disk alone")
        print(f"{len(saved)} saves, {len(os.listdir(trash))} in the trash")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
