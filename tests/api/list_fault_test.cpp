// `ckpt list` of other tools' checkpoints, with every operation failing once: nothing is left out in silence.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "api/catalog/store_catalog.hpp"
#include "catalog/store_builder.hpp"
#include "support/fault_io.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using catalog::State;

class ListOfOtherTools : public testing::TestWithParam<std::pair<const char*, const char*>> {};

/// State by name.
std::map<std::string, State> states(const CatalogListing& listing) {
  std::map<std::string, State> out;
  for (const catalog::Entry& entry : listing.entries) out.emplace(entry.name, entry.checkpoint.state);
  return out;
}

TEST_P(ListOfOtherTools, LeavesNothingOutInSilence) {
  test::StoreBuilder store;
  const auto [source, below] = GetParam();
  fs::create_directories(store.path() + "/r");
  fs::copy(golden_root(source), store.path() + "/r/" + below, fs::copy_options::recursive);
  const CatalogQuery query{.store = store.path(),
                           .now = catalog::Time(std::chrono::sys_days{std::chrono::year{2026} / 2 / 1})};
  const auto whole = list_catalog(store.io(), query);
  ASSERT_TRUE(whole) << whole.error().message;
  const auto truth = states(*whole);
  ASSERT_EQ(truth.size(), 1U);
  for (std::uint64_t n = 0;; ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    auto inner = open_io(IoKind::threads);
    ASSERT_TRUE(inner);
    const auto faulty = make_fault_io(*std::move(inner), plan);
    plan->fail_once(n, Errc::io);
    const auto listing = list_catalog(*faulty, query);
    const std::string failed = plan->first_failed();
    if (listing && listing->warnings.empty()) {
      const auto seen = states(*listing);
      ASSERT_EQ(seen.size(), 1U) << failed;
      EXPECT_TRUE(seen == truth || seen.begin()->second == State::unreadable) << failed;
    }
    if (failed.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, ListOfOtherTools,
    testing::Values(std::pair("deepspeed/zero0_bf16_dp2", "ds"), std::pair("megatron/legacy_tp2_pp2", "mega"),
                    std::pair("megatron/torch_dist_tp2_pp2_dp2", "mega"),
                    std::pair("folders/hf_trainer", "checkpoint-5"),
                    std::pair("folders/accelerate_fsdp", "checkpoint_5"), std::pair("torch/dcp_plain", "step-5"),
                    std::pair("torch/dcp_safetensors", "step-5"),
                    std::pair("deepspeed/universal_from_zero3_bf16_dp4", "step-5"),
                    std::pair("torch/rank_files_dtensor", "step-5"), std::pair("torch/pt_trainer", "step-5"),
                    std::pair("safetensors/llama_sharded", "step-5")));

}  // namespace
}  // namespace ckpt
