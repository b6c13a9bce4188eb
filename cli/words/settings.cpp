#include "cli/words/settings.hpp"

#include <fmt/format.h>

#include "format/text/error_context.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kLeastMemory = std::uint64_t{16} << 20;  // below this not even the program itself fits
constexpr std::uint64_t kMostThreads = 1024;

Error at(const Value& value, Error error) {
  return with_context(std::move(error), value.origin);
}

}  // namespace

Result<Settings> read_settings(const Words& words, const Environment& environment, const Machine& machine) {
  Settings out;
  out.json = words.on("json");
  out.quiet = words.on("quiet");
  out.verbose = words.count("verbose");
  out.alone = words.on("no-mpi");
  out.progress = words.text("progress");
  if (words.on("si")) out.sizes = SizeStyle::decimal;
  if (words.on("bytes")) out.sizes = SizeStyle::exact;
  if (words.text("io") == "uring") out.io = IoKind::uring;
  if (words.text("io") == "threads") out.io = IoKind::threads;
  if (const Value* value = words.value("memory")) {
    const auto bytes = parse_share(value->text, machine.memory_bytes);
    if (!bytes) return fail(at(*value, bytes.error()));
    if (*bytes < kLeastMemory)
      return fail(Errc::usage, fmt::format("{}: '{}' is {}; the minimum is {}", value->origin, value->text,
                                           format_size(*bytes, out.sizes), format_size(kLeastMemory, out.sizes)));
    out.memory_bytes = *bytes;
  }
  if (const Value* value = words.value("threads")) {
    const auto count = parse_count(value->text, 1, kMostThreads);
    if (!count) return fail(at(*value, count.error()));
    out.threads = static_cast<unsigned>(*count);
  }
  if (const auto every = environment("CKPT_PROGRESS_EVERY")) {
    const auto time = parse_duration(*every);
    if (!time) return fail(at({*every, "CKPT_PROGRESS_EVERY"}, time.error()));
    out.progress_every = std::max(*time, std::chrono::milliseconds(100));
  }
  return out;
}

}  // namespace ckpt::cli
