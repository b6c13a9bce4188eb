#include "api/convert/salvage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "api/convert/check.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "convert/foreign_names.hpp"
#include "convert/open_source.hpp"
#include "engine/io/overlay_io.hpp"
#include "engine/store/run_directory.hpp"
#include "format/checked.hpp"
#include "format/text/name_list.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostNamed = 50;  // in the note
constexpr std::size_t kMostNoteBytes = 4000;

/// A glob that only this name matches; "weights" and "optim" are words of a conversion.
std::string glob_of(const std::string& name) {
  std::string out;
  if (name == "weights" || name == "optim") return std::string("[") + name[0] + "]" + name.substr(1);
  for (const char c : name) out += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
  return out;
}

/// The bytes of each file of a map that differ from those saved.
struct BadBytes {
  std::vector<bool> missing{};                 ///< by file
  std::vector<std::vector<Extent>> extents{};  ///< by file, ascending
  std::vector<Finding> damage{};
  bool operator==(const BadBytes& other) const {
    const auto same = [](const Extent& a, const Extent& b) { return a.begin == b.begin && a.end == b.end; };
    return missing == other.missing && std::ranges::equal(extents, other.extents, [&](const auto& a, const auto& b) {
             return std::ranges::equal(a, b, same);
           });
  }
  bool holds(std::uint32_t file, Extent bytes) const {
    if (missing[file]) return true;
    const auto bad = std::ranges::upper_bound(extents[file], bytes.begin, {}, &Extent::end);
    return bad != extents[file].end() && bad->begin < bytes.end;
  }
};

Result<BadBytes> find_bad_bytes(Session& session, const Source& source) {
  const Map& map = source.map;
  BadBytes out{.missing = std::vector<bool>(map.files.size(), false),
               .extents = std::vector<std::vector<Extent>>(map.files.size())};
  std::vector<TargetFile> files;
  std::vector<Hash128> leaves;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> places;  // by leaf: file, begin
  for (std::uint32_t i = 0; i < map.hashes.files.size(); ++i) {
    const MapFile& file = map.files[i];
    const auto info = session.io.stat(join_path(source.root, file.path));
    if (!info && info.error().code != Errc::not_found) return fail(info.error());
    out.missing[i] = !info || info->kind != FileInfo::Kind::file || info->bytes != file.bytes;
    if (out.missing[i] || file.bytes == 0) continue;
    files.push_back({.path = file.path,
                     .bytes = file.bytes,
                     .placements = {{.bytes = file.bytes, .from = Placement::From::raw, .raw_file = i}}});
    const auto range = map.hashes.files[i];
    for (std::uint64_t leaf = range.begin; leaf < range.end; ++leaf) {
      leaves.push_back(map.hashes.leaves[leaf]);
      places.emplace_back(i, (leaf - range.begin) * kLeafBytes);
    }
  }
  CKPT_TRY(LeafCheck check, check_leaves(session, session.comm, map, source.root, std::move(files), leaves, "verify"));
  for (const std::uint64_t leaf : check.bad) {
    const auto [file, begin] = places[leaf];
    out.extents[file].push_back({begin, std::min(begin + kLeafBytes, map.files[file].bytes)});
  }
  out.damage = std::move(check.damage);
  return out;
}

Result<bool> is_intact(const Map& map, std::uint32_t tensor, const BadBytes& bad) {
  CKPT_TRY(const std::uint64_t elements, checked_volume(map.tensors[tensor].shape));
  bool intact = true;
  auto seen = map.index->chunks(tensor, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
    CKPT_TRY(const std::uint64_t bits, checked_mul(placed.chunk.volume(), dtype_bits(placed.where.dtype)));
    const std::uint64_t begin = placed.where.offset;
    intact = intact && !bad.holds(placed.where.file, {begin, begin + bits / 8});
    return {};
  });
  return intact && seen.has_value() && check_coverage(map, std::vector<std::uint32_t>{tensor}).has_value();
}

std::string note_text(const SalvageReport& report, const std::string& path) {
  std::string out = fmt::format("salvaged from {}; lost: {}", path,
                                report.lost.empty() ? "nothing" : name_list(report.lost, kMostNamed));
  out.resize(std::min(out.size(), kMostNoteBytes));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

/// manifest.json is lost or torn, and its copy is not.
bool needs_copy(Io& io, const std::string& path) {
  const auto right = [&](std::string_view name) {
    const auto text = read_small_file(io, join_path(path, name), universal::kMaxManifestBytes);
    return text && universal::parse_manifest(*text);
  };
  return !right(universal::kManifestPath) && right(universal::kManifestCopyPath);
}

/// If both manifests are lost: the shards' headers hold names, dtypes and boxes, but neither the list of what belongs
/// to the checkpoint nor the shapes of flat pieces, so it is unknown whether a tensor is complete: no salvage.
Error without_manifest(Io& io, const std::string& path, Error error) {
  const std::string shards = join_path(path, "shards/weights");
  if (error.code != Errc::uncommitted || !io.stat(shards)) return error;
  error.message = path + ": manifest.json and its copy are both lost, so intact tensors cannot be identified";
  error.hint = fmt::format("'ckpt convert {} OUT' reads the weights stored in one piece, unchecked", shards);
  return error;
}

}  // namespace

Result<SalvageReport> salvage(Session& session, const SalvageRequest& request) {
  const std::string path = join_path(request.path, "");
  SalvageReport out;
  out.by_copy = needs_copy(session.io, path);
  std::unique_ptr<Io> overlay;
  if (out.by_copy)
    overlay = make_overlay_io(session.io, {.path = join_path(path, universal::kManifestPath),
                                           .bytes_of = join_path(path, universal::kManifestCopyPath)});
  Session reading{.io = overlay ? *overlay : session.io,
                  .comm = session.comm,
                  .memory_bytes = session.memory_bytes,
                  .threads = session.threads,
                  .stop = session.stop,
                  .progress = session.progress,
                  .planned = session.planned};
  auto opened = open_source(reading.io, path, "", {.metadata_limit = session.memory_bytes, .salvage = true});
  if (!opened) return fail(without_manifest(session.io, path, std::move(opened).error()));
  const Source source = *std::move(opened);
  const Map& map = source.map;
  if (source.format->hashes == nullptr)
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {} stores no hash for every byte, so intact tensors cannot be identified",
                                        path, source.format->name),
                 .file = path});
  if (std::ranges::any_of(map.files, is_referenced))
    return fail({.code = Errc::unsupported,
                 .message = path + ": virtual: its tensors are in other checkpoints, and no hash covers them",
                 .file = path,
                 .hint = fmt::format("'ckpt materialize {} OUT' copies them", path)});
  CKPT_TRY(BadBytes bad, find_bad_bytes(reading, source));
  out.tensor_count = map.tensors.size();
  for (std::size_t i = 0; i < bad.missing.size(); ++i)
    if (bad.missing[i]) out.missing.push_back(map.files[i].path);
  ConvertRequest conversion{.source = path,
                            .target = request.out,
                            .to = "ckpt",
                            .from = std::string(source.format->name),
                            .dry_run = request.dry_run,
                            .verify = VerifyLevel::none,
                            .salvage = true};
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    CKPT_TRY(const bool intact, is_intact(map, i, bad));
    if (intact)
      conversion.only.push_back(glob_of(map.tensors[i].name));
    else
      out.lost.push_back(map.tensors[i].name);
  }
  if (conversion.only.empty())
    return fail({.code = Errc::corrupt, .message = path + ": no tensor is intact", .file = path});
  for (const NamedObject& object : map.objects) conversion.only.push_back(glob_of(object.name));
  if (out.lost.empty()) conversion.only.clear();  // everything
  out.damage = bad.damage;
  CKPT_TRY(out.conversion, convert(reading, conversion));
  if (request.dry_run) return out;
  // A disk that returns different bytes each time may have given the conversion anything.
  CKPT_TRY(const BadBytes again, find_bad_bytes(reading, source));
  if (!(again == bad))
    return fail({.code = Errc::io,
                 .message = fmt::format("{}: a second read found different damage: do not trust {}", path, request.out),
                 .file = path});
  CKPT_CHECK(catalog::write_mark(session.io, catalog::marks_path(request.out, false),
                                 {.kind = catalog::Mark::Kind::note,
                                  .name = "salvaged",
                                  .text = note_text(out, path),
                                  .owner = request.by,
                                  .at = request.now},
                                 catalog::Holding::lease, foreign_names()));
  return out;
}

}  // namespace ckpt
