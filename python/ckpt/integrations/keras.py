"""For Keras 3: a callback that saves after epochs, in the background, and restores model and optimizer.

    saves = SaveCallback("runs/exp7", staging=8 << 30)
    model.fit(data, epochs=20, initial_epoch=saves.restore(model), callbacks=[saves])

Give fit steps_per_epoch to save more often. Variables have the names of their paths
(trainable_variables.sequential.dense.kernel), so a model restores what the same code saved.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

import keras

from .. import errors
from ..checkpoint import PathLike
from ..run import Run
from . import _random

_KINDS = ("trainable_variables", "non_trainable_variables", "optimizer_variables")  # metrics start again with each epoch


class SaveCallback(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Saves the variables of model and optimizer, the states of random generators, and the epoch. The step of a checkpoint
    is the optimizer's count of iterations, its metrics are the logs of the epoch.

    path     of the run
    every    save after every N epochs, and after the last one
    staging  bytes of memory that saves are copied to, so that training continues meanwhile: see ckpt.Run
    options  other arguments of ckpt.Run, such as keep
    errors   as of Run.save; a failure in the background is raised at the next save or at the end of training

    For one process, with the backends torch, jax (arrays with their shardings) and tensorflow.
    """

    def __init__(self, path: PathLike, *, every: int = 1, staging: int = 0, **options: Any) -> None:
        super().__init__()
        if every < 1:
            raise errors.usage(f"every is {every}, less than 1")
        self._path = os.fspath(path)
        self._every = every
        self._options = {"staging": staging, **options}
        self._run: Optional[Run] = None
        self._unsaved: Optional[Dict[str, Any]] = None  # the logs of the last epoch, if it was not saved
        self._epochs = 0
        self._random: Optional[Dict[str, Any]] = None  # states for the next epoch

    def restore(self, model: Any) -> int:
        """Loads the newest checkpoint into a model.

        model    compiled and built
        returns  the number of epochs that it was trained, for initial_epoch; 0 without a checkpoint
        errors   as of Run.load; Usage: the checkpoint is of another model, or the model is not built. The model is as it was
                 then
        """
        if not model.built or getattr(model, "optimizer", None) is None:
            raise errors.usage("the model is not built, or not compiled with an optimizer: it has no variables to restore",
                               hint="give it an Input layer or call model.build, and call model.compile first")
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        with Run(self._path) as run:
            if run.latest is None:
                return 0
            # Into copies: the model changes when all names are right.
            tree: Dict[str, Any] = {"model": _copies(_variables(model)), "epochs": 0, "random": _random.states()}
            report = run.load(into=tree, strict=False)
        wrong = [name for name in report.missing + report.unexpected if not name.startswith("random.")]
        if wrong:
            raise errors.usage(f"{report.path}: the model and the checkpoint have other variables: {', '.join(wrong[:5])}",
                               hint="build the model by the code that saved it, with the same names, in a new process or after "
                                    "keras.utils.clear_session()")
        model.set_state_tree(tree["model"])
        if not any(name.startswith("random.") for name in report.missing):
            self._random = tree["random"]
        return int(tree["epochs"])

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Called by Keras: opens the run."""
        self._run = Run(self._path, **self._options)

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Called by Keras: after `restore`, sets the random states, because fit itself draws numbers before."""
        states, self._random = self._random, None
        if states is not None:
            _random.restore(states)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Called by Keras: saves if it is time.

        errors   that of an earlier save in the background
        """
        self._epochs, self._unsaved = epoch + 1, dict(logs or {})
        if self._epochs % self._every == 0:
            self._save()

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Called by Keras: saves the last epoch, and waits for saves in flight.

        errors   that of a save that was not reported yet
        """
        if self._unsaved is not None:
            self._save()
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _save(self) -> None:
        assert self._run is not None
        model, logs, self._unsaved = self.model, self._unsaved or {}, None
        metrics = {name: float(value) for name, value in logs.items() if isinstance(value, (int, float))}
        self._run.save(int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
                       {"model": _variables(model), "epochs": self._epochs, "random": _random.states()}, metrics=metrics)


def _variables(model: Any) -> Dict[str, Any]:
    """By kind and path."""
    kind = "backend_tensor" if keras.backend.backend() in ("torch", "jax") else "numpy_array"
    tree: Dict[str, Any] = model.get_state_tree(value_format=kind)
    return {name: tree[name] for name in _KINDS}


def _copies(tree: Any) -> Any:
    """The tree with tensors of torch copied to the CPU: they are the model's own. Other arrays are copies, or do not change."""
    if isinstance(tree, dict):
        return {name: _copies(value) for name, value in tree.items()}
    return tree.detach().clone().cpu() if keras.backend.backend() == "torch" else tree
