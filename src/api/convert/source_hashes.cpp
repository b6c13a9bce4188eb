#include "api/convert/source_hashes.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/convert/check.hpp"
#include "engine/process/memory.hpp"
#include "format/checked.hpp"
#include "format/model/finding_error.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other between phases.
constexpr auto kSourceHashesPatience = std::chrono::minutes(10);

Deadline hashes_deadline() {
  return std::chrono::steady_clock::now() + kSourceHashesPatience;
}

/// Bytes that the comparer may keep: what --memory leaves.
std::uint64_t room_for_pieces(const Session& session, const RunOptions& options) {
  constexpr std::uint64_t kMost = std::uint64_t{32} << 20;
  const std::uint64_t used = resident_bytes() + options.pool_bytes + (std::uint64_t{12} << 20);
  return session.memory_bytes > used ? std::min(kMost, (session.memory_bytes - used) / 2) : 0;
}

/// Which files of the source hold bytes of the selected tensors.
Result<std::vector<bool>> files_read(const Map& map, const Selection& selection) {
  std::vector<bool> read(map.files.size(), false);
  for (const Selected& selected : selection.tensors) {
    CKPT_TRY(const std::uint64_t elements, checked_volume(map.tensors[selected.tensor].shape));
    CKPT_CHECK(map.index->chunks(selected.tensor, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
      read[placed.where.file] = true;
      return {};
    }));
  }
  return read;
}

}  // namespace

SourceHashes::SourceHashes(Session& session, const Source& source, const RunOptions& options)
    : session_(session), source_(source), comparer_(source.map, room_for_pieces(session, options)) {}

Result<std::uint64_t> SourceHashes::finish(const Selection& selection) {
  Comm& comm = session_.comm;
  auto found = files_read(source_.map, selection);
  CKPT_CHECK(agree(comm, hashes_deadline(), found ? Result<>() : fail(found.error())));
  const std::vector<bool> read = *std::move(found);
  CKPT_TRY(const std::vector<bool> compared, join());
  std::vector<TargetFile> files;
  std::vector<Hash128> expected;
  std::uint64_t leaves = 0;
  for (std::uint32_t file = 0; file < read.size(); ++file) {
    if (!read[file]) continue;
    leaves += source_.map.hashes.of(file).size();
    add_open(file, compared, files, expected);
  }
  Result<> outcome;
  if (!files.empty()) {
    const auto check =
        check_leaves(session_, comm, source_.map, source_.root, std::move(files), expected, "verify source");
    if (!check) {
      outcome = fail(check.error());
    } else if (!check->damage.empty()) {
      const Finding& first = check->damage.front();
      outcome = fail(with_hint(as_error(first, first.file, Errc::checksum), list_hint()));
    }
  }
  CKPT_CHECK(agree(comm, hashes_deadline(), std::move(outcome)));
  return leaves;
}

Error SourceHashes::explained(Error error) const {
  const auto wrong = comparer_.wrong();
  if (!wrong || error.code != Errc::checksum) return error;
  const std::uint64_t begin = wrong->leaf * kLeafBytes;
  if (const auto names = tensors_at(source_.map, wrong->file, {begin, begin + kLeafBytes}, 3)) {
    error.tensor.clear();
    for (const std::string& name : *names) error.tensor += (error.tensor.empty() ? "" : ", ") + name;
  }
  error.hint = list_hint();
  return error;
}

/// Collective: the leaves compared by any rank.
Result<std::vector<bool>> SourceHashes::join() const {
  Comm& comm = session_.comm;
  std::vector<bool> compared = comparer_.compared();
  if (comm.ranks() == 1) return compared;
  std::string bits(compared.size(), '0');
  for (std::size_t leaf = 0; leaf < bits.size(); ++leaf) bits[leaf] = compared[leaf] ? '1' : '0';
  CKPT_TRY(const std::vector<std::string> all, comm.gather(bits, hashes_deadline()));
  for (const std::string& other : all) {
    for (std::size_t leaf = 0; leaf < std::min(bits.size(), other.size()); ++leaf)
      if (other[leaf] == '1') bits[leaf] = '1';
  }
  CKPT_CHECK(comm.broadcast(bits, hashes_deadline()));
  for (std::size_t leaf = 0; leaf < compared.size(); ++leaf) compared[leaf] = bits[leaf] == '1';
  return compared;
}

/// Runs of consecutive leaves, each as a separate file.
void SourceHashes::add_open(std::uint32_t file, const std::vector<bool>& compared, std::vector<TargetFile>& files,
                            std::vector<Hash128>& expected) const {
  const auto stored = source_.map.hashes.of(file);
  if (stored.empty()) return;
  const std::uint64_t first = source_.map.hashes.files[file].begin;
  for (std::uint64_t leaf = 0; leaf < stored.size();) {
    std::uint64_t end = leaf;
    while (end < stored.size() && !compared[static_cast<std::size_t>(first + end)]) ++end;
    if (end == leaf) {
      ++leaf;
      continue;
    }
    const std::uint64_t begin = leaf * kLeafBytes;
    const std::uint64_t bytes = std::min(source_.map.files[file].bytes, end * kLeafBytes) - begin;
    TargetFile& run = files.emplace_back(TargetFile{.path = source_.map.files[file].path, .bytes = bytes});
    run.placements.push_back({.bytes = bytes, .from = Placement::From::raw, .raw_file = file, .raw_offset = begin});
    expected.insert(expected.end(), stored.begin() + static_cast<std::ptrdiff_t>(leaf),
                    stored.begin() + static_cast<std::ptrdiff_t>(end));
    leaf = end;
  }
}

}  // namespace ckpt
