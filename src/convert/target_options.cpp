#include "convert/target_options.hpp"

namespace ckpt {

std::vector<std::string_view> given_options(const TargetOptions& options) {
  std::vector<std::string_view> out;
  if (options.zero_stage) out.emplace_back("zero-stage");
  if (options.dp != 0) out.emplace_back("dp");
  if (options.ep != 0) out.emplace_back("ep");
  if (options.etp != 0) out.emplace_back("etp");
  if (options.tp != 0) out.emplace_back("tp");
  if (options.pp != 0) out.emplace_back("pp");
  if (options.vpp != 0) out.emplace_back("vpp");
  if (options.decoder_first) out.emplace_back("decoder-first");
  if (options.decoder_last) out.emplace_back("decoder-last");
  if (!options.tag.empty()) out.emplace_back("tag");
  if (options.fresh_optimizer) out.emplace_back("fresh-optimizer");
  if (options.ranks != 0) out.emplace_back("ranks");
  if (!options.placements.empty()) out.emplace_back("placement");
  return out;
}

std::string options_text(const TargetOptions& options) {
  std::string out;
  // The length goes before each value, so that no value can look like another option.
  const auto add = [&](std::string_view flag, std::string_view value) {
    out += std::string(flag) + "=" + std::to_string(value.size()) + ":" + std::string(value);
  };
  if (options.zero_stage) add("zero-stage", std::to_string(*options.zero_stage));
  if (options.dp != 0) add("dp", std::to_string(options.dp));
  if (options.ep != 0) add("ep", std::to_string(options.ep));
  if (options.etp != 0) add("etp", std::to_string(options.etp));
  if (options.tp != 0) add("tp", std::to_string(options.tp));
  if (options.pp != 0) add("pp", std::to_string(options.pp));
  if (options.vpp != 0) add("vpp", std::to_string(options.vpp));
  if (options.decoder_first) add("decoder-first", std::to_string(*options.decoder_first));
  if (options.decoder_last) add("decoder-last", std::to_string(*options.decoder_last));
  if (!options.tag.empty()) add("tag", options.tag);
  if (options.fresh_optimizer) add("fresh-optimizer", "");
  if (options.ranks != 0) add("ranks", std::to_string(options.ranks));
  for (const auto& [name, cuts] : options.placements) {
    add("placement", name);
    add("cuts", cuts);
  }
  return out;
}

}  // namespace ckpt
