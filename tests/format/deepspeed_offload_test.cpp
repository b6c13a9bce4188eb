// DeepSpeed's words for swapping to disk.
#include "format/files/deepspeed_offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ckpt::deepspeed {
namespace {

using Device = OffloadTarget::Device;

bool has_note(const OffloadConfig& config, const std::string& begin) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const std::string& note) { return note.rfind(begin, 0) == 0; });
}

TEST(DeepSpeedOffload, ReadsTheDocumentedExample) {
  const auto config = parse_offload_config(R"({
    "train_batch_size": 8,
    "zero_optimization": {
      "stage": 3,
      "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": false, "buffer_count": 6,
                        "buffer_size": 1e8, "max_in_cpu": 2e9},
      "offload_optimizer": {"device": "nvme", "nvme_path": "/other", "buffer_count": 7, "pipeline_read": true}
    },
    "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 2, "single_submit": false, "overlap_events": true}
  })");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->aio.block_bytes, 262144U);
  EXPECT_EQ(config->aio.queue_depth, 32U);
  EXPECT_EQ(config->aio.thread_count, 2U);
  EXPECT_EQ(config->parameters.device, Device::nvme);
  EXPECT_EQ(config->parameters.nvme_path, "/local_nvme");
  EXPECT_EQ(config->parameters.buffer_count, 6U);
  EXPECT_EQ(config->parameters.buffer_elements, 100'000'000U);
  EXPECT_EQ(config->parameters.max_elements_in_cpu, 2'000'000'000U);
  EXPECT_FALSE(config->parameters.pin_memory);
  EXPECT_EQ(config->optimizer.nvme_path, "/other");
  EXPECT_EQ(config->optimizer.buffer_count, 7U);
  EXPECT_TRUE(config->optimizer.pipeline_read);
  EXPECT_TRUE(has_note(*config, "aio.thread_count: one thread"));
  EXPECT_TRUE(has_note(*config, "zero_optimization.offload_optimizer.pipeline_read: no effect"));
}

TEST(DeepSpeedOffload, DefaultsAreDeepSpeeds) {
  for (const char* text : {"{}", R"({"aio": null, "zero_optimization": {"offload_param": null}})", R"({"aio": {}})"}) {
    const auto config = parse_offload_config(text);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->aio.block_bytes, 1U << 20);
    EXPECT_EQ(config->aio.queue_depth, 8U);
    EXPECT_EQ(config->aio.thread_count, 1U);
    EXPECT_TRUE(config->aio.overlap_events);
    EXPECT_EQ(config->parameters.device, Device::none);
    EXPECT_EQ(config->parameters.buffer_count, 5U);
    EXPECT_EQ(config->parameters.buffer_elements, 100'000'000U);
    EXPECT_EQ(config->parameters.max_elements_in_cpu, 1'000'000'000U);
    EXPECT_EQ(config->optimizer.buffer_count, 4U);
    EXPECT_TRUE(config->optimizer.pin_memory);
    EXPECT_TRUE(config->notes.empty()) << config->notes.front();
  }
}

TEST(DeepSpeedOffload, WhatHasNoEffectIsNoted) {
  const auto config = parse_offload_config(R"({
    "aio": {"use_gds": true, "single_submit": true, "overlap_events": false, "intra_op_parallelism": 4, "thread_count": 2,
            "colour": "red"},
    "zero_optimization": {"offload_optimizer": {"ratio": 0.3, "fast_init": true, "pin_memory": true, "buffer_size": 5,
                                                "buffer_count": "auto"}}
  })");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->aio.thread_count, 4U);
  EXPECT_EQ(config->optimizer.buffer_count, 4U);
  for (const char* begin : {"aio.use_gds: unavailable", "aio.single_submit: no effect", "aio.overlap_events: no effect",
                            "aio.thread_count: intra_op_parallelism is used", "aio.intra_op_parallelism: one thread",
                            "aio.colour: unknown", "zero_optimization.offload_optimizer.ratio: not used",
                            "zero_optimization.offload_optimizer.fast_init: not used",
                            "zero_optimization.offload_optimizer.pin_memory: the buffers",
                            "zero_optimization.offload_optimizer.buffer_size: unknown",
                            "zero_optimization.offload_optimizer.buffer_count: another program must fill in"}) {
    EXPECT_TRUE(has_note(*config, begin)) << begin;
  }
  EXPECT_EQ(config->notes.size(), 11U);
}

TEST(DeepSpeedOffload, WrongValuesNameTheirKey) {
  const auto message = [](const char* text) {
    const auto config = parse_offload_config(text);
    if (config) return std::string("read");
    EXPECT_EQ(config.error().code, Errc::usage);
    return config.error().message;
  };
  const auto names = [&](const char* text, const char* key) { return message(text).find(key) != std::string::npos; };
  EXPECT_TRUE(names(R"([])", "document"));
  EXPECT_TRUE(names(R"({"aio": 3})", "aio"));
  EXPECT_TRUE(names(R"({"aio": {"block_size": -1}})", "aio.block_size"));
  EXPECT_TRUE(names(R"({"aio": {"block_size": 0}})", "aio.block_size"));
  EXPECT_TRUE(names(R"({"aio": {"block_size": 1.5}})", "aio.block_size"));
  EXPECT_TRUE(names(R"({"aio": {"block_size": 1e300}})", "aio.block_size"));
  EXPECT_TRUE(names(R"({"aio": {"queue_depth": "8"}})", "aio.queue_depth"));
  EXPECT_TRUE(names(R"({"aio": {"use_gds": 1}})", "aio.use_gds"));
  EXPECT_TRUE(names(R"({"zero_optimization": {"offload_param": {"device": "tape"}}})", "offload_param.device"));
  EXPECT_TRUE(names(R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})", "offload_param.nvme_path"));
  EXPECT_TRUE(names(R"({"zero_optimization": {"offload_param": true}})", "offload_param"));
}

TEST(DeepSpeedOffload, TextThatIsNotJsonIsCorrupt) {
  const auto config = parse_offload_config("{\"aio\": ");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ckpt::deepspeed
