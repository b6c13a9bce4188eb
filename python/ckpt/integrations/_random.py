"""The states of the random generators of a process, as a tree that Run.save stores."""

from __future__ import annotations

import random
import sys
from typing import Any, Dict

import numpy


def states() -> Dict[str, Any]:
    """Of python, numpy and, where torch is imported, torch and its CUDA devices, under the names that Hugging Face's Trainer
    uses.
    """
    made: Dict[str, Any] = {"python": random.getstate(), "numpy": numpy.random.get_state()}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        made["cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            made["cuda"] = torch.cuda.get_rng_state_all()
    return made


def restore(saved: Dict[str, Any]) -> None:
    """Sets them; devices as far as there are as many."""
    random.setstate(saved["python"])
    numpy.random.set_state(saved["numpy"])
    torch: Any = sys.modules.get("torch")
    if torch is not None and "cpu" in saved:
        torch.set_rng_state(saved["cpu"])
        if torch.cuda.is_available():
            for device, state in list(enumerate(saved.get("cuda", [])))[:torch.cuda.device_count()]:
                torch.cuda.set_rng_state(state, device)


def ranks() -> Any:
    """The group of a run: all ranks of a torch.distributed job, or None."""
    torch: Any = sys.modules.get("torch")
    is_job = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
    return "world" if is_job else None
