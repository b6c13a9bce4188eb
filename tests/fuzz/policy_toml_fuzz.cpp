#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "catalog/policy_toml.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// An accepted policy survives being written, and a refusal is a usage error that names the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::catalog;
  const auto policies = parse_policies({reinterpret_cast<const char*>(data), size}, "p.toml", {"defaults"});
  if (!policies) {
    require(policies.error().code == ckpt::Errc::usage);
    require(policies.error().message.starts_with("p.toml"));
    return 0;
  }
  for (const Policy& policy : *policies) {
    require(policy.keep.size() <= kMostRules);
    const auto again = parse_policies(policy_text(policy), "again.toml");
    require(again.has_value() && again->size() == 1);
    require(again->front() == policy);
    for (const std::size_t rule : relax_order(policy)) require(rule < policy.keep.size());
  }
  return 0;
}
