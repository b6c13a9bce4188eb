#include "convert/apply_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/checked.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

/// The location of a tensor of the new map: a tensor of the old one, or a run of it.
struct Origin {
  std::uint32_t tensor = 0;
  std::optional<std::uint64_t> flat_begin{};
  Shape shape{};  ///< of a run
};

Error about(const MapRules& rules, const Tensor& tensor, std::string reason) {
  return {.code = Errc::usage,
          .message = fmt::format("{}: --map: {}: {}", rules.path(), tensor.name, reason),
          .file = rules.path(),
          .tensor = tensor.name};
}

/// The chunks of the new map, asked of the old one's index.
class RuledIndex final : public ChunkIndex {
 public:
  RuledIndex(std::shared_ptr<const ChunkIndex> all, std::vector<Origin> origins)
      : all_(std::move(all)), origins_(std::move(origins)) {}

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override {
    const Origin& origin = origins_[tensor];
    if (!origin.flat_begin) return all_->chunks(origin.tensor, elements, visit);
    return all_->chunks(origin.tensor, in_flat(origin, elements), [&](const PlacedChunk& placed) -> Result<> {
      auto part = part_of(origin, placed.chunk);
      if (!part) return {};
      if (!placed.where.strides.empty()) {
        return fail(Errc::unsupported, "--map: a flat tensor whose elements are not contiguous");
      }
      PlacedChunk out{.chunk = std::move(part->first), .where = placed.where};
      out.where.offset += part->second * unit_bytes(placed.where.dtype);
      return visit(out);
    });
  }
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override {
    const Origin& origin = origins_[tensor];
    if (!origin.flat_begin) return all_->regions(origin.tensor, elements, visit);
    return all_->regions(origin.tensor, in_flat(origin, elements), [&](const Chunk& chunk) -> Result<> {
      const auto part = part_of(origin, chunk);
      return part ? visit(part->first) : Result<>();
    });
  }

 private:
  static Extent in_flat(const Origin& origin, Extent elements) {
    return {*origin.flat_begin + elements.begin, *origin.flat_begin + elements.end};
  }
  /// The part of a parameter in a chunk of the flat tensor, and how many of the chunk's elements precede it.
  static std::optional<std::pair<Chunk, std::uint64_t>> part_of(const Origin& origin, const Chunk& chunk) {
    const std::uint64_t first = chunk.box.offset[0];
    const Extent held = chunk.flat ? Extent{first + chunk.flat->begin, first + chunk.flat->end}
                                   : Extent{first, first + chunk.box.size[0]};
    const Extent wanted = in_flat(origin, {0, volume(origin.shape)});
    const std::uint64_t begin = std::max(held.begin, wanted.begin);
    const std::uint64_t end = std::min(held.end, wanted.end);
    if (begin >= end) return std::nullopt;
    return std::pair(Chunk{Box::whole(origin.shape), Extent{begin - wanted.begin, end - wanted.begin}},
                     begin - held.begin);
  }

  std::shared_ptr<const ChunkIndex> all_;
  std::vector<Origin> origins_;
};

/// Divides a flat tensor into its parameters.
Result<> cut_flat(const MapRules& rules, const std::vector<MapRules::HeldRule>& held, const Tensor& flat,
                  std::uint32_t index, std::vector<Tensor>& tensors, std::vector<Origin>& origins) {
  if (flat.shape.size() != 1 || is_packed(flat.dtype)) return fail(about(rules, flat, "it is not a flat tensor"));
  std::uint64_t at = 0;
  for (const MapRules::HeldRule& part : held) {
    CKPT_TRY(const std::uint64_t elements, checked_volume(part.shape));
    CKPT_TRY(const std::uint64_t end, checked_add(at, elements));
    if (!part.name.empty()) {
      Tensor tensor = flat;
      tensor.name = part.name;
      tensor.path.clear();
      tensor.shape = part.shape;
      tensors.push_back(std::move(tensor));
      origins.push_back({index, at, part.shape});
    }
    at = end;
  }
  if (at != flat.shape[0]) {
    return fail(
        about(rules, flat, fmt::format("it has {} elements, but the rule's shapes have {}", flat.shape[0], at)));
  }
  return {};
}

Result<> rename_all(Map& map, const MapRules& rules) {
  const auto rename = [&](std::string& name) {
    auto renamed = rules.renamed(name);
    if (!renamed) return false;
    name = *std::move(renamed);
    return true;
  };
  for (Tensor& tensor : map.tensors) {
    if (rename(tensor.name)) tensor.path.clear();
    if (!tensor.parameter.empty()) rename(tensor.parameter);
  }
  for (Alias& alias : map.aliases) {
    if (rename(alias.name)) alias.path.clear();
    rename(alias.target);
  }
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : map.tensors) {
    if (!names.insert(tensor.name).second) return fail(about(rules, tensor, "two tensors would get this name"));
  }
  for (const Alias& alias : map.aliases) {
    if (alias.name == alias.target || names.insert(alias.name).second) continue;
    return fail(about(rules, {.name = alias.name}, "a tied name and another tensor would get this name"));
  }
  return {};
}

/// The names of tensors and aliases, each also without its first parts: a user may leave out a wrapper ("model.",
/// "pytorch_model.bin/"). Refers to the map's names.
class KnownNames {
  static constexpr std::size_t kMostParts = 256;  ///< of a longer name only the first are found without it

 public:
  explicit KnownNames(const Map& map) {
    for (const Tensor& tensor : map.tensors) add(tensor.role == Role::slot ? tensor.parameter : tensor.name);
    for (const Alias& alias : map.aliases) add(alias.name);
  }

  /// The whole name, or null.
  const std::string* find(std::string_view name) const {
    const auto found = whole_of_.find(name);
    return found == whole_of_.end() ? nullptr : found->second;
  }
  Error missing(const MapRules& rules, const std::string& name, const std::string& where) const {
    Error error = about(rules, {.name = name}, "listed in " + where + ", but not the name of one tensor");
    if (const auto meant = nearest(name, all_)) error.hint = "did you mean " + *meant + "?";
    return error;
  }

 private:
  void add(const std::string& name) {
    if (name.empty()) return;
    const auto [known, is_new] = whole_of_.emplace(name, &name);
    if (!is_new && known->second != nullptr && *known->second == name) return;
    known->second = &name;  // a whole name counts before a part of another
    all_.push_back(name);
    std::size_t parts = 0;  // each is hashed to its end
    for (std::size_t at = name.find_first_of("./"); at != std::string::npos && parts < kMostParts;
         at = name.find_first_of("./", at + 1), ++parts)
      add_part(std::string_view(name).substr(at + 1), name);
  }

  /// A part that several names have is no name.
  void add_part(std::string_view part, const std::string& name) {
    const auto [known, is_new] = whole_of_.emplace(part, &name);
    if (!is_new && known->second != nullptr && *known->second != part) known->second = nullptr;
  }

  std::unordered_map<std::string_view, const std::string*> whole_of_;
  std::vector<std::string> all_;
};

/// Gives the name of a tied pair that no file holds to the tensor that has the other one.
Result<> add_tied(Map& map, const MapRules& rules) {
  if (rules.tied().empty()) return {};
  std::vector<Alias> added;
  const KnownNames names(map);
  std::unordered_map<std::string_view, const Alias*> aliases;
  for (const Alias& alias : map.aliases) aliases.emplace(alias.name, &alias);
  for (const auto& [first, second] : rules.tied()) {
    const std::string* one = names.find(first);
    const std::string* other = names.find(second);
    if (one == nullptr && other == nullptr) return fail(names.missing(rules, second, "tied"));
    if (one != nullptr && other != nullptr) continue;
    const std::string& held = one != nullptr ? *one : *other;
    const std::string& given = one != nullptr ? first : second;
    const auto alias = aliases.find(held);
    added.push_back({.name = held.substr(0, held.size() - given.size()) + (one != nullptr ? second : first),
                     .target = alias == aliases.end() ? held : alias->second->target});
  }
  std::ranges::move(added, std::back_inserter(map.aliases));
  return {};
}

Result<> keep_order(Map& map, const MapRules& rules) {
  if (rules.parameters().empty()) return {};
  const KnownNames names(map);
  for (const std::string& name : rules.parameters()) {
    const std::string* whole = names.find(name);
    if (whole == nullptr) return fail(names.missing(rules, name, "parameters"));
    map.parameter_order.push_back(*whole);
  }
  return {};
}

}  // namespace

Result<> apply_rules(Map& map, const MapRules& rules, const std::string& root) {
  map.whole = nullptr;  // it has the names of before
  std::vector<Tensor> tensors;
  std::vector<Origin> origins;
  bool any = false;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    const std::vector<MapRules::HeldRule>* held = rules.holds(map.tensors[i].name);
    if (held == nullptr) {
      tensors.push_back(map.tensors[i]);
      origins.push_back({i, std::nullopt, {}});
      continue;
    }
    any = true;
    CKPT_CHECK(cut_flat(rules, *held, map.tensors[i], i, tensors, origins));
  }
  if (any && !map.derived.empty()) {
    return fail(Errc::unsupported, root + ": --map: flat tensors beside weights that are derived from others");
  }
  if (any) {
    map.tensors = std::move(tensors);
    map.index = std::make_shared<RuledIndex>(std::move(map.index), std::move(origins));
  }
  CKPT_CHECK(rename_all(map, rules));
  CKPT_CHECK(add_tied(map, rules));
  CKPT_CHECK(keep_order(map, rules));
  for (const std::string& pattern : rules.unused()) {
    map.findings.push_back({.severity = Severity::warning,
                            .text = fmt::format("{}: the rule for '{}' matches no tensor", rules.path(), pattern)});
  }
  Hasher hasher;
  hasher.update(map.metadata_hash);
  hasher.update(rules.hash().hex());
  map.metadata_hash = hasher.digest().hex();
  return {};
}

Result<> refuse_flat_parameters(const Map& map, const std::string& root) {
  for (const Tensor& tensor : map.tensors) {
    const std::string_view name = tensor.name;
    const std::string_view last = name.substr(name.rfind('.') + 1);
    if ((last != "_flat_param" && last != "flat_param") || tensor.shape.size() != 1) continue;
    return fail(
        Error{.code = Errc::unsupported,
              .message = fmt::format("{}: {} is the flat tensor of an FSDP unit, {} elements; no file stores the "
                                     "names and shapes of its parameters",
                                     root, tensor.name, tensor.shape[0]),
              .file = root,
              .tensor = tensor.name,
              .hint = "--map FILE    lists them in module order: {\"ckpt-map\": 1, \"rules\": [{\"tensor\": \"" +
                      tensor.name + "\", \"holds\": [{\"name\": \"weight\", \"shape\": [2, 3]}, ...]}, ...]}"});
  }
  return {};
}

}  // namespace ckpt
