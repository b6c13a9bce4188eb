"""Retired files in tests: their identity, and the file systems that reuse them."""
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
    """A label that identifies this file, also after a rename: a new file has no label, but may get the inode of a
    removed one."""
    try:
        return os.getxattr(path, "user.test")
    except OSError:
        return None


def shards(checkpoint):
    """The shards of a checkpoint, each with its label; files without a label get one."""
    found = {p.relative_to(checkpoint).as_posix(): p for p in checkpoint.glob("shards/*/*.safetensors")}
    for path in found.values():
        if label(path) is None:
            os.setxattr(path, "user.test", os.urandom(8))
    return {name: label(path) for name, path in found.items()}


def labels(directory):
    """The labels of the files below, None for each that has none."""
    return [label(path) for path in directory.rglob("*") if path.is_file()] if directory.is_dir() else []
