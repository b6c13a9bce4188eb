#include "api/convert/references.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/index/entry.hpp"
#include "catalog/index/marks.hpp"
#include "convert/extras.hpp"
#include "engine/io/real_path.hpp"
#include "engine/locks/claims.hpp"
#include "engine/run/checks.hpp"

namespace ckpt {
namespace {

tl::unexpected<Error> refused(std::string reason, std::string hint) {
  return fail({.code = Errc::usage, .message = "--virtual: " + std::move(reason), .hint = std::move(hint)});
}

Result<std::string> resolved(const std::string& path) {
  CKPT_TRY(const auto real, find_real_path(path));
  if (real) return *real;
  return fail({.code = Errc::not_found, .message = path + ": not found", .file = path});
}

/// The names in an absolute path without links.
std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> out;
  for (std::size_t begin = 1; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    out.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// The path of a source as the target stores it.
Result<std::string> stored_path(const std::string& source, const std::string& target) {
  CKPT_TRY(const std::string from, resolved(source));
  CKPT_TRY(const std::string parent, resolved(parent_path(join_path(target, ""))));
  const std::vector<std::string> source_parts = parts_of(from);
  const std::vector<std::string> target_parts = parts_of(join_path(parent, base_name(join_path(target, ""))));
  const auto [a, b] = std::ranges::mismatch(source_parts, target_parts);
  if (a == source_parts.begin()) return from;
  std::string out;
  for (auto up = b; up != target_parts.end(); ++up) out += "../";
  for (auto down = a; down != source_parts.end(); ++down) out += *down + "/";
  out.pop_back();
  return out;
}

std::string root_of(const Source& source, const MapFile& file) {
  return file.root.empty() ? source.root : file.root;
}

}  // namespace

Result<> check_by_reference(const Session& session, const ConvertRequest& request, const Format& target) {
  if (!request.by_reference) return {};
  if (!target.writer || !target.writer->refers)
    return refused(fmt::format("{} cannot hold references", target.name), "only the universal format can: --to ckpt");
  if (request.dtype)
    return refused("--dtype changes bytes, and a reference cannot", "convert without --virtual, or without --dtype");
  if (request.shard_bytes != 0)
    return refused("--shard-size has no effect: no tensor is copied", "leave --shard-size out");
  if (session.comm.ranks() > 1) return refused("one process writes it", "start it without mpirun");
  return {};
}

std::function<Result<Reference>(std::uint32_t file)> referrer(const Source& source, const std::string& target) {
  return [&source, target](std::uint32_t number) -> Result<Reference> {
    const MapFile& file = source.map.files[number];
    Reference out;
    CKPT_TRY(out.source, stored_path(root_of(source, file), target));
    const std::string path = path_of(source.map, number, source.root);
    CKPT_TRY(const Hash128 head, hash_range(*source.io, path, {0, std::min(file.bytes, universal::kHeadBytes)}));
    out.file = {.path = file.path, .bytes = file.bytes, .mtime_ns = file.mtime_ns, .head = head};
    return out;
  };
}

Result<> mark_sources(Io& io, const Source& source, const std::string& target, const std::string& id) {
  CKPT_TRY(const std::string parent, resolved(parent_path(join_path(target, ""))));
  const catalog::Mark mark{
      .kind = catalog::Mark::Kind::reference, .name = id, .text = join_path(parent, base_name(join_path(target, "")))};
  std::set<std::string> marked;
  for (const MapFile& file : source.map.files) {
    if (is_temporary(file)) continue;
    CKPT_TRY(const std::string root, resolved(root_of(source, file)));
    if (!marked.insert(root).second || stores_above(io, root).empty()) continue;
    const auto info = io.stat(root);
    if (!info || info->kind != FileInfo::Kind::directory) continue;
    const bool is_foreign = !io.stat(join_path(root, "sums.bin"));
    CKPT_CHECK(catalog::write_mark(io, catalog::marks_path(root, is_foreign), mark));
  }
  return {};
}

}  // namespace ckpt
