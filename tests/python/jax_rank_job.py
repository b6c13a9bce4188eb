"""A process of a jax job with 2 devices in each, which saves or loads by ckpt.Run(group="world"): jax_rank_job.py WHAT DIRECTORY
RANK WORLD. test_jax.py starts it.
"""
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import conftest  # noqa: F401: where the package is
import jax
import numpy
import rank_of_job
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt

WHOLE = numpy.arange(48.0, dtype=numpy.float32).reshape(8, 6)


def start(directory, what):
    """All devices of the job."""
    rank, world = int(sys.argv[3]), int(sys.argv[4])
    port_file = directory / f"port-{what}{world}"
    if rank == 0:
        import socket

        with socket.socket() as free:
            free.bind(("localhost", 0))
            port_file.with_suffix(".new").write_text(str(free.getsockname()[1]))
        os.rename(port_file.with_suffix(".new"), port_file)
    while not port_file.exists():
        pass
    jax.distributed.initialize(f"localhost:{port_file.read_text()}", world, rank)
    return numpy.array(jax.devices())


def made(devices, spec, zeros=False):
    mesh = Mesh(devices.reshape(-1, 2), ("x", "y"))
    return jax.make_array_from_callback((8, 6), NamedSharding(mesh, spec), lambda index: numpy.zeros_like(WHOLE[index]) if zeros else WHOLE[index])


SPECS = {"both": PartitionSpec("x", "y"), "columns": PartitionSpec(None, "y"), "replicated": PartitionSpec()}


def save(mesh, directory):
    devices = start(directory, "save")
    arrays = {name: made(devices, spec) for name, spec in SPECS.items()}
    with ckpt.Run(directory / "alone" / sys.argv[3]) as run:
        try:
            run.save(1, arrays)
        except ckpt.Unsupported as reason:
            assert "both: other processes hold parts of it: open the run with group=" in str(reason) and "replicated" not in str(reason)
        else:
            raise AssertionError("saved a part as the whole")
    with ckpt.Run(directory / "run", group="world") as run:
        run.save(1, {**arrays, "step": 1})


def load(mesh, directory):
    devices = start(directory, "load")
    into = {**{name: made(devices, spec, zeros=True) for name, spec in SPECS.items()}, "step": 0}
    with ckpt.Run(directory / "run", group="world") as run:
        run.load(into=into)
    for name in SPECS:
        for shard in into[name].addressable_shards:
            assert numpy.array_equal(shard.data, WHOLE[shard.index]), name
    assert into["step"] == 1


if __name__ == "__main__":
    rank_of_job.main({"save": save, "load": load})
