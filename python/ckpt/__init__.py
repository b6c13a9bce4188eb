"""Checkpoints of training jobs: open, convert, verify and save them. See docs/python.md.

    import ckpt
    weights = ckpt.open("runs/exp7")["model.embed.weight"][:128].torch()
    ckpt.convert("runs/exp7", "hf", to="safetensors", only="weights")

Importing this package imports neither torch, numpy nor jax; they are imported when a tensor is asked for. Its own modules are
imported at their first use too, and nothing of the standard library here, so that the command starts fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it as true; importing typing takes longer than all the rest
if TYPE_CHECKING:
    from typing import Any, List

    from . import dcp
    from .checkpoint import Checkpoint, Info, Tensor, open
    from .commands import Result, convert, diff, inspect, plan, prune, save, stats, verify
    from .commands import list_checkpoints as list
    from .errors import Corrupt, Error, Incomplete, IOFailure, NoSpace, NotFound, Unsupported, Usage
    from .run import LoadReport, Pending, Run

__all__ = ["Checkpoint", "Corrupt", "Error", "IOFailure", "Incomplete", "Info", "LoadReport", "NoSpace", "NotFound",
           "Pending", "Result", "Run", "Tensor", "Unsupported", "Usage", "convert", "diff", "inspect", "list", "open",
           "plan", "prune", "save", "stats", "verify"]

_MODULES = {"checkpoint": ("Checkpoint", "Info", "Tensor", "open"), "run": ("LoadReport", "Pending", "Run"),
            "commands": ("Result", "convert", "diff", "inspect", "list", "plan", "prune", "save", "stats", "verify"),
            "errors": ("Corrupt", "Error", "IOFailure", "Incomplete", "NoSpace", "NotFound", "Unsupported", "Usage")}
_RENAMED = {"list": "list_checkpoints"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "dcp":  # imports torch
        return import_module(f"{__name__}.dcp")
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{module}"), _RENAMED.get(name, name))
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
