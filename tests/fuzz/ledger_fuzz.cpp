#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/universal/ledger.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// An accepted ledger survives being written, and a remap of it is one that is accepted.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace ledger = ckpt::ledger;
  const auto parsed = ledger::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  const auto again = ledger::parse(ledger::build(*parsed));
  require(again.has_value() && *again == *parsed);
  if (parsed->world > 64) return 0;
  for (const std::uint64_t world : {1U, 3U}) {
    const auto remapped = ledger::remap(ledger::advance(*parsed, 2), world);
    if (!remapped) continue;  // more ranks than samples in a batch
    require(ledger::check(*remapped).has_value());
    static_cast<void>(ledger::share_of(*remapped, 0, ledger::steps_left(*remapped) - 1));
  }
  return 0;
}
