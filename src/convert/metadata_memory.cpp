#include "convert/metadata_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "format/checked.hpp"
#include "format/text/quantity.hpp"

namespace ckpt {

std::uint64_t memory_for(std::uint64_t file_bytes, MetadataCost cost) {
  return checked_mul(file_bytes, static_cast<std::uint64_t>(cost)).value_or(UINT64_MAX);
}

Error over_metadata_limit(const std::string& path, std::uint64_t file_bytes, std::uint64_t needed,
                          std::uint64_t limit) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  return {.code = Errc::memory,
          .message = fmt::format("{}: {} of metadata may take {} MiB of memory; the limit is {} MiB", path,
                                 size_text(file_bytes), needed / kMiB, limit / kMiB),
          .file = path,
          .hint = fmt::format("--memory {}M reads it, if you trust the file: no framework writes such metadata",
                              needed / kMiB + 1)};
}

pickle::Budget pickle_budget(std::uint64_t limit) {
  pickle::Budget budget;
  if (limit < budget.max_bytes) {
    budget.max_bytes = limit;
    budget.over_bytes = Errc::memory;
  }
  return budget;
}

Result<std::string> read_metadata_file(Io& io, const std::string& path, MetadataCost cost, std::uint64_t limit,
                                       std::uint64_t most) {
  CKPT_TRY(const FileInfo info, io.stat(path));
  const std::uint64_t needed = memory_for(info.bytes, cost);
  if (info.kind == FileInfo::Kind::file && info.bytes <= most && needed > limit) {
    return fail(over_metadata_limit(path, info.bytes, needed, limit));
  }
  // It may have grown since.
  return read_small_file(io, path, std::min(most, limit));
}

}  // namespace ckpt
