"""For Lightning: a CheckpointIO whose checkpoints are runs of ckpt, verified when they are loaded.

    trainer = Trainer(plugins=[RunCheckpointIO()], ...)
    trainer.fit(model, ckpt_path="checkpoints/epoch=3-step=400.ckpt")

`LightningModule.load_from_checkpoint` asks no CheckpointIO and reads files only: `ckpt convert CHECKPOINT model.ckpt --to torch`
writes one. What Lightning passes must be tensors and plain values (strings, numbers, dict, list, tuple), as it is without
custom objects.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Optional

from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO

from ..checkpoint import PathLike
from ..run import Run


class RunCheckpointIO(CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Each checkpoint that Lightning names is a directory with one run of one step."""

    def save_checkpoint(self, checkpoint: Dict[str, Any], path: PathLike, storage_options: Optional[Any] = None) -> None:
        """Called by Lightning. Returns when the checkpoint is durable.

        errors   Unsupported: objects, named by their path in the checkpoint; NoSpace, IOFailure
        """
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with Run(path) as run:
            run.save(int(checkpoint.get("global_step", 0)), checkpoint, wait=True)

    def load_checkpoint(self, path: PathLike, map_location: Optional[Any] = None, weights_only: Optional[bool] = None
                        ) -> Dict[str, Any]:
        """Called by Lightning, which moves the tensors from the CPU. Nothing in the checkpoint is run, whatever weights_only is.

        errors   NotFound, Corrupt, IOFailure
        """
        with Run(path) as run:
            tree: Dict[str, Any] = run.load().tree
        return tree

    def remove_checkpoint(self, path: PathLike) -> None:
        """Called by Lightning. Renames the checkpoint first, so that none is found half deleted."""
        target = os.path.abspath(path)
        if os.path.exists(target):
            hidden = os.path.join(os.path.dirname(target), f".removed-{os.getpid()}-{os.path.basename(target)}")
            os.rename(target, hidden)
            shutil.rmtree(hidden)
