"""One rank of a job of torch.distributed, as a test starts it: SCRIPT WHAT DIRECTORY RANK WORLD."""
import faulthandler
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main(jobs):
    """Runs the function of jobs[WHAT] with a mesh of all ranks and the directory."""
    what, directory, rank, world = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(200, exit=True)  # says where a rank hangs
    dist.init_process_group("gloo", init_method=f"file://{directory}/store-{what}{world}", rank=rank, world_size=world)
    jobs[what](init_device_mesh("cpu", (world,)), directory)
    if what != "leave":  # after a rank has left, the others cannot meet
        dist.barrier()
        dist.destroy_process_group()
