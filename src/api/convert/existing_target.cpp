#include "api/convert/existing_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "api/convert/compare.hpp"
#include "engine/io/stat_if_present.hpp"

namespace ckpt {

namespace {

/// A small file must be as it would be written now.
Result<std::string> compare_small(Io& io, const std::string& target, const SmallFile& file) {
  const std::string path = join_path(target, file.path);
  CKPT_TRY(const auto info, stat_if_present(io, path));
  if (!info || info->kind != FileInfo::Kind::file) return path + " is missing";
  if (info->bytes != file.bytes.size())
    return fmt::format("{} has {} bytes, not {}", path, info->bytes, file.bytes.size());
  CKPT_TRY(const std::string text, read_small_file(io, path, info->bytes));
  return text == file.bytes ? std::string() : path + " has changed";
}

}  // namespace

Result<std::string> find_missing_file(Io& io, const Plan& plan, const Skeleton& skeleton, const Format& format,
                                      const std::string& target) {
  for (const TargetFile& file : plan.targets()) {
    const std::string path = skeleton.directory ? join_path(target, file.path) : target;
    CKPT_TRY(const auto info, stat_if_present(io, path));
    if (!info || info->kind != FileInfo::Kind::file) return path + " is missing";
    if (info->bytes != file.bytes) return fmt::format("{} has {} bytes, not {}", path, info->bytes, file.bytes);
  }
  if (format.hashes != nullptr) {  // its small files hold hashes of the others: they are compared with each other
    auto stored = format.hashes(io, target);
    if (!stored) return stored.error().message;
    const auto damage = std::ranges::find(stored->findings, Severity::damage, &Finding::severity);
    return damage == stored->findings.end() ? std::string() : damage->file + ": " + damage->text;
  }
  if (!skeleton.finish) return std::string();
  CKPT_TRY(const std::vector<SmallFile> small, skeleton.finish({}));
  for (const SmallFile& file : small) {
    CKPT_TRY(std::string changed, compare_small(io, target, file));
    if (!changed.empty()) return changed;
  }
  return std::string();
}

Result<std::string> find_damage(Session& session, const Source& source, const Expected& expected, const Format& format,
                                const std::string& target) {
  if (!format.reader) return std::string();
  const auto alone = Comm::solo();
  Session own{.io = session.io,
              .comm = *alone,
              .memory_bytes = session.memory_bytes,
              .threads = session.threads,
              .stop = session.stop,
              .progress = session.progress};
  const auto report = verify(own, {.path = target, .from = std::string(format.name)});
  if (!report && report.error().code == Errc::incomplete) return report.error().message;
  if (!report) return fail(report.error());
  if (!report->damage.empty()) return report->damage.front().file + ": " + report->damage.front().text;
  if (format.hashes != nullptr) return std::string();
  CKPT_TRY(const Source there,
           open_source(session.io, target, format.name, {.metadata_limit = session.memory_bytes, .extras = true}));
  std::unordered_map<std::string_view, std::uint32_t> names;
  for (std::uint32_t i = 0; i < there.map.tensors.size(); ++i) names.emplace(there.map.tensors[i].name, i);
  std::vector<TensorPair> pairs;
  const auto add = [&](std::uint32_t tensor, const std::string& name, Dtype dtype) {
    const auto found = names.find(name);
    if (found == names.end()) return;
    const Tensor& twin = there.map.tensors[found->second];
    if (twin.dtype == dtype && twin.shape == source.map.tensors[tensor].shape)
      pairs.push_back({tensor, found->second, dtype});
  };
  for (const Selected& one : expected.tensors)
    if (!one.part) add(one.tensor, one.name, one.dtype);
  for (const WantedExtra& one : expected.extras)
    if (!one.text) add(one.tensor, one.path, Dtype::u8);
  CKPT_TRY(const auto bad, compare_tensors(own, {source.map, source.root}, {there.map, there.root}, pairs, "compare"));
  return bad.empty() ? std::string()
                     : there.map.tensors[pairs[bad.front()].right].name + ": its values differ from the source";
}

}  // namespace ckpt
