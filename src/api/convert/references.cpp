#include "api/convert/references.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <utility>

#include "catalog/scan/reference_marks.hpp"
#include "convert/extras.hpp"
#include "convert/foreign_names.hpp"
#include "engine/io/real_path.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/run/checks.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/utf8.hpp"

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

/// Of a target that may not be there yet: absolute, without links.
Result<std::string> target_path(const std::string& target) {
  CKPT_TRY(const std::string parent, resolved(parent_path(join_path(target, ""))));
  return join_path(parent, base_name(join_path(target, "")));
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

/// errors  io: this cannot be determined
Result<bool> is_in_store(Io& io, const std::string& checkpoint) {
  for (std::string at = parent_path(checkpoint);; at = parent_path(at)) {
    CKPT_TRY(const auto store, stat_if_present(io, join_path(at, kStoreDirectory)));
    if (store && store->kind == FileInfo::Kind::directory) return true;
    if (parent_path(at) == at) return false;
  }
}

/// The checkpoints of a store that hold files, each once. Links are followed: the bytes are where they lead.
/// errors  io: this cannot be determined
Result<std::set<std::string>> holders_of(Io& io, const std::vector<std::string>& files) {
  std::set<std::string> out;
  std::set<std::string> folders;
  for (const std::string& file : files) {
    CKPT_TRY(const auto real, find_real_path(file));
    if (!real || !folders.insert(parent_path(*real)).second) continue;
    for (const std::string& around : checkpoints_around(io, *real, foreign_names())) {
      CKPT_TRY(const bool is_kept, is_in_store(io, around));
      if (is_kept) out.insert(around);
    }
  }
  return out;
}

bool is_refusal(const Error& error) {
  return error.system_code == EACCES || error.system_code == EPERM || error.system_code == EROFS;
}

}  // namespace

Result<> check_by_reference(const Session& session, const ConvertRequest& request, const Format& target) {
  if (!request.by_reference) return {};
  if (!target.writer || !target.writer->refers)
    return refused(fmt::format("{} cannot hold references", target.name), "only the universal format can: --to ckpt");
  if (request.dtype)
    return refused("--dtype changes bytes, and a reference cannot", "convert without --virtual, or without --dtype");
  if (request.shard_bytes != 0) return refused("--shard-size has no effect: no tensor is copied", "omit --shard-size");
  if (session.comm.ranks() > 1) return refused("several processes cannot write it", "start it without mpirun");
  return {};
}

Result<std::string> References::stored_path(const std::string& root) {
  CKPT_TRY(const std::string from, resolved(root));
  CKPT_TRY(const std::string to, target_path(target_));
  const std::vector<std::string> source_parts = parts_of(from);
  const std::vector<std::string> target_parts = parts_of(to);
  const auto [a, b] = std::ranges::mismatch(source_parts, target_parts);
  if (a == source_parts.begin()) return from;
  std::string out;
  for (auto up = b; up != target_parts.end(); ++up) out += "../";
  for (auto down = a; down != source_parts.end(); ++down) out += *down + "/";
  out.pop_back();
  return out;
}

Result<Reference> References::refer(std::uint32_t number) {
  const MapFile& file = source_.map.files[number];
  const std::string& root = file.root.empty() ? source_.root : file.root;
  const auto [stored, is_new] = stored_.try_emplace(root);
  if (is_new) {
    CKPT_TRY(stored->second, stored_path(root));
  }
  const std::string path = path_of(source_.map, number, source_.root);
  if (!is_utf8(stored->second) || !is_utf8(file.path))
    return refused(path + ": the path is not UTF-8", "rename it, or convert without --virtual");
  CKPT_TRY(const Hash128 head, hash_range(*source_.io, path, {0, std::min(file.bytes, universal::kHeadBytes)}));
  paths_.push_back(path);
  bytes_ += file.bytes;
  return Reference{.source = stored->second,
                   .file = {.path = file.path, .bytes = file.bytes, .mtime_ns = file.mtime_ns, .head = head}};
}

Result<Protection> protect_files(Io& io, const std::vector<std::string>& files, const std::string& target,
                                 const std::string& id) {
  Protection out;
  CKPT_TRY(const std::set<std::string> holders, holders_of(io, files));
  if (holders.empty()) return out;
  CKPT_TRY(const std::string path, target_path(target));
  CKPT_TRY(const catalog::Mark mark, catalog::reference_mark(io, path, id));
  for (const std::string& holder : holders) {
    CKPT_TRY(auto lease, Lease::take(io, holder, foreign_names()));
    out.leases.push_back(std::move(lease));
    auto written = catalog::write_mark(io, catalog::marks_path(holder), mark, catalog::Holding::lease, foreign_names());
    if (!written && !is_refusal(written.error())) return fail(std::move(written).error());
    if (written)
      drop_note(io, parent_path(holder), base_name(holder), "reference " + mark.text);
    else
      out.warnings.push_back(
          {.severity = Severity::warning,
           .text =
               fmt::format("{}: 'ckpt prune' may delete it, because the mark that protects it cannot be written: {}",
                           holder, written.error().message),
           .file = holder});
  }
  return out;
}

void release_files(Io& io, const std::vector<std::string>& files, const std::string& target,
                   const std::vector<std::string>& still) {
  const auto path = target_path(target);
  const auto needed = holders_of(io, still);
  const auto holders = holders_of(io, files);
  if (!path || !needed || !holders) return;
  for (const std::string& holder : *holders) {
    if (!needed->contains(holder)) static_cast<void>(catalog::remove_ownerless(io, holder, *path));
  }
}

std::vector<std::string> find_unprotected(Io& io, const std::vector<std::string>& files, const std::string& target) {
  std::vector<std::string> out;
  const auto path = target_path(target);
  const auto holders = holders_of(io, files);
  if (!path || !holders) return out;
  for (const std::string& holder : *holders) {
    const auto said = catalog::read_marks(io, catalog::marks_path(holder));
    const bool is_marked = std::ranges::any_of(said.marks, [&](const catalog::Mark& mark) {
      return mark.kind == catalog::Mark::Kind::reference && mark.name == *path;
    });
    if (!is_marked && said.unreadable.empty()) out.push_back(holder);
  }
  return out;
}

}  // namespace ckpt
