// A store's options from DeepSpeed's words.
#include "api/offload/deepspeed_options.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

deepspeed::OffloadTarget on_nvme(std::uint64_t count, std::uint64_t elements, std::uint64_t kept) {
  return {.device = deepspeed::OffloadTarget::Device::nvme,
          .nvme_path = "/nvme",
          .buffer_count = count,
          .buffer_elements = elements,
          .max_elements_in_cpu = kept};
}

TEST(OffloadOptions, OfParametersHoldTheBuffersAndWhatStaysInMemory) {
  const auto options = offload_options({.block_bytes = 262144, .queue_depth = 16, .thread_count = 2},
                                       on_nvme(5, 100'000'000, 1'000'000'000), {.element_bytes = 2, .rank = 3});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->directory, "/nvme/ckpt-offload-rank3");
  EXPECT_EQ(options->block_bytes, 262144U);
  EXPECT_EQ(options->buffer_bytes, 4U << 20);
  EXPECT_EQ(options->queue_depth, 32U);
  const std::uint64_t wanted = 2 * (5 * 100'000'000ULL + 1'000'000'000ULL);
  EXPECT_GE(options->memory_bytes, wanted + options->buffer_bytes);
  EXPECT_LT(options->memory_bytes, wanted + 2 * options->buffer_bytes);
  EXPECT_EQ(options->memory_bytes % options->buffer_bytes, 0U);
}

TEST(OffloadOptions, OfOptimizerStateHoldBuffersOfTheLargestTensor) {
  const auto options = offload_options({}, on_nvme(4, 0, 0), {.largest_tensor_bytes = 64U << 20});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->memory_bytes, (256U << 20) + options->buffer_bytes);
}

TEST(OffloadOptions, OddSizesAreMadeToFit) {
  const auto tiny = offload_options({.block_bytes = 1, .queue_depth = 1}, on_nvme(0, 0, 0), {});
  ASSERT_TRUE(tiny);
  EXPECT_EQ(tiny->block_bytes, kAlignment);
  EXPECT_EQ(tiny->memory_bytes, 2 * tiny->buffer_bytes);
  const auto huge = offload_options({.block_bytes = 1ULL << 50, .queue_depth = 1ULL << 50, .thread_count = 1ULL << 50},
                                    on_nvme(1, 1, 1), {});
  ASSERT_TRUE(huge);
  EXPECT_EQ(huge->buffer_bytes, huge->block_bytes);
  EXPECT_LE(huge->queue_depth, 256U);
}

TEST(OffloadOptions, WhatCannotBeIsRefused) {
  const auto code = [](const auto& options) { return options ? Errc::differs : options.error().code; };
  EXPECT_EQ(code(offload_options({}, {.device = deepspeed::OffloadTarget::Device::cpu}, {})), Errc::usage);
  EXPECT_EQ(code(offload_options({}, on_nvme(1ULL << 50, 1ULL << 50, 0), {})), Errc::usage);
  EXPECT_EQ(code(offload_options({}, on_nvme(0, 0, 1ULL << 53), {.element_bytes = 1024})), Errc::usage);
}

}  // namespace
}  // namespace ckpt
