"""Checkpoints made by PyTorch during the test, with sizes that differ from the committed ones: each equals the model's
values."""
import json

import pytest

from truth import from_safetensors

WORLD = 2
SHAPES = {"even": (10, 6), "uneven": (7, 3), "short": (1, 5), "vector": (9,), "scalar": (), "cube": (3, 4, 5)}


def values(name, shape, dtype):
    import torch
    count = int(torch.tensor(shape).prod()) if shape else 1
    seed = sum(name.encode()) + len(name)
    return (torch.arange(count, dtype=torch.float64) * 0.37 + seed).to(dtype).reshape(shape)


def zstd_extension():
    """PyTorch's own extension for compressed items, or None if it has none. It needs one of two compressor packages;
    without them, libzstd itself replaces pyzstd."""
    import ctypes
    import ctypes.util
    try:
        from torch.distributed.checkpoint import _extension
    except ImportError:
        return None
    if not _extension.ZStandard.is_available():
        name = ctypes.util.find_library("zstd")
        if name is None:
            return None
        zstd = ctypes.CDLL(name)
        zstd.ZSTD_compressBound.restype = zstd.ZSTD_compress.restype = ctypes.c_size_t
        zstd.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
        zstd.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]

        class Pyzstd:
            class ZstdCompressor:
                def __init__(self):
                    self.held = b""

                def compress(self, data):
                    self.held += bytes(data)
                    return b""

                def flush(self):
                    held, self.held = self.held, b""
                    if not held:
                        return b""
                    room = ctypes.create_string_buffer(zstd.ZSTD_compressBound(len(held)))
                    size = zstd.ZSTD_compress(room, len(room), held, len(held), 3)
                    return room.raw[:size]
        _extension.pyzstd = Pyzstd
    return _extension.ZStandard()


def work(rank, root):
    """One of two processes: writes every case."""
    import os
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.distributed.tensor import Shard, distribute_tensor
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))

    def state(dim=0):
        out = {}
        for name, shape in SHAPES.items():
            dtype = torch.bfloat16 if name == "cube" else torch.float32
            whole = values(name, shape, dtype)
            at = min(dim, len(shape) - 1)
            out[name] = distribute_tensor(whole, mesh, [Shard(at)], src_data_rank=None) if shape else whole
        return {"model": out, "step": 5, "rng": torch.arange(4, dtype=torch.uint8)}

    def save(name, dim=0, **options):
        dcp.save(state(dim), storage_writer=dcp.FileSystemWriter(f"{root}/{name}", **options))

    save("dcp_rows")
    save("dcp_columns", dim=1)
    save("dcp_threads", thread_count=3)
    save("dcp_file_per_item", single_file_per_rank=False)
    dcp.save(state()["model"], storage_writer=dcp.HuggingFaceStorageWriter(
        path=f"{root}/hf_consolidated", save_distributed=True, enable_consolidation=True))
    if (zstd := zstd_extension()) is not None:
        save("dcp_zstd", _extensions=[zstd])
    torch.save(state()["model"], f"{root}/rank_files/model_world_size_{WORLD}_rank_{rank}.pt")

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3, bias=False))
    whole = {n: t.detach().clone() for n, t in model.state_dict().items()}
    fsdp = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
                                    device_id=torch.device("cpu"), use_orig_params=False)
    with FullyShardedDataParallel.state_dict_type(fsdp, StateDictType.FULL_STATE_DICT):
        fsdp.state_dict()  # FSDP is lazy: the first one initialises it
    for kind, folder in ((StateDictType.LOCAL_STATE_DICT, "local"), (StateDictType.SHARDED_STATE_DICT, "sharded")):
        with FullyShardedDataParallel.state_dict_type(fsdp, kind):
            torch.save(fsdp.state_dict(), f"{root}/{folder}/pytorch_model_fsdp_rank{rank}.bin")
    optimizer = torch.optim.AdamW(fsdp.parameters())
    fsdp(values("input", (4, 5), torch.float32)).square().sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), f"{root}/flat_optim/optim_world_size_{WORLD}_rank_{rank}.pt")
    for kind, folder in ((StateDictType.LOCAL_STATE_DICT, "local_optim"), (StateDictType.SHARDED_STATE_DICT, "sharded_optim"),
                         (StateDictType.FULL_STATE_DICT, "whole_optim")):
        with FullyShardedDataParallel.state_dict_type(fsdp, kind):
            state_dict = FullyShardedDataParallel.optim_state_dict(fsdp, optimizer)
        torch.save(state_dict, f"{root}/{folder}/optim_world_size_{WORLD}_rank_{rank}.pt")
    if rank == 0:
        torch.save(whole, f"{root}/whole.pt")
    dist.barrier()
    os._exit(0)  # everything is written; gloo's threads at times abort a process that ends in the usual way


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    import torch.multiprocessing
    root = tmp_path_factory.mktemp("made")
    for folder in ("rank_files", "local", "sharded", "flat_optim", "local_optim", "sharded_optim", "whole_optim"):
        (root / folder).mkdir()
    torch.multiprocessing.spawn(work, args=(str(root),), nprocs=WORLD)
    return root


def bits(tensor):
    import torch
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("name", ["dcp_rows", "dcp_columns", "dcp_threads", "dcp_file_per_item", "dcp_zstd", "rank_files",
                                  "hf_consolidated"])
def test_every_layout_holds_the_values_that_were_sharded(name, made, ckpt, out):
    if not (made / name).exists():
        pytest.skip("this PyTorch has no extension stream.zstd, or no libzstd is here")
    import torch
    ckpt("convert", made / name, out / "all.safetensors")
    found = from_safetensors(out / "all.safetensors")
    prefix = "model." if name.startswith("dcp_") else ""
    for tensor, shape in SHAPES.items():
        dtype = torch.bfloat16 if tensor == "cube" else torch.float32
        assert found[prefix + tensor][1] == shape
        assert found[prefix + tensor][2] == bits(values(tensor, shape, dtype)), tensor


def test_fsdp1_sharded_tensors_of_ranks_are_joined(made, ckpt, out):
    import torch
    ckpt("convert", made / "sharded", out / "all.safetensors")
    found = from_safetensors(out / "all.safetensors")
    whole = torch.load(made / "whole.pt")
    assert set(found) == set(whole)
    for name, tensor in whole.items():
        assert found[name][1:] == (tuple(tensor.shape), bits(tensor)), name


def test_fsdp1_flat_parameters_need_their_shapes(made, ckpt, out):
    import torch
    run = ckpt("convert", made / "local", out / "all.safetensors", expect=12)
    assert "_flat_param" in run.stderr and "--map" in run.stderr
    assert list(out.iterdir()) == []
    whole = torch.load(made / "whole.pt")

    def holds(*names):
        return [{"name": n, "shape": list(whole[n].shape)} for n in names]
    rules = [{"tensor": "_flat_param", "holds": holds("1.weight", "1.bias")},
             {"tensor": "0._flat_param", "holds": holds("0.weight", "0.bias")},
             {"tensor": "2._flat_param", "holds": holds("2.weight")}]
    (out / "map.json").write_text(json.dumps({"ckpt-map": 1, "rules": rules}))
    ckpt("convert", made / "local", out / "all.safetensors", "--map", out / "map.json")
    found = from_safetensors(out / "all.safetensors")
    assert set(found) == set(whole)
    for name, tensor in whole.items():
        assert found[name][1:] == (tuple(tensor.shape), bits(tensor)), name
    rules[0]["holds"].pop()
    (out / "map.json").write_text(json.dumps({"ckpt-map": 1, "rules": rules}))
    run = ckpt("convert", made / "local", out / "other.safetensors", "--map", out / "map.json", expect=2)
    assert "_flat_param: it has" in run.stderr


@pytest.mark.parametrize("name", ["local_optim", "sharded_optim"])
def test_fsdp1_optimizer_state_of_ranks_is_joined(name, made, ckpt, out):
    import torch
    ckpt("convert", made / name, out / "all.safetensors")
    found = from_safetensors(out / "all.safetensors")
    aliases = json.loads(ckpt("inspect", made / name, "--json").stdout)["data"]["aliases"]  # steps that are one tensor
    found |= {alias["name"]: found[alias["target"]] for alias in aliases}
    whole = torch.load(made / "whole_optim" / f"optim_world_size_{WORLD}_rank_0.pt")["state"]
    assert len(whole) == 5
    for parameter, slots in whole.items():
        for slot, tensor in slots.items():
            assert found[f"state.{parameter}.{slot}"][1:] == (tuple(tensor.shape), bits(tensor)), (parameter, slot)


def test_fsdp1_flat_optimizer_state_without_its_shapes_is_not_guessed(made, ckpt, out):
    """The optimizer's own state_dict: each rank's part of each flat parameter as a plain tensor, which differs from a
    replica only by its values."""
    run = ckpt("verify", made / "flat_optim", expect=1)
    assert "state.0.exp_avg" in run.stdout + run.stderr
    ckpt("convert", made / "flat_optim", out / "all.safetensors", "--verify", "full", expect=15)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("protocol", range(6))
def test_files_of_every_pickle_protocol(protocol, is_zip, ckpt, out):
    import torch
    state = {"w": torch.arange(6.0).reshape(2, 3).t(), "\u5c64": torch.tensor(1 + 2j), "gone": torch.empty(3, device="meta"),
             "big": 2 ** 70, "lr": 1.5, "range": range(3)}
    torch.save(state, out / "state.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
    if protocol == 0:  # its storages are named by text, which torch.load refuses too
        ckpt("convert", out / "state.pt", out / "all.safetensors", expect=15)
        return
    run = ckpt("convert", out / "state.pt", out / "all.safetensors")
    assert "gone (meta tensor)" in run.stderr
    found = from_safetensors(out / "all.safetensors")
    assert found["w"] == ("F32", (3, 2), bits(state["w"]))
    assert found["\u5c64"] == ("C64", (), bits(torch.view_as_real(state["\u5c64"])))
    assert "gone" not in found


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_of_a_pickled_module_are_found(is_zip, ckpt, out):
    """Legacy files give a module's class as a persistent id, with its source."""
    import torch
    module = torch.nn.Linear(3, 2)
    torch.save(module, out / "module.pt", _use_new_zipfile_serialization=is_zip)
    ckpt("convert", out / "module.pt", out / "all.safetensors")
    found = from_safetensors(out / "all.safetensors")
    assert found["_parameters.weight"] == ("F32", (2, 3), bits(module.weight))
    assert found["_parameters.bias"] == ("F32", (2,), bits(module.bias))


def test_programs_and_archives_packed_again_are_named(ckpt, out):
    import zipfile

    import torch
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), out / "script.pt")
    assert "TorchScript" in ckpt("convert", out / "script.pt", out / "a.safetensors", expect=12).stderr
    torch.save({"w": torch.zeros(500)}, out / "state.pt")
    with zipfile.ZipFile(out / "state.pt") as archive, zipfile.ZipFile(out / "again.pt", "w", zipfile.ZIP_DEFLATED) as again:
        for name in archive.namelist():
            again.writestr(name, archive.read(name))
    assert "is compressed" in ckpt("convert", out / "again.pt", out / "b.safetensors", expect=15).stderr


def test_values_of_a_big_endian_file_that_torch_reads_differently_are_named(ckpt, out):
    """torch.load swaps the bytes of typed storages only; tensors of unsigned integers have none."""
    import zipfile

    import torch
    values = [1, 0x1234, 65535]
    torch.save({"typed": torch.arange(3.0), "plain": torch.tensor(values, dtype=torch.uint16)}, out / "little.pt")
    with zipfile.ZipFile(out / "little.pt") as archive, zipfile.ZipFile(out / "big.pt", "w") as big:
        for name in archive.namelist():
            big.writestr(name, b"big" if name.endswith("/byteorder") else archive.read(name))
    assert "torch.load" not in ckpt("convert", out / "little.pt", out / "little.safetensors").stderr
    run = ckpt("convert", out / "big.pt", out / "big.safetensors")
    assert "big-endian file: torch.load on a little-endian machine reads different values of plain (" in run.stderr
    found = from_safetensors(out / "big.safetensors")
    assert found["plain"][2] == b"".join(value.to_bytes(2, "big") for value in values)
    assert found["typed"][2] == bits(torch.load(out / "big.pt")["typed"])


def test_weights_of_verl_are_known_beside_its_optimizer(ckpt, out):
    import torch
    from safetensors.torch import load_file
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))  # the order tells them apart
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    actor = out / "run" / "global_step_7" / "actor"
    actor.mkdir(parents=True)
    (out / "run" / "latest_checkpointed_iteration.txt").write_text("7")
    for name, state in (("model", model.state_dict()), ("optim", optimizer.state_dict()),
                        ("extra_state", {"rng": {"cpu": torch.get_rng_state()}})):
        torch.save(state, actor / f"{name}_world_size_1_rank_0.pt")
    ckpt("convert", actor, out / "weights.safetensors", "--only", "weights")
    weights = load_file(out / "weights.safetensors")
    assert set(weights) == set(model.state_dict()) and torch.equal(weights["1.weight"], model[1].weight)
    # A tracker of Megatron has the same name.
    assert "megatron" not in ckpt("inspect", out / "run", expect=None).stdout
    ckpt("convert", actor, out / "dcp", "--to", "dcp")
    import torch.distributed.checkpoint as dcp
    state = {"optimizer.state.1.bias.exp_avg": torch.zeros(3)}
    dcp.load(state, checkpoint_id=out / "dcp")
    assert torch.equal(state["optimizer.state.1.bias.exp_avg"], optimizer.state[model[1].bias]["exp_avg"])
