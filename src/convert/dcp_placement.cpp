#include "convert/dcp_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "format/checked.hpp"
#include "format/text/glob.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/placements.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::string_view kPlacementHint =
    "give one placement per mesh dimension: S0 shards dimension 0, R replicates; append :SIZE to set its size, "
    "as in R:2,S0:4";

/// One dimension of the mesh.
struct MeshWord {
  std::optional<std::uint32_t> shard_dim{};
  std::optional<std::uint64_t> size{};
};

tl::unexpected<Error> bad_placement(std::string_view text, std::string_view reason) {
  return fail(Error{.code = Errc::usage,
                    .message = fmt::format("--placement '{}': {}", text, reason),
                    .hint = std::string(kPlacementHint)});
}

Result<MeshWord> read_word(std::string_view text, std::string_view word) {
  MeshWord out;
  if (const auto colon = word.find(':'); colon != std::string_view::npos) {
    out.size = parse_number<std::uint64_t>(word.substr(colon + 1));
    if (out.size.value_or(0) == 0) return bad_placement(text, "the number after ':' is a count of ranks, at least 1");
    word = word.substr(0, colon);
  }
  if (word == "R") return out;
  if (word.starts_with('S')) out.shard_dim = parse_number<std::uint32_t>(word.substr(1));
  if (!out.shard_dim) return bad_placement(text, fmt::format("'{}' is neither R nor S with a dimension", word));
  return out;
}

Result<universal::Layout> layout_of(std::string_view text, std::uint64_t ranks) {
  std::vector<MeshWord> words;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    CKPT_TRY(const MeshWord word, read_word(text, rest.substr(0, comma)));
    words.push_back(word);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::uint64_t known = 1;
  std::size_t unknown = 0;
  for (const MeshWord& word : words) {
    if (!word.size) ++unknown;
    const auto product = checked_mul(known, word.size.value_or(1));
    if (!product || *product > ranks || ranks % *product != 0)
      return bad_placement(text, fmt::format("its sizes do not divide {} ranks", ranks));
    known = *product;
  }
  if (unknown > 1) return bad_placement(text, "only one dimension of the mesh may omit its size");
  if (unknown == 0 && known != ranks)
    return bad_placement(text, fmt::format("its mesh has {} ranks, the checkpoint {}", known, ranks));

  universal::Mesh mesh;
  for (std::size_t i = 0; i < words.size(); ++i)
    mesh.axes.push_back({.name = fmt::format("mesh{}", i), .size = words[i].size.value_or(ranks / known)});
  universal::Layout layout = universal::placement::replicated(std::move(mesh));
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    if (!words[i].shard_dim) continue;
    auto cut = universal::placement::fsdp_shard(std::move(layout), *words[i].shard_dim, {i});
    if (!cut) return bad_placement(text, cut.error().message);
    layout = *std::move(cut);
  }
  return layout;
}

}  // namespace

Result<Placements> Placements::parse(const std::vector<std::pair<std::string, std::string>>& rules,
                                     std::uint64_t ranks) {
  Placements out;
  CKPT_TRY(out.replicated_, layout_of("R", ranks));
  CKPT_TRY(out.default_, layout_of("S0", ranks));
  for (const auto& [pattern, text] : rules) {
    CKPT_TRY(universal::Layout layout, layout_of(text, ranks));
    out.rules_.push_back({.pattern = pattern, .text = text, .layout = std::move(layout)});
  }
  return out;
}

Result<const universal::Layout*> Placements::of(std::string_view name, const Shape& shape) const {
  const universal::Layout* layout = &default_;
  std::string_view text = "S0";
  for (const Rule& rule : rules_) {
    if (!matches_glob(name, rule.pattern)) continue;
    rule.used = true;
    layout = &rule.layout;
    text = rule.text;
    break;
  }
  if (shape.empty()) return &replicated_;
  for (const universal::Layout::Cut& cut : layout->cuts) {
    if (cut.dim < shape.size()) continue;
    return fail({.code = Errc::usage,
                 .message = fmt::format("--placement '{}': {} has {} dimensions, so dimension {} cannot be split", text,
                                        name, shape.size(), cut.dim),
                 .tensor = std::string(name),
                 .hint = "put the narrower pattern first: the first match applies"});
  }
  return layout;
}

std::vector<std::string> Placements::unused() const {
  std::vector<std::string> out;
  for (const Rule& rule : rules_)
    if (!rule.used) out.push_back(rule.pattern);
  return out;
}

}  // namespace ckpt::dcp
