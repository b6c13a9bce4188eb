#include "convert/profile_tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "format/checked.hpp"
#include "format/model/map_rules.hpp"
#include "format/naming/model_config.hpp"
#include "format/naming/segments.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

using naming::Cutting;
using naming::Form;
using naming::Rule;
using naming::Segment;

constexpr std::uint64_t kMostLayers = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostExperts = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostPieces = std::uint64_t{1} << 19;
constexpr std::string_view kLayer = "{l}.";
constexpr std::string_view kExpert = "{e}";
constexpr std::string_view kPrediction = "mtp_num_layers";
constexpr std::string_view kLayers = "decoder.layers.{l}.";
constexpr std::string_view kPredictionLayers = "mtp.layers.";
constexpr std::array<std::string_view, 4> kWrappers{"", "module.", "model.", "model.module."};

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

/// Of one layer and one expert, where a rule has them.
std::string named(const std::string& pattern, std::uint64_t layer, std::uint64_t expert) {
  return replaced(replaced(pattern, "{l}", std::to_string(layer)), kExpert, std::to_string(expert));
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Megatron-LM's tensor of a rule: the whole one that holds a layer's and an expert's, and which dimensions are theirs.
struct Holder {
  std::string name;
  Shape outer{};  ///< sizes of the dimensions for layers and experts, in this order
  Shape at{};     ///< of this layer and this expert
};

class Maker {
 public:
  Maker(const Map& map, const ProfileUse& use, const std::string& root, std::vector<bool>& used)
      : map_(map), use_(use), root_(root), used_(used) {}

  Result<std::vector<MadeTensor>> run() {
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      const Tensor& tensor = map_.tensors[t];
      if (tensor.role == Role::param || tensor.role == Role::buffer) by_name_.emplace(tensor.name, t);
    }
    CKPT_TRY(layers_, size_of("num_layers", kMostLayers));
    if (use_.settings.is_set("num_experts")) {
      CKPT_TRY(experts_, size_of("num_experts", kMostExperts));
    }
    sparse_ = naming::expert_layers(use_.settings, layers_);
    if (use_.settings.is_set(kPrediction)) {
      CKPT_TRY(const std::uint64_t more, size_of(kPrediction, kMostLayers));
      sparse_.insert(sparse_.end(), more, bool{sparse_.back()});
    }
    find_wrapper();
    std::vector<const Rule*> rest;
    for (const Rule& rule : use_.profile.rules) {
      if (rule.has_layer()) {
        rest.push_back(&rule);
      } else if (holds(rule, 0)) {
        CKPT_CHECK(apply(rule, 0));
      }
    }
    for (std::uint64_t layer = 0; layer < sparse_.size(); ++layer) {
      for (const Rule* rule : rest) {
        if (holds(*rule, layer)) CKPT_CHECK(apply(*rule, layer));
      }
      if (layer >= layers_ && use_.to == MapRules::Side::hf) copy(layer);
    }
    return std::move(made_);
  }

 private:
  tl::unexpected<Error> refused(const std::string& name, const std::string& reason,
                                std::string hint = std::string(kProfileHint)) const {
    return fail(profile_error(Errc::unsupported, root_, name, reason, std::move(hint)));
  }

  tl::unexpected<Error> contradiction(const std::string& name, const std::string& reason) const {
    return fail(
        profile_error(Errc::corrupt, root_, name, reason,
                      "if the training arguments or config.json are wrong, override them with --vocab-size N or "
                      "--names hf:PROFILE"));
  }

  Result<std::uint64_t> size_of(std::string_view setting, std::uint64_t most) const {
    const auto value = use_.settings.count(setting);
    if (!value || *value == 0 || *value > most)
      return refused(std::string(setting), value ? fmt::format("{}", *value) : "not known");
    return *value;
  }

  bool holds(const Rule& rule, std::uint64_t layer) const {
    if (rule.is_of_prediction() && layer < layers_) return false;
    return std::ranges::all_of(rule.when, [&](const naming::Condition& one) {
      const bool is_sparse = sparse_[static_cast<std::size_t>(layer)];
      const bool is = one.setting == "moe"     ? is_sparse
                      : one.setting == "dense" ? !is_sparse
                                               : use_.settings.is_set(one.setting);
      return is == one.is_set;
    });
  }

  /// A name of Megatron-LM with the layer's number; multi-token prediction layers follow the others, whose rules hold for
  /// them, too.
  std::string in_layer(const std::string& name, std::uint64_t layer) const {
    if (layer < layers_) return replaced(name, "{l}", std::to_string(layer));
    const std::string own = fmt::format("{}{}.", kPredictionLayers, layer - layers_);
    return replaced(replaced(name, kLayers, own + "transformer_layer."), "mtp.layers.{l}.", own);
  }

  /// Whether each layer has the tensor, which are then stacked.
  bool is_in_all(const Rule& rule) {
    const auto [known, is_new] = in_all_.emplace(&rule, true);
    for (std::uint64_t layer = 0; is_new && layer < layers_; ++layer)
      known->second = known->second && holds(rule, layer);
    return known->second;
  }

  /// Layers are stacked where all have the same tensors.
  bool are_alike() {
    if (!alike_) {
      alike_ = std::ranges::all_of(use_.profile.rules, [&](const Rule& rule) {
        if (!rule.has_layer() || is_in_all(rule)) return true;
        for (std::uint64_t layer = 0; layer < layers_; ++layer) {
          if (holds(rule, layer)) return false;
        }
        return true;
      });
    }
    return *alike_;
  }

  /// Texts that wrap the model in the names of the source.
  void find_wrapper() {
    for (const std::string_view wrapper : kWrappers) {
      const bool fits = std::ranges::any_of(use_.profile.rules, [&](const Rule& rule) {
        const std::vector<std::string> names = use_.to == MapRules::Side::hf ? std::vector{rule.megatron} : rule.hf;
        return !rule.has_layer() && std::ranges::any_of(names, [&](const std::string& name) {
          return by_name_.contains(std::string(wrapper) + name);
        });
      });
      if (!fits) continue;
      wrapper_ = wrapper;
      return;
    }
  }

  std::optional<std::uint32_t> find(const std::string& name) const {
    auto found = by_name_.find(wrapper_ + name);
    const std::string& prefix = use_.profile.prefix;
    if (found == by_name_.end() && !prefix.empty() && name.starts_with(prefix))
      found = by_name_.find(name.substr(prefix.size()));
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }

  Result<> apply(const Rule& rule, std::uint64_t layer) {
    auto cutting = naming::cutting_of(rule, use_.settings);
    const std::string name = named(in_layer(rule.megatron, layer), layer, 0);
    if (!cutting) {
      if (cutting.error().code == Errc::not_found)
        return refused(name, fmt::format("cannot compute its shape: {} is unknown", cutting.error().message));
      return contradiction(name, cutting.error().message);
    }
    const std::uint64_t experts = rule.has_expert() ? experts_ : 1;
    for (std::uint64_t expert = 0; expert < experts; ++expert) {
      pieces_ += cutting->segments.size();
      if (pieces_ > kMostPieces) return refused(name, "too many parts");
      CKPT_CHECK(use_.to == MapRules::Side::hf ? to_hf(rule, *cutting, layer, expert)
                                               : to_megatron(rule, *cutting, layer, expert));
    }
    return {};
  }

  /// The dimensions of a whole tensor and those of a rule's; rows of an embedding may be more.
  Result<> check_shape(const Tensor& tensor, const Shape& expected, std::optional<std::size_t> padded) const {
    bool fits = tensor.shape.size() == expected.size();
    for (std::size_t d = 0; fits && d < expected.size(); ++d)
      fits = padded == d ? tensor.shape[d] >= expected[d] : tensor.shape[d] == expected[d];
    if (fits) return {};
    return contradiction(tensor.name, fmt::format("shape is {}, but the model's config gives {}",
                                                  shape_text(tensor.shape), shape_text(expected)));
  }

  /// Where Megatron-LM's checkpoint has a rule's tensor: stacked by layer or not, by expert or not.
  std::optional<Holder> find_holder(const std::string& pattern, const Rule& rule, std::uint64_t layer,
                                    std::uint64_t expert) const {
    std::vector<Holder> forms{{.name = in_layer(pattern, layer)}};
    if (rule.has_layer() && layer < layers_)
      forms.insert(forms.begin(), {replaced(pattern, kLayer, ""), {layers_}, {layer}});
    for (Holder& form : forms) {
      if (!rule.has_expert()) {
        if (find(form.name)) return std::move(form);
        continue;
      }
      const std::string number = std::to_string(expert);
      const std::array<std::string, 2> single{replaced(form.name, ".{e}.", ".local_experts." + number + "."),
                                              replaced(form.name, ".{e}.", ".") + number};
      for (const std::string& name : single) {
        if (find(name)) return Holder{name, form.outer, form.at};
      }
      form.name = replaced(form.name, kExpert, "experts");
      form.outer.push_back(experts_);
      form.at.push_back(expert);
      if (find(form.name)) return std::move(form);
    }
    return std::nullopt;
  }

  TensorPiece piece_of(const Rule& rule, const Segment& segment, const Holder& holder) const {
    TensorPiece piece{.from = segment.megatron, .to = segment.hf};
    piece.from.offset.insert(piece.from.offset.begin(), holder.at.begin(), holder.at.end());
    piece.from.size.insert(piece.from.size.begin(), holder.at.size(), 1);
    const auto outer = static_cast<std::int8_t>(holder.at.size());
    for (std::size_t d = 0; d < segment.hf.size.size(); ++d) {
      const std::size_t own = rule.is_transposed && d < 2 ? 1 - d : d;
      piece.axes.push_back(static_cast<std::int8_t>(outer + static_cast<std::int8_t>(own)));
    }
    return piece;
  }

  Result<> to_hf(const Rule& rule, const Cutting& cutting, std::uint64_t layer, std::uint64_t expert) {
    std::optional<Holder> holder = find_holder(rule.megatron, rule, layer, expert);
    for (const std::string& other : rule.others) {
      if (!holder) holder = find_holder(other, rule, layer, expert);
    }
    if (!holder) return missing(named(in_layer(rule.megatron, layer), layer, expert));
    const std::uint32_t source = *find(holder->name);
    Shape expected = holder->outer;
    expected.insert(expected.end(), cutting.megatron.begin(), cutting.megatron.end());
    const bool is_padded = rule.form == Form::vocab;
    CKPT_CHECK(
        check_shape(map_.tensors[source], expected, is_padded ? std::optional(holder->outer.size()) : std::nullopt));
    used_[source] = true;
    const std::size_t first = made_.size();
    for (std::size_t i = 0; i < rule.hf.size(); ++i)
      made_.push_back({.name = named(rule.hf[i], layer, expert), .shape = cutting.hf[i]});
    for (const Segment& segment : cutting.segments) {
      TensorPiece piece = piece_of(rule, segment, *holder);
      piece.source = source;
      made_[first + segment.tensor].pieces.push_back(std::move(piece));
    }
    return {};
  }

  Result<> to_megatron(const Rule& rule, const Cutting& cutting, std::uint64_t layer, std::uint64_t expert) {
    std::vector<std::uint32_t> sources;
    for (std::size_t i = 0; i < rule.hf.size(); ++i) {
      const std::string name = named(rule.hf[i], layer, expert);
      const auto found = find(name);
      if (!found) return missing(name);
      CKPT_CHECK(check_shape(map_.tensors[*found], cutting.hf[i], std::nullopt));
      used_[*found] = true;
      sources.push_back(*found);
    }
    Holder holder{.name = in_layer(rule.megatron, layer)};
    if (rule.has_layer() && layer < layers_ && are_alike()) {
      holder = {replaced(rule.megatron, kLayer, ""), {layers_}, {layer}};
    }
    if (rule.has_expert()) {
      holder.name = replaced(holder.name, kExpert, "experts");
      holder.outer.push_back(experts_);
      holder.at.push_back(expert);
    }
    Shape inner = cutting.megatron;
    if (rule.form == Form::vocab) {
      CKPT_TRY(const std::uint64_t grown, checked_add(inner[0], use_.vocab_multiple - 1));
      inner[0] = grown / use_.vocab_multiple * use_.vocab_multiple;
    }
    MadeTensor& into = whole(holder, inner);
    for (const Segment& segment : cutting.segments) {
      const TensorPiece there = piece_of(rule, segment, holder);
      TensorPiece piece{.source = sources[segment.tensor], .from = there.to, .to = there.from};
      piece.axes.assign(holder.at.size(), TensorPiece::kRepeated);
      for (std::size_t d = 0; d < segment.megatron.size.size(); ++d)
        piece.axes.push_back(static_cast<std::int8_t>(rule.is_transposed && d < 2 ? 1 - d : d));
      into.pieces.push_back(std::move(piece));
    }
    if (inner[0] != cutting.megatron[0]) pad(into, cutting.megatron[0]);
    return {};
  }

  /// What the names of transformers repeat in a multi-token prediction layer.
  void copy(std::uint64_t layer) {
    for (const naming::Copy& one : use_.profile.copies) {
      const auto original = std::ranges::find(made_, one.of, &MadeTensor::name);
      if (original == made_.end()) continue;
      MadeTensor again = *original;
      again.name = named(one.name, layer, 0);
      again.is_copy = true;
      made_.push_back(std::move(again));
    }
  }

  /// Rows of padding repeat the last one, as those of Megatron-LM's own converter.
  /// source  megatron-lm: tools/checkpoint/saver_base.py
  static void pad(MadeTensor& tensor, std::uint64_t rows) {
    TensorPiece piece = tensor.pieces.back();
    piece.from.offset[0] = rows - 1;
    piece.from.size[0] = 1;
    piece.to.offset[0] = rows;
    piece.to.size[0] = tensor.shape[0] - rows;
    piece.axes[0] = TensorPiece::kRepeated;
    tensor.pieces.push_back(std::move(piece));
  }

  MadeTensor& whole(const Holder& holder, const Shape& inner) {
    const auto [known, is_new] = by_made_name_.emplace(holder.name, made_.size());
    if (is_new) {
      made_.push_back({.name = holder.name, .shape = holder.outer});
      made_.back().shape.insert(made_.back().shape.end(), inner.begin(), inner.end());
    }
    return made_[known->second];
  }

  /// Whether a rule has a name of the source, of any layer and expert.
  bool is_in_a_rule(const std::string& name) const {
    return std::ranges::any_of(use_.profile.rules, [&](const Rule& rule) {
      std::vector<std::string> patterns = rule.hf;
      if (use_.to == MapRules::Side::hf)
        patterns = {rule.megatron, replaced(rule.megatron, kLayer, ""), in_layer(rule.megatron, layers_)};
      return std::ranges::any_of(patterns, [&](const std::string& pattern) {
        return match_stars(name, wrapper_ + replaced(replaced(pattern, "{l}", "*"), kExpert, "*")).has_value();
      });
    });
  }

  tl::unexpected<Error> missing(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& [known, index] : by_name_)
      if (!is_in_a_rule(known)) names.push_back(known);
    std::ranges::sort(names);
    const auto meant = nearest(name, names);
    return refused(name, fmt::format("not in the source, but profile {} requires it", use_.profile.family),
                   meant ? fmt::format("nearest tensor: {}", *meant) : std::string(kProfileHint));
  }

  const Map& map_;
  const ProfileUse& use_;
  const std::string& root_;
  std::vector<bool>& used_;
  std::unordered_map<std::string, std::uint32_t> by_name_{};
  std::unordered_map<const Rule*, bool> in_all_{};
  std::optional<bool> alike_{};
  std::uint64_t layers_ = 0;
  std::vector<bool> sparse_{};  // layers with experts
  std::uint64_t experts_ = 0;
  std::uint64_t pieces_ = 0;
  std::string wrapper_{};
  std::vector<MadeTensor> made_{};
  std::unordered_map<std::string, std::size_t> by_made_name_{};
};

}  // namespace

Error profile_error(Errc code, const std::string& root, const std::string& name, const std::string& reason,
                    std::string hint) {
  return {.code = code,
          .message = fmt::format("{}: --names: {}: {}", root, name, reason),
          .file = root,
          .tensor = name,
          .hint = std::move(hint)};
}

bool has_prediction(const Map& map, const naming::Settings& settings, MapRules::Side to) {
  const std::string place = to == MapRules::Side::hf
                                ? std::string(kPredictionLayers)
                                : fmt::format("layers.{}.", settings.count("num_layers").value_or(0));
  return settings.is_set(kPrediction) && std::ranges::any_of(map.tensors, [&](const Tensor& tensor) {
           return tensor.name.find(place) != std::string::npos;
         });
}

Result<std::vector<MadeTensor>> profile_tensors(const Map& map, const ProfileUse& use, const std::string& root,
                                                std::vector<bool>& used) {
  return Maker(map, use, root, used).run();
}

}  // namespace ckpt
