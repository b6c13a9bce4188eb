#include <algorithm>
#include <string>

#include "api/verbs.hpp"
#include "format/naming/profile.hpp"
#include "format/naming/side.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

}  // namespace

Result<MapRules> read_map_rules(Io& io, const std::string& path) {
  auto text = read_small_file(io, path, kMostBytes);
  if (!text) {
    Error error = std::move(text).error();
    if (error.code == Errc::corrupt) error.code = Errc::usage;  // too large for rules
    return fail(std::move(error));
  }
  return MapRules::parse(*text, path);
}

Result<MapRules::Names> parse_names(const std::string& word) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  const auto side = naming::find_side(std::string_view(word).substr(0, colon));
  if (side && colon == word.size()) return MapRules::Names{.to = *side};
  if (side && colon + 1 < word.size()) return MapRules::Names{.to = *side, .family = word.substr(colon + 1)};
  return fail({.code = Errc::usage,
               .message = "--names: '" + word + "' is not hf, megatron, hf:PROFILE or megatron:PROFILE",
               .hint = "see 'ckpt help profiles'"});
}

std::vector<ProfileInfo> known_profiles() {
  std::vector<ProfileInfo> out;
  for (const naming::Profile& profile : naming::profiles())
    out.push_back({profile.family, profile.architecture, profile.summary});
  return out;
}

}  // namespace ckpt
