"""Checkpoints of training jobs: open, convert, verify and save them. See docs/python.md.

    import ckpt
    weights = ckpt.open("runs/exp7")["model.embed.weight"][:128].torch()
    ckpt.convert("runs/exp7", "hf", to="safetensors", only="weights")

Importing this package imports neither torch nor numpy; they are imported when a tensor is asked for.
"""

from .checkpoint import Checkpoint, Info, Tensor, open
from .commands import Result, convert, diff, inspect, plan, prune, save, verify
from .commands import list_checkpoints as list
from .errors import Corrupt, Error, Incomplete, IOFailure, NoSpace, NotFound, Unsupported, Usage
from .run import LoadReport, Pending, Run

__all__ = ["Checkpoint", "Corrupt", "Error", "IOFailure", "Incomplete", "Info", "LoadReport", "NoSpace", "NotFound",
           "Pending", "Result", "Run", "Tensor", "Unsupported", "Usage", "convert", "diff", "inspect", "list", "open",
           "plan", "prune", "save", "verify"]
