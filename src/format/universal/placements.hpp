#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/universal/mesh_layout.hpp"

/// How trainers place tensors on ranks, as layouts. Each function adds one step to a layout and returns it, so that
/// steps combine in the order in which the trainer takes them: replicated(mesh), then pipeline stage, then tensor
/// parallel, then data parallel. Axes that no step names replicate. Axes are indices into the mesh.
///
/// All fail with `usage`: an axis that does not exist or is already used, sizes that the trainer's own rule would
/// refuse.
namespace ckpt::universal::placement {

/// The axis of this name.
/// errors  usage: there is none
Result<std::uint32_t> axis(const Mesh& mesh, std::string_view name);

/// The same on every rank of the mesh.
/// source   DTensor Replicate; biases and norms of Megatron and DeepSpeed
Layout replicated(Mesh mesh);

// --- shards of one dimension -----------------------------------------------------------------------------------------

/// Parts of ceil(n / ranks) rows of the rest left by earlier steps; trailing ranks
/// may hold nothing. Over one axis of a mesh of (replicate, shard) this is HSDP;
/// after a step of tensor parallelism along the same dimension it is DTensor's
/// strided shard.
/// source  PyTorch FSDP2: torch/distributed/fsdp/_fully_shard/_fsdp_param.py FSDPParam._init_sharded_param, by
///         _fsdp_common.py _chunk_with_empty (torch.chunk); DTensor: placement_types.py Shard, _StridedShard
Result<Layout> fsdp_shard(Layout layout, std::uint32_t dim, std::vector<std::uint32_t> axes);

/// Parts that differ by at most one row, the longer ones first.
/// source   torch.tensor_split, numpy.array_split
Result<Layout> even_shard(Layout layout, std::uint32_t dim, std::vector<std::uint32_t> axes);

// --- tensor parallelism ----------------------------------------------------------------------------------------------

/// A dimension in equal parts: `length` must divide. Column parallel weights are [out, in] and their biases [out]: dim
/// 0; row parallel weights: dim 1, their biases replicate.
/// source  Megatron-LM megatron/core/tensor_parallel/layers.py
/// ColumnParallelLinear, RowParallelLinear (utils.py divide)
struct Divided {
  std::uint32_t axis = 0;
  std::uint32_t dim = 0;
  std::uint64_t length = 0;  ///< of the whole dimension
};
Result<Layout> tensor_parallel(Layout layout, const Divided& divided);

/// An embedding [vocabulary, h] without the rows that pad it: ranks hold equal ranges of the padded vocabulary,
/// clipped. The padded size is the next multiple of divisible_by * ranks. A tensor that keeps its padding is
/// `tensor_parallel`.
/// source  Megatron-LM megatron/training/tokenizer: _vocab_size_with_padding
/// (--make-vocab-size-divisible-by, 128);
///          megatron/core/tensor_parallel/utils.py VocabUtility.vocab_range_from_global_vocab_size
struct Vocabulary {
  std::uint32_t axis = 0;
  std::uint64_t rows = 0;  ///< real ones
  std::uint64_t divisible_by = 128;
};
Result<Layout> vocabulary(Layout layout, const Vocabulary& vocabulary);

/// Fused QKV whose rows are groups of (heads / groups) query heads, one key head, one value head: ranks hold whole
/// groups.
/// source  Megatron-LM megatron/core/transformer/attention.py SelfAttention (linear_qkv,
///         num_query_groups). More ranks than groups share groups there, which is not a division of rows:
///         refused
struct GroupedQkv {
  std::uint32_t axis = 0;
  std::uint64_t heads = 0;
  std::uint64_t groups = 0;  ///< divides `heads`; = heads without grouped queries
  std::uint64_t head_rows = 0;
};
Result<Layout> grouped_qkv(Layout layout, const GroupedQkv& qkv);

/// Several projections stacked along a dimension, of which every rank holds an equal part each: [Q;
/// K; V], [gate; up]. The whole tensor keeps them stacked; a rank's local array is its parts
/// stacked.
/// source  [Q; K; V]: deepspeed/module_inject/fusedqkv_utils.py; [gate; up]: Megatron-LM
///         megatron/core/transformer/mlp.py apply_swiglu_sharded_factory
struct Stacked {
  std::uint32_t axis = 0;
  std::uint32_t dim = 0;
  std::vector<std::uint64_t> lengths{};  ///< of each projection: all of them must divide
};
Result<Layout> stacked(Layout layout, const Stacked& stacked);

// --- pipelines and experts -------------------------------------------------------------------------------------------

/// Only ranks of these stages hold the tensor; several hold the same (an embedding tied to the output layer).
Result<Layout> at_stages(Layout layout, std::uint32_t axis, std::vector<std::uint64_t> stages);

/// The stage of a layer where each stage runs `virtual_stages` pieces of consecutive layers in turn.
/// source   Megatron-LM megatron/core/transformer/transformer_layer.py get_transformer_layer_offset
///          (--num-layers-per-virtual-pipeline-stage)
struct Pipeline {
  std::uint64_t layers = 0;  ///< stages * virtual_stages divides it
  std::uint64_t stages = 1;
  std::uint64_t virtual_stages = 1;
};
Result<std::uint64_t> stage_of_layer(const Pipeline& pipeline, std::uint64_t layer);

/// A tensor of one expert: only ranks whose group has it hold it. Experts are dealt in order, equally many a group.
/// source   Megatron-LM megatron/core/transformer/moe/moe_layer.py BaseMoELayer (local_expert_indices);
///          deepspeed/moe/layer.py MoE (num_local_experts)
struct Experts {
  std::uint32_t axis = 0;
  std::uint64_t count = 0;  ///< the axis divides it
};
Result<Layout> at_expert(Layout layout, const Experts& experts, std::uint64_t expert);

// --- flat divisions --------------------------------------------------------------------------------------------------

/// A parameter group laid end to end and divided among data-parallel ranks without regard to its parameters.
/// source   cut::flat_group: DeepSpeed ZeRO stages 1 and 2, BF16_Optimizer
struct FlatGroupPlaces {
  std::uint64_t part = 0;               ///< elements of every rank's part
  std::vector<std::uint64_t> begins{};  ///< of each parameter in the group: the rows' `begin`
};
struct FlatGroupOptions {
  std::span<const std::uint64_t>
      element_counts{};            ///< of the parameters in the group's order; under tensor parallelism
                                   ///< those of the local parts, which must be equal on all ranks
  std::uint64_t ranks = 1;         ///< data-parallel
  std::uint64_t align_factor = 2;  ///< 1 before 2021-09
};
Result<FlatGroupPlaces> flat_group(const FlatGroupOptions& options);

/// Elements of the rest left by earlier steps, in parts of `part`, counted from the tensor's offset in its group: for
/// the rows of a flat_group, and for buckets of Megatron's distributed optimizer
/// (megatron/core/optimizer/distrib_optimizer.py _build_model_gbuf_range: each bucket is divided by itself).
Result<Layout> flat_parts(Layout layout, std::vector<std::uint32_t> axes, std::uint64_t part);

/// Elements of one parameter in parts of ceil(n / ranks); `begin` is 0.
/// source   cut::partition: DeepSpeed ZeRO stage 3
///
/// element_count  of the parameter, or of its tensor-parallel part
Result<Layout> zero3(Layout layout, std::vector<std::uint32_t> axes, std::uint64_t element_count);

}  // namespace ckpt::universal::placement
