"""The model of a run, as a rank of a job of any size makes it with megatron-core on the CPU."""
import os
import warnings

import torch

warnings.simplefilter("ignore")
torch.cuda.current_device = lambda: "cpu"  # megatron-core asks for these, and for nothing else of CUDA
torch.cuda.synchronize = lambda *_: None
torch.Tensor.cuda = lambda tensor, *_, **__: tensor


def join_group(rank, world, port, tensor, pipeline, expert, expert_tensor):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      GLOO_SOCKET_IFNAME="lo")
    from megatron.core import parallel_state
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(tensor, pipeline, expert_model_parallel_size=expert,
                                             expert_tensor_parallel_size=expert_tensor)


def config_of(args, tensor, pipeline, expert, expert_tensor):
    from megatron.core.transformer.transformer_config import TransformerConfig
    is_moe = args.num_experts is not None
    return TransformerConfig(
        num_layers=args.num_layers, hidden_size=args.hidden_size, ffn_hidden_size=args.ffn_hidden_size,
        num_attention_heads=args.num_attention_heads, num_query_groups=args.num_query_groups, kv_channels=args.kv_channels,
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, expert_model_parallel_size=expert,
        expert_tensor_parallel_size=expert_tensor,
        pipeline_dtype=torch.bfloat16, gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization=args.normalization,
        add_bias_linear=False, num_moe_experts=args.num_experts, moe_ffn_hidden_size=args.moe_ffn_hidden_size if is_moe else None,
        moe_shared_expert_intermediate_size=args.moe_shared_expert_intermediate_size if is_moe else None, use_cpu_initialization=True,
        mtp_num_layers=getattr(args, "mtp_num_layers", None), bf16=True, params_dtype=torch.bfloat16, perform_initialization=False)


def model_of(args, config):
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    layer = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, normalization=args.normalization)
    prediction = get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False) if config.mtp_num_layers else None
    return GPTModel(
        config=config, transformer_layer_spec=layer, mtp_block_spec=prediction,
        vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, position_embedding_type="rope").bfloat16()


class OnCpu(torch.overrides.TorchFunctionMode):
    """Optimizers make tensors on CUDA devices, and know weights of half precision by the name of their CUDA type."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        result = function(*arguments, **options)
        return result.replace("torch.", "torch.cuda.") if function is torch.Tensor.type and len(arguments) == 1 else result


def rank_folder(tensor, pipeline, expert):
    """Of this rank's files, in the folder of an iteration."""
    from megatron.core import parallel_state
    folder = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if pipeline > 1:
        folder += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if expert > 1:
        folder += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    return folder


def resumed(iteration, tensor, pipeline, expert, expert_tensor):
    """What --ckpt-format torch loads from a rank's files: the arguments, the model, and its optimizer."""
    OnCpu().__enter__()
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    set_state = DistributedOptimizer._set_main_param_and_optimizer_states

    def set_state_but_step(self, weight, tensors):
        """With torch's Adam megatron-core asks its own file for steps, which it stores with the parameter groups."""
        group, order = self.model_param_group_index_map[weight]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        set_state(self, weight, tensors | {"step": state["step"]})

    DistributedOptimizer._set_main_param_and_optimizer_states = set_state_but_step
    folder = rank_folder(tensor, pipeline, expert)
    state = torch.load(iteration / folder / "model_optim_rng.pt", weights_only=False)
    args = state["args"]
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (tensor, pipeline)
    config = config_of(args, tensor, pipeline, expert, expert_tensor)
    model = model_of(args, config)
    model.load_state_dict(state["model"], strict=True)
    is_distributed = args.use_distributed_optimizer
    reduction = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=is_distributed, overlap_grad_reduce=False)
    parallel = DistributedDataParallel(config, reduction, model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=is_distributed), [parallel])
    optimizer.load_state_dict(state["optimizer"])
    if is_distributed:
        optimizer.load_parameter_state(str(iteration / folder / "distrib_optim.pt"))
    return state, model, optimizer
