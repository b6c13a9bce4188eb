"""For DeepSpeed: save_checkpoint writes its files with libckpt.

    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config, ...)
    use_ckpt(engine)
    engine.save_checkpoint("checkpoints")               # as before

The layout and the files are DeepSpeed's: load_checkpoint, also of a trainer without ckpt, zero_to_fp32.py and
ds_to_universal.py read them.
"""

from __future__ import annotations

from typing import Any

from deepspeed import comm as dist
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine

from .. import _torch_file, errors


class RunCheckpointEngine(TorchCheckpointEngine):  # type: ignore[misc, unused-ignore]
    """Each file is written from the tensors' own memory, synced, and gets its name when it is complete. DeepSpeed writes
    `latest` when the files of all ranks are durable; its own engine does not wait for other ranks there.

    config_params   of DeepSpeed
    threads         how many threads of each rank copy, hash and write
    """

    def __init__(self, config_params: Any = None, threads: int = 2) -> None:
        if threads < 1:
            raise errors.usage(f"threads is {threads}, less than 1")
        super().__init__(config_params)
        self.name = "RunCheckpointEngine"
        self._threads = threads

    def save(self, state_dict: Any, path: str) -> None:
        """Called by DeepSpeed. Returns when the file is durable. Tensors on devices are copied to the CPU first: a file's
        tensors have to fit in memory there.

        errors   what torch.save raises; NoSpace, IOFailure: a file that was there before is unchanged
        """
        _torch_file.write(state_dict, path, self._threads)

    def commit(self, info: Any) -> bool:
        """Called by DeepSpeed on all ranks, before `latest` is written."""
        if dist.is_initialized():
            dist.barrier()
        return True


def use_ckpt(engine: Any, *, threads: int = 2) -> None:
    """Makes an engine of deepspeed.initialize save with libckpt. Call it on all ranks, before they save.

    engine   as deepspeed.initialize returns it
    threads  how many threads of each rank copy, hash and write
    errors   Unsupported: the configuration asks for another writer (checkpoint.writer, datastates)
    """
    if type(engine.checkpoint_engine) not in (TorchCheckpointEngine, RunCheckpointEngine):
        raise errors.unsupported(f"the engine saves with {type(engine.checkpoint_engine).__name__}",
                                 hint="remove checkpoint.writer and datastates from DeepSpeed's configuration")
    engine.checkpoint_engine = RunCheckpointEngine(engine._config, threads)
