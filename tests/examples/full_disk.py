"""A run's directory on a disk that is too small, in a separate mount namespace."""
import subprocess


def run_on_small_disk(sh, command, kilobytes):
    """The command's outcome, with ./run mounted; None where this machine allows no mounts."""
    mount = f"mount -t tmpfs -o size={kilobytes}k none run"
    for words in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        sh.path("run").mkdir(exist_ok=True)
        probe = subprocess.run([*words, "sh", "-c", mount], cwd=sh.directory, capture_output=True, text=True)
        if probe.returncode == 0:
            return subprocess.run([*words, "sh", "-c", f'{mount} && exec "$@"', "sh", *command], cwd=sh.directory,
                                  env=sh.environment(sh.mpi_environment), stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=180)
    print(f"skipped: no mounts here: {probe.stderr.strip()}")
    return None
