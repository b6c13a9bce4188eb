#include "engine/run/leaf_record.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "format/little_endian.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kLeavesSuffix = ".leaves";
constexpr std::string_view kMagic = "ckptleaf";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kSlotBytes = 32;

std::string header(const RecordKey& key) {
  Hasher hasher;
  hasher.update_u64(key.id.size());
  hasher.update(key.id);
  hasher.update(std::as_bytes(std::span(key.plan.bytes)));
  hasher.update_u64(key.inode);
  hasher.update_u64(key.leaves);
  const Hash128 hash = hasher.digest();
  std::string out(kMagic);
  append_little_endian(out, kVersion, 4);
  append_little_endian(out, 0, 4);
  out.append(hash.bytes.begin(), hash.bytes.end());
  append_little_endian(out, key.leaves, 8);
  out.resize(kHeaderBytes);
  return out;
}

void append_slot(std::string& out, const RecordedLeaf& leaf) {
  // A leaf has fewer elements than 2^32, and so fewer of anything that is counted.
  out.append(leaf.hash.bytes.begin(), leaf.hash.bytes.end());
  append_little_endian(out, leaf.casts.overflowed, 4);
  append_little_endian(out, leaf.casts.became_nan, 4);
  append_little_endian(out, leaf.crc_checked, 4);
  append_little_endian(out, leaf.reader, 4);
}

RecordedLeaf slot_at(std::string_view text, std::size_t at) {
  RecordedLeaf leaf;
  std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Hash128), leaf.hash.bytes.begin());
  leaf.casts = {.overflowed = read_little_endian(text, at + 16, 4), .became_nan = read_little_endian(text, at + 20, 4)};
  leaf.crc_checked = read_little_endian(text, at + 24, 4);
  leaf.reader = static_cast<std::uint32_t>(read_little_endian(text, at + 28, 4));
  return leaf;
}

Result<> fill_record(Io& io, FileHandle file, const RecordKey& key) {
  CKPT_CHECK(io.allocate(file, record_bytes(key.leaves)));
  CKPT_CHECK(io.truncate(file, record_bytes(key.leaves)));
  const std::string bytes = header(key);
  return io.write_at(file, 0, std::as_bytes(std::span(bytes)));
}

}  // namespace

std::string record_path(std::string_view partial) {
  return std::string(partial).append(kLeavesSuffix);
}

bool is_record(std::string_view path, std::string& partial) {
  if (!path.ends_with(kLeavesSuffix)) return false;
  partial = path.substr(0, path.size() - kLeavesSuffix.size());
  return true;
}

std::uint64_t record_bytes(std::uint64_t leaves) {
  return kHeaderBytes + kSlotBytes * leaves;
}

Result<> make_record(Io& io, const std::string& path, const RecordKey& key) {
  CKPT_CHECK(remove_record(io, path));
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new}));
  auto filled = fill_record(io, file, key);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(filled));
  return closed;
}

Result<std::vector<RecordedLeaf>> read_record(Io& io, const std::string& path, const RecordKey& key) {
  const auto info = io.stat(path);
  if (!info && info.error().code == Errc::not_found) return std::vector<RecordedLeaf>();
  if (!info) return fail(info.error());
  if (info->kind != FileInfo::Kind::file || info->bytes != record_bytes(key.leaves)) return std::vector<RecordedLeaf>();
  CKPT_TRY(const std::string text, read_small_file(io, path, record_bytes(key.leaves)));
  std::vector<RecordedLeaf> leaves;
  if (text.size() != record_bytes(key.leaves) || !text.starts_with(header(key))) return leaves;
  leaves.reserve(static_cast<std::size_t>(key.leaves));
  for (std::size_t at = kHeaderBytes; at < text.size(); at += kSlotBytes) leaves.push_back(slot_at(text, at));
  return leaves;
}

Result<> remove_record(Io& io, const std::string& path) {
  auto removed = io.unlink(path);
  if (removed || removed.error().code == Errc::not_found) return {};
  return removed;
}

LeafRecorder::LeafRecorder(Io& io, std::string path, std::chrono::milliseconds every)
    : io_(io), path_(std::move(path)), every_(every), last_flush_(std::chrono::steady_clock::now() - every) {}

Result<> LeafRecorder::finished(std::uint64_t leaf, const RecordedLeaf& what) {
  if (path_.empty()) return {};
  waiting_.emplace(leaf, what);
  if (std::chrono::steady_clock::now() - last_flush_ < every_) return {};
  return flush();
}

Result<> LeafRecorder::flush() {
  if (waiting_.empty()) return {};
  if (file_.value < 0) {
    auto opened = io_.open(path_, {.mode = OpenOptions::Mode::write_existing});
    if (!opened && opened.error().code == Errc::not_found) {
      path_.clear();  // it was removed: the target is still made; only a later run would have used the record
      waiting_.clear();
      return {};
    }
    if (!opened) return fail(std::move(opened).error());
    file_ = *opened;
  }
  std::string slots;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::uint64_t first = at->first;
    slots.clear();
    for (std::uint64_t next = first; at != waiting_.end() && at->first == next; ++at, ++next)
      append_slot(slots, at->second);
    CKPT_CHECK(io_.write_at(file_, kHeaderBytes + kSlotBytes * first, std::as_bytes(std::span(slots))));
  }
  waiting_.clear();
  last_flush_ = std::chrono::steady_clock::now();
  return {};
}

Result<> LeafRecorder::close() {
  CKPT_CHECK(flush());
  if (file_.value < 0) return {};
  return io_.close(std::exchange(file_, {}));
}

}  // namespace ckpt
