#include "format/files/deepspeed_offload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/text/json.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::uint64_t kMostCount = std::uint64_t{1} << 53;  // elements; the largest exact JSON number

Error wrong(std::string_view key, std::string_view reason) {
  return {.code = Errc::usage, .message = fmt::format("configuration: {}: {}", key, reason)};
}

/// The members of one object, taken one by one; the others are reported.
class Section {
 public:
  Section(const json::Value* value, std::string name, std::vector<std::string>& notes)
      : object_(value == nullptr ? nullptr : value->object()), name_(std::move(name)), notes_(notes) {}

  /// The member is an object, or absent or null; anything else is an error.
  static Result<const json::Value*> find(const json::Value* parent, std::string_view key, std::string_view name) {
    const json::Value* value = parent == nullptr ? nullptr : parent->find(key);
    if (value == nullptr || std::holds_alternative<std::nullptr_t>(value->v)) return nullptr;
    if (value->object() == nullptr) return fail(wrong(name, "is not an object"));
    return value;
  }

  Result<bool> count(std::string_view key, std::uint64_t& out, std::uint64_t least) {
    const json::Value* value = take(key);
    if (value == nullptr) return false;
    if (const std::uint64_t* natural = value->natural(); natural != nullptr && *natural <= kMostCount) {
      out = *natural;
    } else if (const double* real = value->real(); real != nullptr && *real >= 0 &&
                                                   *real <= static_cast<double>(kMostCount) &&
                                                   std::trunc(*real) == *real) {
      out = static_cast<std::uint64_t>(*real);
    } else {
      return fail(wrong(full(key), "is not a count"));
    }
    if (out < least) return fail(wrong(full(key), fmt::format("is below {}", least)));
    return true;
  }
  Result<bool> boolean(std::string_view key, bool& out) {
    const json::Value* value = take(key);
    if (value == nullptr) return false;
    if (value->boolean() == nullptr) return fail(wrong(full(key), "is neither true nor false"));
    out = *value->boolean();
    return true;
  }
  Result<bool> text(std::string_view key, std::string& out) {
    const json::Value* value = take(key);
    if (value == nullptr) return false;
    if (value->text() == nullptr) return fail(wrong(full(key), "is not text"));
    out = *value->text();
    return true;
  }
  void note(std::string_view key, std::string_view what) { notes_.push_back(fmt::format("{}: {}", full(key), what)); }
  /// A key that DeepSpeed knows and that has no effect here.
  void unused(std::string_view key, std::string_view why) {
    if (take(key) != nullptr) note(key, why);
  }
  void note_unknown() {
    if (object_ == nullptr) return;
    for (const auto& [key, value] : *object_) {
      if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) note(key, "unknown, not used");
    }
  }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", name_, key); }

 private:
  /// Null for the default.
  const json::Value* take(std::string_view key) {
    taken_.emplace_back(key);
    if (object_ == nullptr) return nullptr;
    for (const auto& [name, value] : *object_) {
      if (name != key || std::holds_alternative<std::nullptr_t>(value.v)) continue;
      if (value.text() == nullptr || *value.text() != "auto") return &value;
      note(key, "another program must fill in \"auto\"; the default is used");
    }
    return nullptr;
  }

  const json::Object* object_;
  std::string name_;
  std::vector<std::string>& notes_;
  std::vector<std::string> taken_{};
};

Result<> read_aio(const json::Value& document, OffloadConfig& out) {
  CKPT_TRY(const json::Value* value, Section::find(&document, "aio", "aio"));
  Section section(value, "aio", out.notes);
  AioConfig& aio = out.aio;
  CKPT_CHECK(section.count("block_size", aio.block_bytes, 1));
  CKPT_CHECK(section.count("queue_depth", aio.queue_depth, 1));
  CKPT_TRY(const bool old_name, section.count("thread_count", aio.thread_count, 1));
  CKPT_TRY(const bool new_name, section.count("intra_op_parallelism", aio.thread_count, 1));
  if (old_name && new_name) section.note("thread_count", "intra_op_parallelism is used instead");
  if (aio.thread_count > 1) {
    section.note(new_name ? "intra_op_parallelism" : "thread_count",
                 "one thread does all I/O, with as many requests in flight as these threads would have together");
  }
  CKPT_TRY(const bool single, section.boolean("single_submit", aio.single_submit));
  if (single) section.note("single_submit", "no effect: every request is submitted as soon as it is ready");
  CKPT_TRY(const bool overlap, section.boolean("overlap_events", aio.overlap_events));
  if (overlap && !aio.overlap_events) {
    section.note("overlap_events", "no effect: requests are submitted whenever earlier ones complete");
  }
  CKPT_CHECK(section.boolean("use_gds", aio.use_gds));
  if (aio.use_gds) section.note("use_gds", "unavailable: bytes go through host memory");
  section.note_unknown();
  return {};
}

Result<> read_target(const json::Value* zero, std::string_view key, bool is_param, OffloadTarget& out,
                     std::vector<std::string>& notes) {
  const std::string name = fmt::format("zero_optimization.{}", key);
  CKPT_TRY(const json::Value* value, Section::find(zero, key, name));
  Section section(value, name, notes);
  std::string device = "none";
  CKPT_CHECK(section.text("device", device));
  if (device == "nvme") {
    out.device = OffloadTarget::Device::nvme;
  } else if (device == "cpu") {
    out.device = OffloadTarget::Device::cpu;
  } else if (device != "none") {
    return fail(wrong(section.full("device"), "must be none, cpu or nvme"));
  }
  CKPT_CHECK(section.text("nvme_path", out.nvme_path));
  if (out.device == OffloadTarget::Device::nvme && out.nvme_path.empty()) {
    return fail(wrong(section.full("nvme_path"), "is required if device is nvme"));
  }
  CKPT_CHECK(section.count("buffer_count", out.buffer_count, 0));
  if (is_param) {
    CKPT_CHECK(section.count("buffer_size", out.buffer_elements, 0));
    CKPT_CHECK(section.count("max_in_cpu", out.max_elements_in_cpu, 0));
  }
  CKPT_TRY(const bool pin, section.boolean("pin_memory", out.pin_memory));
  if (pin && out.pin_memory) {
    section.note("pin_memory", "the buffers are one pool, in huge pages if available, and not locked");
  }
  if (!is_param) {
    CKPT_CHECK(section.boolean("pipeline_read", out.pipeline_read));
    CKPT_CHECK(section.boolean("pipeline_write", out.pipeline_write));
    constexpr std::string_view kAlways = "no effect: reads ahead and writes behind always overlap with the caller";
    if (value != nullptr && value->find("pipeline_read") != nullptr) section.note("pipeline_read", kAlways);
    if (value != nullptr && value->find("pipeline_write") != nullptr) section.note("pipeline_write", kAlways);
    section.unused("fast_init", "not used: nothing is initialised here");
    section.unused("ratio", "not used: the trainer chooses what is offloaded");
    section.unused("super_offload", "not used: the trainer owns the optimizer");
    section.unused("cpuadam_cores_perc", "not used: the trainer owns the optimizer");
  }
  section.note_unknown();
  return {};
}

}  // namespace

Result<OffloadConfig> parse_offload_config(std::string_view text) {
  CKPT_TRY(const json::Value document, json::parse(text, {.max_bytes = 16u << 20}));
  if (document.object() == nullptr) return fail(wrong("document", "is not an object"));
  OffloadConfig out;
  CKPT_CHECK(read_aio(document, out));
  CKPT_TRY(const json::Value* zero, Section::find(&document, "zero_optimization", "zero_optimization"));
  CKPT_CHECK(read_target(zero, "offload_param", true, out.parameters, out.notes));
  CKPT_CHECK(read_target(zero, "offload_optimizer", false, out.optimizer, out.notes));
  return out;
}

}  // namespace ckpt::deepspeed
