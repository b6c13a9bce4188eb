#include "api/convert/existing_target.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "engine/io/stat_if_present.hpp"

namespace ckpt {

Result<std::string> find_missing_file(Io& io, const Plan& plan, const Skeleton& skeleton, const std::string& target) {
  const auto look = [&](const std::string& path, std::optional<std::uint64_t> bytes) -> Result<std::string> {
    CKPT_TRY(const auto info, stat_if_present(io, path));
    if (!info || info->kind != FileInfo::Kind::file) return path + " is missing";
    if (!bytes || info->bytes == *bytes) return std::string();
    return fmt::format("{} has {} bytes, not {}", path, info->bytes, *bytes);
  };
  for (const TargetFile& file : plan.targets()) {
    CKPT_TRY(std::string missing, look(skeleton.directory ? join_path(target, file.path) : target, file.bytes));
    if (!missing.empty()) return missing;
  }
  for (const std::string& name : skeleton.small_names) {
    CKPT_TRY(std::string missing, look(join_path(target, name), {}));
    if (!missing.empty()) return missing;
  }
  return std::string();
}

Result<std::string> find_damage(Session& session, const ConvertRequest& request, const Format& format,
                                bool has_parameters, const std::string& target) {
  if (!format.reader) return std::string();
  const auto alone = Comm::solo();
  Session own{.io = session.io,
              .comm = *alone,
              .memory_bytes = session.memory_bytes,
              .threads = session.threads,
              .stop = session.stop,
              .progress = session.progress};
  const bool is_plain = !has_parameters && request.from.empty() && request.only.empty() && !request.dtype &&
                        request.strip_prefix.empty() && request.add_prefix.empty() && !request.salvage &&
                        request.weights == WeightsFrom::automatic && session.rules == nullptr;
  const bool compares = is_plain && format.hashes == nullptr;
  const auto report = verify(
      own, {.path = target, .from = std::string(format.name), .against = compares ? request.source : std::string()});
  if (!report && report.error().code == Errc::incomplete) return report.error().message;
  if (!report) return fail(report.error());
  if (!report->damage.empty()) return report->damage.front().file + ": " + report->damage.front().text;
  for (const auto& difference : report->different) {
    if (difference.reason == "values") return difference.name + ": its values differ from the source";
  }
  return std::string();
}

}  // namespace ckpt
