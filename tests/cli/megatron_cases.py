"""Runs of Megatron-LM that lost files, mix those of several saves, or hold modules in a form of their own."""
import shutil
import struct
import sys
import types

import torch_file
from runner import check, main


class Namespace:
    """argparse.Namespace, as pickle writes it."""

    def __init__(self, **values):
        self.__dict__.update(values)


Namespace.__module__ = "argparse"


def save(value, path):
    before = sys.modules.get("argparse")
    sys.modules["argparse"] = types.SimpleNamespace(Namespace=Namespace)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch_file.save(value, path)
    finally:
        sys.modules["argparse"] = before


def copy_of(sh, name, target="run"):
    run = sh.path(target)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(sh.checkpoint(f"megatron/{name}"), run)
    return run


def refuse(sh, run, code, text):
    sh.run("convert", run, "out", "--to", "megatron", code=code, err=text)
    check(not sh.path("out").exists(), "something was published")


def case_a_torch_dist_save_that_never_finished_is_incomplete(sh):
    sh.path("run/iter_0000005").mkdir(parents=True)
    torch_file.save({"args": {"num_layers": 4}, "iteration": 5, "checkpoint_version": 3.0}, sh.path("run/iter_0000005/common.pt"))
    for path in ("run", "run/iter_0000005"):
        sh.run("convert", path, "out", code=13, err="common.pt of Megatron-LM without .metadata: the save never finished")
    check(not sh.path("out").exists(), "out")


def case_what_a_zarr_run_lost_is_named(sh):
    weight = "decoder.final_layernorm.weight"
    for lost, text in ((f"{weight}/.zarray", f"{weight}/.zarray: missing, but the array's chunks"),
                       (weight, f"{weight}: the array's folder is missing"),
                       (f"optimizer.state.exp_avg.{weight}", f"exp_avg.{weight}: the array's folder is missing"),
                       ("common.pt", "common.pt: missing, but metadata.json says")):
        path = copy_of(sh, "zarr_tp2_pp2_dp2") / "iter_0000002" / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        refuse(sh, "run", 13, text)


def case_a_run_without_its_common_file_is_incomplete(sh):
    run = copy_of(sh, "torch_dist_flattened_tp2_pp2_dp2")
    (run / "iter_0000002" / "common.pt").unlink()
    refuse(sh, "run", 13, "common.pt: missing, but metadata.json says")


def case_local_files_are_of_one_save(sh):
    run = copy_of(sh, "local_tp2")
    # A job with more ranks left older files.
    (run / "3").mkdir()
    shutil.copy(run / "1" / "iter_0000100_1_local.pt", run / "3" / "iter_0000050_3_local.pt")
    sh.run("convert", run, "all.safetensors", out="^done ")
    for rank in (0, 1):
        (run / str(rank) / f"iter_0000100_{rank}_local.pt").rename(run / str(rank) / f"iter_0000200_{rank}_local.pt")
    refuse(sh, "run", 15, "iter_0000200_0_local.pt: its name says iteration 200, but it is of iteration 100")


def layers(names, size):
    return {f"decoder.layers.{layer}.{name}": torch_file.Tensor([layer] * 8, [2, 4]) for name in names for layer in range(size)}


def files_of_a_rank(sh, model, **arguments):
    run = sh.path("rank")
    shutil.rmtree(run, ignore_errors=True)
    save({"args": Namespace(**{"num_layers": 2, "world_size": 1, "data_parallel_size": 1, **arguments}), "checkpoint_version": 3.0, "iteration": 5,
          "model": model}, run / "mp_rank_00" / "model_optim_rng.pt")
    return run


def case_layers_have_numbers_where_megatron_core_gives_them_some(sh):
    model = layers(["self_attention.linear_proj.weight"], 2)
    for arguments, name in (({}, r"decoder\.layers\.self_attention"), ({"moe_layer_freq": [1, 1]}, r"decoder\.layers\.1\.self_attention"),
                            ({"moe_layer_freq": 2}, r"decoder\.layers\.1\.self_attention"),
                            ({"hybrid_override_pattern": "**"}, r"decoder\.layers\.1\.self_attention")):
        sh.run("ls", files_of_a_rank(sh, model, **arguments), out=name)


def case_transposed_experts_are_refused(sh):
    """GroupedMLP's: one tensor of all experts of a rank, with rows and columns exchanged."""
    run = files_of_a_rank(sh, layers(["mlp.experts.weight1", "mlp.experts.weight2"], 2), num_experts=2, moe_grouped_gemm=True,
                          transformer_impl="local")
    refuse(sh, run, 12, "mlp.experts.weight1: GroupedMLP's experts, which are transposed, are not supported")


def case_buckets_of_transposed_experts_stay_buckets(sh):
    """One expert of a rank has as many elements as the weight, and begins at the same place."""
    run = sh.checkpoint("megatron/torch_dist_buckets_grouped_ep2")
    sh.run("ls", run, out=r"chained_1\.optimizer\.distributed\.dp_group_idx_1\.gbuf_idx_0", not_out=r"optimizer\.state\.decoder")
    refused = sh.run("convert", run, "out", "--tp", "1", code=12, err="GroupedMLP .--moe-grouped-gemm without Transformer Engine. holds experts")
    check("--to megatron" in refused.err, refused.err)


def case_experts_may_have_other_tensor_parallel_ranks(sh):
    run = sh.checkpoint("megatron/legacy_moe_tp2_ep2_etp1")
    for sizes, folders in ((["--tp", "2"], ["mp_rank_00_000", "mp_rank_01_001"]), (["--tp", "2", "--ep", "1"], ["mp_rank_00", "mp_rank_01"]),
                           (["--etp", "2"], [f"mp_rank_0{t}_00{e}" for t in (0, 1) for e in (0, 1)]), (["--tp", "1"], ["mp_rank_00_000", "mp_rank_00_001"])):
        shutil.rmtree(sh.path("out"), ignore_errors=True)
        sh.run("convert", run, "out", *sizes)
        made = sorted(folder.name for folder in sh.path("out").glob("iter_0000002/*"))
        check(made == folders, f"{sizes}: {made}")
        sh.run("verify", "out", "--against", run, out=" 0 different, 0 only here, 0 only there")
    sh.run("convert", run, "more", "--etp", "4", code=12, err=["2 tensor-parallel ranks cannot be divided into groups of 4", "--etp 2"])
    lost = copy_of(sh, "legacy_moe_tp2_ep2_etp1")
    shutil.rmtree(lost / "iter_0000002" / "mp_rank_01_001")
    shutil.rmtree(sh.path("out"))
    refuse(sh, lost, 13, "1 folders of ranks, not 2")


def case_mixers_of_mamba_are_refused_where_parts_are_stored(sh):
    run = files_of_a_rank(sh, layers(["mixer.in_proj.weight"], 2), hybrid_override_pattern="MM")
    refuse(sh, run, 12, "mixer.in_proj.weight: torch_dist stores the parts of a Mamba mixer apart")
    sh.run("convert", run, "all.safetensors", out="^done ")


def exchange(folder, one, other):
    (folder / one).rename(folder / "between")
    (folder / other).rename(folder / one)
    (folder / "between").rename(folder / other)


def case_exchanged_files_of_ranks_are_noticed(sh):
    """Also of runs that ckpt wrote: each file has the number of the rank that Megatron-LM would have written it by."""
    for name, flags, one, other in (("torch_dist_tp2_pp2_dp2", ("--tp", "2", "--pp", "2"), "mp_rank_00_001", "mp_rank_01_001"),
                                    ("torch_dist_tp2_pp2_dp2", ("--tp", "1", "--pp", "2"), "mp_rank_00_000", "mp_rank_00_001"),
                                    ("torch_dist_mtp_tp2_pp2", ("--tp", "2", "--pp", "2"), "mp_rank_00_000", "mp_rank_00_001"),
                                    ("torch_dist_mtp_tp2_pp2", ("--tp", "2", "--pp", "1"), "mp_rank_00", "mp_rank_01"),
                                    ("legacy_moe_tp2_ep2_etp1", ("--etp", "2"), "mp_rank_00_000", "mp_rank_00_001")):
        shutil.rmtree(sh.path("files"), ignore_errors=True)
        sh.run("convert", sh.checkpoint(f"megatron/{name}"), "files", "--to", "megatron-legacy", "--allow-skipped", *flags)
        sh.run("verify", "files")
        folder = sh.path("files/iter_0000002")
        exchange(folder, one, other)
        refuse(sh, "files", 15, "rank files were exchanged or copied")


def case_exchanged_files_of_experts_are_noticed(sh):
    """Folders of two numbers are exchanged along both at once. Without --dp there are as many data-parallel ranks as experts need."""
    run = copy_of(sh, "legacy_moe_tp2_ep2_etp1")
    exchange(run / "iter_0000002", "mp_rank_00_000", "mp_rank_01_001")
    refuse(sh, run, 15, "rank files were exchanged or copied")
    for flags in (("--tp", "4", "--ep", "4", "--etp", "1"), ("--tp", "2", "--ep", "4", "--etp", "1"), ("--tp", "2", "--pp", "2", "--ep", "2"),
                  ("--pp", "2", "--ep", "4")):
        shutil.rmtree(sh.path("files"), ignore_errors=True)
        sh.run("convert", sh.checkpoint("safetensors/mixtral_sharded"), "files", "--to", "megatron-legacy", "--names", "megatron",
               "--vocab-multiple", "16", *flags)
        sh.run("verify", "files")
        folder = next(sh.path("files").glob("release*"))
        names = sorted(path.name for path in folder.iterdir())
        for i, one in enumerate(names):
            for other in names[:i]:
                exchange(folder, one, other)
                refuse(sh, "files", 15, "rank files were exchanged or copied")
                exchange(folder, one, other)
        sh.run("verify", "files")


def case_weights_alone_keep_the_runs_arguments(sh):
    source = sh.checkpoint("megatron/legacy_tp2_pp2_dp2_distopt")
    for flags in (("--tp", "1", "--pp", "2"), ("--tp", "2", "--pp", "2")):
        shutil.rmtree(sh.path("files"), ignore_errors=True)
        sh.run("convert", source, "files", "--to", "megatron-legacy", *flags, "--only", "weights")
        sh.run("verify", "files", out="^files +ok")
    sh.run("convert", "files", "dist", "--to", "megatron", "--only", "weights")
    sh.run("convert", "dist", "again", "--to", "megatron-legacy", "--tp", "2", out="^done ")


def case_weights_that_are_cast_come_from_the_masters(sh):
    source = sh.checkpoint("megatron/legacy_tp2_pp2_dp2_distopt")
    for dtype in ("fp32", "fp16"):
        sh.run("convert", source, "cast.safetensors", "--dtype", dtype, "--overwrite", out="weights taken from the fp32 masters")
        sh.run("verify", "cast.safetensors", out="9 masters against their weights")
    sh.run("convert", source, "stored.safetensors", "--dtype", "fp32", "--weights", "param", not_out="from the fp32 masters")
    sh.run("convert", source, "same.safetensors", "--dtype", "bf16", not_out="from the fp32 masters")


def case_weights_that_files_of_ranks_lost_are_named(sh):
    sh.run("convert", sh.checkpoint("megatron/torch_dist_mtp_tp2_pp2"), "files", "--to", "megatron-legacy", "--tp", "2",
           "--only", "decoder.*", "--only", "embedding.*", "--only", "output_layer.*")
    refuse(sh, "files", 13, "found 0 multi-token prediction layers, expected 1")
    whole = layers(["self_attention.linear_proj.weight", "mlp.linear_fc2.weight"], 3)
    for lost in whole:
        model = {name: value for name, value in whole.items() if name != lost}
        layer, weight = int(lost.split(".")[2]), lost.split(".", 3)[3]
        if layer != 2:
            refuse(sh, files_of_a_rank(sh, model, num_layers=3), 13, rf"layer {layer} has no {weight}, which layer \d has")
    some = {name: value for name, value in whole.items() if not name.startswith("decoder.layers.1.mlp")}
    sh.run("convert", files_of_a_rank(sh, some, num_layers=3, heterogeneous_layers_config_path="layers.json"), "all.safetensors", out="^done ")
    linear = {**layers(["self_attention.in_proj.weight", "self_attention.A_log"], 1), "decoder.layers.1.self_attention.linear_proj.weight": torch_file.Tensor([1] * 8, [2, 4])}
    sh.run("convert", files_of_a_rank(sh, linear), "all.safetensors", "--overwrite", out="^done ")  # layers of Qwen3-Next
    predicted = {f"mtp.layers.{layer}.eh_proj.weight": torch_file.Tensor([1] * 8, [2, 4]) for layer in (0, 1)}
    for number, code in ((None, 13), (1, 13), (2, 0), (3, 13)):
        run = files_of_a_rank(sh, {**layers(["self_attention.linear_proj.weight"], 2), **predicted}, mtp_num_layers=number)
        sh.run("convert", run, "all.safetensors", "--overwrite", code=code)
    del predicted["mtp.layers.0.eh_proj.weight"]
    run = files_of_a_rank(sh, {**layers(["self_attention.linear_proj.weight"], 2), **predicted}, mtp_num_layers=1)
    refuse(sh, run, 13, "found 1 multi-token prediction layers, not numbered from 0, expected 1")
    model = {"embedding.word_embeddings.weight": torch_file.Tensor([1] * 8, [2, 4]), **layers(["self_attention.linear_proj.weight"], 2)}
    run = files_of_a_rank(sh, model, untie_embeddings_and_output_weights=True)
    sh.run("convert", run, "all.safetensors", "--overwrite", err="warning: no rank has output_layer.weight")


def case_quick_geglu_is_gated(sh):
    """As --swiglu: each tensor-parallel rank has a part of the gate and one of the up projection."""
    run = sh.path("rank")
    for rank in range(2):
        values = [10 * half + 2 * rank + row for half in (1, 2) for row in range(2)]
        save({"args": Namespace(num_layers=1, world_size=2, data_parallel_size=1, tensor_model_parallel_size=2, rank=rank, quick_geglu=True,
                                ffn_hidden_size=4), "iteration": 5,
              "model": {"decoder.layers.0.mlp.linear_fc1.weight": torch_file.Tensor(values, [4, 1])}},
             run / f"mp_rank_0{rank}" / "model_optim_rng.pt")
    sh.run("export", run, "fc1.npy", "--slice", "decoder.layers.mlp.linear_fc1.weight[0:1, 0:8, 0:1]")
    got = struct.unpack("<8f", sh.path("fc1.npy").read_bytes()[-32:])
    check(got == (10, 11, 12, 13, 20, 21, 22, 23), str(got))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
