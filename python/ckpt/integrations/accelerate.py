"""For Hugging Face's Accelerate: all that was prepared, saved with one call.

    checkpoints = Checkpoints(accelerator, ckpt.Run("runs/exp7", every=100, staging=8 << 30))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    first = checkpoints.load() + 1
    for step in range(first, 1001):
        ...
        checkpoints.save_if_due(step)

For processes that hold the whole model: one, or DistributedDataParallel, with a run that was opened with group="world".
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import accelerate

from ..run import Pending, Run
from . import _random


# Names of what there is one of: those that other tools look for. Several are a list.
_ONE = {"models": "model", "optimizers": "optimizer", "schedulers": "scheduler"}


class Checkpoints:
    """Saves and loads the models, optimizers and schedulers that an Accelerator has prepared, the objects that were
    registered with register_for_checkpointing, the scaler, and random states.

    accelerator  which may prepare objects later, but before the first save or load
    run          open; the caller closes it
    """

    def __init__(self, accelerator: accelerate.Accelerator, run: Run) -> None:
        self._accelerator = accelerator
        self._run = run

    def save(self, step: int, *, metrics: Optional[Mapping[str, float]] = None) -> Pending:
        """Saves all of it: `step` and `metrics` are those of Run.save.

        errors   as of Run.save
        """
        tree: Dict[str, Any] = {}
        for kind, objects in self._objects().items():
            states = [each.state_dict() for each in objects]
            if kind in _ONE and len(states) == 1:
                tree[_ONE[kind]] = states[0]
            else:
                tree[kind] = states
        tree["random"] = {f"rank{self._accelerator.process_index}": _random.states()}
        return self._run.save(step, tree, metrics=metrics)

    def save_if_due(self, step: int, *, metrics: Optional[Mapping[str, float]] = None) -> Optional[Pending]:
        """Saves if it is time: `step` is that of Run.should_save, `metrics` those of Run.save.

        returns  the save; None if it is not time
        errors   as of Run.save
        """
        return self.save(step, metrics=metrics) if self._run.should_save(step) else None

    def load(self) -> int:
        """Loads the newest checkpoint into the prepared objects. Skip the batches of earlier steps yourself
        (accelerator.skip_first_batches).

        returns  the step; 0 without a checkpoint
        errors   as of Run.load; what load_state_dict of an object raises
        """
        if self._run.latest is None:
            return 0
        report = self._run.load()
        for kind, objects in self._objects().items():
            one = _ONE.get(kind)
            for each, state in zip(objects, [report.tree[one]] if one in report.tree else report.tree[kind]):
                each.load_state_dict(state)
        mine = report.tree["random"].get(f"rank{self._accelerator.process_index}")
        if mine is not None:  # else there were fewer ranks
            _random.restore(mine)
        return report.step

    def _objects(self) -> Dict[str, Any]:
        accelerator: Any = self._accelerator
        return {"models": [accelerator.unwrap_model(model) for model in accelerator._models],
                "optimizers": accelerator._optimizers, "schedulers": accelerator._schedulers,
                "registered": accelerator._custom_objects,
                "scalers": [] if accelerator.scaler is None else [accelerator.scaler]}
