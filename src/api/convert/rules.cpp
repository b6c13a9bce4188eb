#include <string>

#include "api/verbs.hpp"

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

}  // namespace ckpt
