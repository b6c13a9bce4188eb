#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/megatron/rank_grid.hpp"
#include "convert/megatron/weight_rules.hpp"
#include "format/model/box.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// A weight of the whole model, as torch_dist stores it: alike layers, and experts, stacked.
struct WholeWeight {
  std::string name;
  Shape shape{};
  bool is_trained = true;
};

/// How a run's modules hold their weights.
struct ModelForm {
  bool is_local = false;                        ///< layers have norms of their own (--transformer-impl local)
  bool is_grouped = false;                      ///< experts are one module (--moe-grouped-gemm)
  bool is_transposed = false;                   ///< that module is GroupedMLP, whose weights are transposed
  bool is_gated = false;                        ///< SwiGLU and the like
  bool is_tied = false;                         ///< the output layer is the embedding
  bool has_prediction = false;                  ///< multi-token prediction layers
  std::optional<std::uint64_t> vocabulary{};    ///< without padding
  std::uint64_t vocabulary_multiple = 1;        ///< the padded one is a multiple of it, for each tensor-parallel rank
  std::optional<std::uint64_t> heads{};         ///< of attention
  std::optional<std::uint64_t> feed_forward{};  ///< inner size of layers without experts
  std::optional<std::uint64_t> expert_feed_forward{};  ///< likewise, of an expert
};

/// By a run's arguments.
ModelForm model_form(const Value& args);

/// What the module of one rank has of a weight.
struct RankWeight {
  std::string name;          ///< in the module's state dict
  std::size_t whole = 0;     ///< number of the weight
  Shape shape{};             ///< of the rank's part
  std::vector<Box> boxes{};  ///< of the whole weight: the part's rows, one behind the other. A longer vocabulary has
                             ///< fewer: the rest is padding.
  bool is_expert = false;
  bool is_shared = false;  ///< an embedding that the first and the last pipeline stage have
};

/// Divides a model among the ranks of a grid.
class ModelDivision {
 public:
  /// errors  unsupported: a weight that the sizes do not divide, or whose place is not known; named, with the nearest
  ///         tensor-parallel size that does
  static Result<ModelDivision> make(std::vector<WholeWeight> weights, const ModelForm& form, const RankGrid& grid,
                                    const std::string& target);

  /// What a rank has of a chunk of its stage, in the order of the module's parameters.
  ///
  /// source  megatron/core/models/gpt/gpt_model.py, transformer/transformer_layer.py, attention.py,
  ///         multi_latent_attention.py, multi_token_prediction.py, mlp.py, moe/moe_layer.py: the order in which modules
  ///         are made
  std::vector<RankWeight> chunk(const RankPlace& place, std::uint64_t chunk) const;

  /// A weight whose place in that order is not known; empty: there is none.
  const std::string& unordered() const { return unordered_; }
  bool has_experts() const { return experts_ != 0; }
  /// Rows of the padded vocabulary, where there is an embedding.
  std::optional<std::uint64_t> padded_vocabulary() const { return rows_; }

 private:
  /// A weight with what the ranks' parts of it have in common.
  struct Divided {
    Weight weight;
    Shape shape{};             ///< of the whole, without the axes of layers and experts
    Shape part{};              ///< of a rank
    std::uint64_t layers = 0;  ///< along its first axis; 0: that is no axis of layers
    bool is_expert = false;
    std::uint64_t prediction = 0;  ///< number of its multi-token prediction layer
    std::size_t outer = 0;         ///< place in the order: in that layer
    std::size_t module = 0;        ///< likewise, in the layer
    std::size_t member = 0;        ///< likewise, in the module
  };
  struct Ordered;

  ModelDivision(std::vector<WholeWeight> weights, const ModelForm& form, const RankGrid& grid)
      : weights_(std::move(weights)), form_(form), grid_(grid) {}
  Result<> divide(const std::string& target);
  Result<> check_count(const std::string& target) const;
  Result<> check(const WholeWeight& whole, Divided& out, const std::string& target);
  static bool order(std::string_view name, Divided& out);
  void add(std::size_t number, const RankPlace& place, std::uint64_t layer, std::uint64_t first_layer,
           std::vector<Ordered>& out) const;
  RankWeight part(std::size_t number, const RankPlace& place, std::uint64_t layer, std::uint64_t expert) const;

  std::vector<WholeWeight> weights_;
  ModelForm form_;
  RankGrid grid_;
  std::vector<Divided> divided_{};
  std::uint64_t experts_ = 0;  ///< of the model
  std::optional<std::uint64_t> rows_{};
  std::string unordered_{};
};

/// Layers of the model whose weights these are; 0: none of its weights is a layer's.
std::uint64_t count_layers(const std::vector<WholeWeight>& weights);

}  // namespace ckpt::megatron
