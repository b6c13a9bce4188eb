"""For Hugging Face's Trainer: a callback that saves in the background, and folders to resume from.

    saves = SaveCallback("runs/exp7", every=100, staging=8 << 30)
    trainer = Trainer(model, TrainingArguments("out", save_strategy="no"), callbacks=[saves], ...)
    trainer.train(resume_from_checkpoint=saves.folder("out"))

For trainers whose processes hold the whole model: one process, or DistributedDataParallel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from typing import Any, Dict, Optional

import torch
import transformers
from safetensors.torch import save_file

from .. import errors
from ..checkpoint import PathLike
from ..run import Run
from . import _random


class SaveCallback(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Saves model, optimizer, scheduler, random states and the Trainer's state with ckpt.Run.

    path     of the run
    every    save every N steps
    staging  bytes of memory that saves are copied to, so that training continues meanwhile: see ckpt.Run
    keep     which checkpoints to keep: see ckpt.Run
    errors   as of Run.save; a failure in the background is raised at the next save or at the end of training
    """

    def __init__(self, path: PathLike, *, every: int, staging: int = 0, keep: Any = None) -> None:
        self._keep = keep
        self._path = os.fspath(path)
        self._every = every
        self._staging = staging
        self._run: Optional[Run] = None
        self._metrics: Dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer: opens the run."""
        self._run = Run(self._path, every=self._every, staging=self._staging, keep=self._keep, group=_random.ranks())

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **kwargs: Any) -> None:
        """Called by the Trainer: keeps the last numbers, which are the metrics of the next checkpoint."""
        self._metrics = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer: saves if it is time.

        errors   that of an earlier save in the background
        """
        run = self._run
        if run is None or not run.should_save(state.global_step):
            return
        tree = {"model": kwargs["model"].state_dict(), "optimizer": kwargs["optimizer"].state_dict(),
                "scheduler": kwargs["lr_scheduler"].state_dict(), "trainer_state": json.dumps(dataclasses.asdict(state)),
                "random": {f"rank{args.process_index}": _random.states()}}
        run.save(state.global_step, tree, metrics=self._metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer: waits for saves in flight.

        errors   that of a save that was not reported yet
        """
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def folder(self, directory: PathLike) -> Optional[str]:
        """Writes the newest checkpoint as a folder that the Trainer resumes from. With several processes, all call it before
        training.

        directory  that gets the folder checkpoint-STEP; an existing one is replaced
        returns    the folder; None if there is no checkpoint
        errors     as of Run.load; Usage: another writer saved the run; OSError: the folder cannot be written
        """
        with Run(self._path, group=_random.ranks()) as run:
            step = run.latest
            if step is None:
                return None
            path = os.path.join(directory, f"checkpoint-{step}")
            tree = run.load(step).tree
            is_first = run._ranks is None or run._ranks.rank == 0
            run._agree(lambda: _write(tree, path) if is_first else None)
        return path


def _write(tree: Dict[str, Any], path: str) -> None:
    """The folder, complete when it has its name."""
    if "trainer_state" not in tree or "random" not in tree:
        raise errors.usage(f"{path}: the run was not saved by SaveCallback")
    partial = f"{path}.writing-{os.getpid()}"
    os.makedirs(partial)
    try:
        unique = {tensor.data_ptr() if tensor.numel() else name: name for name, tensor in reversed(tree["model"].items())}
        save_file({name: tree["model"][name] for name in unique.values()}, f"{partial}/model.safetensors", {"format": "pt"})
        torch.save(tree["optimizer"], f"{partial}/optimizer.pt")
        torch.save(tree["scheduler"], f"{partial}/scheduler.pt")
        for rank, states in tree["random"].items():
            suffix = "" if len(tree["random"]) == 1 else f"_{rank[len('rank'):]}"
            torch.save(states, f"{partial}/rng_state{suffix}.pth")
        with open(f"{partial}/trainer_state.json", "w", encoding="utf-8") as stream:
            stream.write(tree["trainer_state"])
        shutil.rmtree(path, ignore_errors=True)
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
