#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/locks/claim_name.hpp"

namespace {
using namespace ckpt;

void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// A name that is accepted is the one that would be written for what was read of it: no two names are one claim, and
// none leads out of its directory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto name = ClaimName::parse(text);
  if (!name) return 0;
  require(name->text() == text);
  require(text.find('/') == std::string_view::npos && text.find('\0') == std::string_view::npos);
  require(text.size() <= 255 && text.front() != '.');
  require(name->key.size() == 32 && name->maker.host.size() <= 64);
  require(ClaimName::parse(name->text()) == name);
  require(claim_host(name->maker.host) == name->maker.host);
  require(!name->who().empty());
  return 0;
}
