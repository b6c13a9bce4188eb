"""Retired files in tests: which file is which, and where any are taken."""
import os
import subprocess


def suited(directory):
    """Whether saves take retired files there: on ext4 and XFS."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True).stdout.strip()
    if kind in ("ext2/ext3", "xfs"):
        return True
    print(f"{kind} at {directory}: no file is recycled there")
    return False


def label(path):
    """Says which file this is, also after a rename: a new one has no such label, but may get the inode of one that is gone."""
    try:
        return os.getxattr(path, "user.test")
    except OSError:
        return None


def shards(checkpoint):
    """The shards of a checkpoint, each with its label; what has none gets one."""
    found = {p.relative_to(checkpoint).as_posix(): p for p in checkpoint.glob("shards/*/*.safetensors")}
    for path in found.values():
        if label(path) is None:
            os.setxattr(path, "user.test", os.urandom(8))
    return {name: label(path) for name, path in found.items()}


def labels(directory):
    """The labels of the files below, None for each that has none."""
    return [label(path) for path in directory.rglob("*") if path.is_file()] if directory.is_dir() else []
