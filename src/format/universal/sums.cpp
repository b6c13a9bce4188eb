#include "format/universal/sums.hpp"

#include <fmt/format.h>

#include <cstring>

#include "format/checked.hpp"
#include "format/little_endian.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

constexpr std::string_view kMagic = "CKPTSUMS";
constexpr std::uint64_t kMajor = 1;  // 0.9 has the same form
constexpr std::uint64_t kMinor = 0;
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kRecordBytes = 64;
constexpr std::size_t kLeafHashBytes = 16;
constexpr std::uint64_t kSumsAlignment = 4096;

void append_hash(std::string& out, const Hash128& hash) {
  out.append(reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size());
}

Hash128 hash_at(std::span<const std::byte> data, std::size_t offset) {
  Hash128 hash;
  std::memcpy(hash.bytes.data(), data.data() + offset, hash.bytes.size());
  return hash;
}

tl::unexpected<Error> bad_sums(Check check, std::uint64_t offset, std::string reason) {
  return violates(check,
                  Error{.message = fmt::format("sums.bin: parse at byte {}: {}", offset, reason), .offset = offset});
}

bool holds_tensors(FileClass file_class) {
  return file_class == FileClass::weights || file_class == FileClass::optim || file_class == FileClass::blobs;
}

/// A record by itself; the caller checks order and leaves. reserved: no minor version known to this release gives its
/// reserved bytes a meaning.
Result<FileRecord> parse_record(std::span<const std::byte> data, std::size_t at, bool reserved) {
  const std::uint64_t file_class = read_little_endian(data, at, 4);
  if (file_class >= kClassCount)
    return bad_sums(Check::record_class, at, fmt::format("unknown file class {}", file_class));
  FileRecord file{
      .key = {static_cast<FileClass>(file_class), static_cast<std::uint32_t>(read_little_endian(data, at + 4, 4)),
              static_cast<std::uint32_t>(read_little_endian(data, at + 8, 4))},
      .bytes = read_little_endian(data, at + 16, 8),
      .data_begin = read_little_endian(data, at + 24, 8),
      .first_leaf = read_little_endian(data, at + 32, 8),
      .root = hash_at(data, at + 48),
  };
  if (reserved && (read_little_endian(data, at + 12, 4) != 0 || read_little_endian(data, at + 40, 8) != 0))
    return bad_sums(Check::record, at, "reserved bytes of a record are not zero");
  if (file.bytes >> 63 != 0) return bad_sums(Check::record, at + 16, "a file size of 2^63 or more");
  if (holds_tensors(file.key.file_class)) {
    if (file.data_begin == 0 || file.data_begin % kSumsAlignment != 0 || file.data_begin > file.bytes)
      return bad_sums(Check::record, at + 24,
                      fmt::format("data begins at {} of {} bytes", file.data_begin, file.bytes));
  } else if (file.data_begin != 0) {
    return bad_sums(Check::record, at + 24, "a data begin in a file class without tensors");
  }
  const bool single = file.key.file_class == FileClass::objects && (file.key.writer != 0 || file.key.volume != 0);
  if (single || (file.key.file_class == FileClass::index && file.key.volume != 0))
    return bad_sums(Check::record, at, "a second file where only one is allowed");
  return file;
}

}  // namespace

std::string_view class_name(FileClass file_class) {
  switch (file_class) {
    case FileClass::weights:
      return "weights";
    case FileClass::optim:
      return "optim";
    case FileClass::blobs:
      return "blobs";
    case FileClass::objects:
      return "objects";
    case FileClass::index:
      return "index";
  }
  return "unknown";
}

std::string FileKey::path() const {
  switch (file_class) {
    case FileClass::weights:
    case FileClass::optim:
      return fmt::format("shards/{}/{:05}-{:05}.safetensors", class_name(file_class), writer, volume);
    case FileClass::blobs:
      return fmt::format("blobs/{:05}-{:05}.safetensors", writer, volume);
    case FileClass::objects:
      return "blobs/objects.json";
    case FileClass::index:
      return fmt::format("index/{:05}.bin", writer);
  }
  return {};
}

Hash128 root_hash(const Hash128& id, std::string_view path, std::uint64_t file_bytes, std::span<const Hash128> leaves) {
  constexpr char kDomain[] = "ckpt.root.1";  // with its zero byte
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(kDomain)));
  hasher.update(std::as_bytes(std::span(id.bytes)));
  hasher.update_u32(static_cast<std::uint32_t>(path.size()));
  hasher.update(path);
  hasher.update_u64(file_bytes);
  static_assert(sizeof(Hash128) == kLeafHashBytes);
  hasher.update(std::as_bytes(leaves));
  return hasher.digest();
}

Result<std::string> build_sums(Sums& sums) {
  std::uint64_t first_leaf = 0;
  for (std::size_t i = 0; i < sums.files.size(); ++i) {
    FileRecord& file = sums.files[i];
    if (i != 0 && !(sums.files[i - 1].key < file.key))
      return fail(Errc::internal, file.key.path() + ": build sums.bin: files are out of order");
    file.first_leaf = first_leaf;
    first_leaf += leaf_count(file.bytes);
    if (first_leaf > sums.leaves.size())
      return fail(Errc::internal, file.key.path() + ": build sums.bin: leaf hashes are missing");
    file.root = root_hash(sums.id, file.key.path(), file.bytes, sums.leaves_of(file));
  }
  if (first_leaf != sums.leaves.size()) return fail(Errc::internal, "sums.bin: build: more leaf hashes than leaves");

  std::string out;
  out.reserve(kHeaderBytes + sums.files.size() * kRecordBytes + sums.leaves.size() * kLeafHashBytes);
  out += kMagic;
  append_little_endian(out, kMajor, 2);
  append_little_endian(out, kMinor, 2);
  append_little_endian(out, kLeafShift, 4);
  append_hash(out, sums.id);
  append_little_endian(out, sums.files.size(), 8);
  append_little_endian(out, sums.leaves.size(), 8);
  append_little_endian(out, 0, 8);
  append_little_endian(out, 0, 8);
  for (const FileRecord& file : sums.files) {
    append_little_endian(out, static_cast<std::uint32_t>(file.key.file_class), 4);
    append_little_endian(out, file.key.writer, 4);
    append_little_endian(out, file.key.volume, 4);
    append_little_endian(out, 0, 4);
    append_little_endian(out, file.bytes, 8);
    append_little_endian(out, file.data_begin, 8);
    append_little_endian(out, file.first_leaf, 8);
    append_little_endian(out, 0, 8);
    append_hash(out, file.root);
  }
  for (const Hash128& leaf : sums.leaves) append_hash(out, leaf);
  return out;
}

Result<Sums> parse_sums(std::span<const std::byte> data) {
  if (data.size() < kHeaderBytes) return bad_sums(Check::sums_form, data.size(), "shorter than its header");
  if (std::memcmp(data.data(), kMagic.data(), kMagic.size()) != 0)
    return bad_sums(Check::sums_form, 0, "does not begin with CKPTSUMS");
  const std::uint64_t major = read_little_endian(data, 8, 2);
  const std::uint64_t minor = read_little_endian(data, 10, 2);
  const bool is_old = major == 0 && minor == 9;
  const bool reserved = is_old || minor <= kMinor;
  if (major != kMajor && !is_old) return bad_sums(Check::sums_version, 8, fmt::format("version {}.{}", major, minor));
  if (read_little_endian(data, 12, 4) != kLeafShift)
    return bad_sums(Check::sums_version, 12, "a leaf size other than 4 MiB");
  if (reserved && (read_little_endian(data, 48, 8) != 0 || read_little_endian(data, 56, 8) != 0))
    return bad_sums(Check::sums_form, 48, "reserved bytes are not zero");

  // Both counts must match the existing bytes before they size anything.
  const std::uint64_t record_count = read_little_endian(data, 32, 8);
  const std::uint64_t hash_count = read_little_endian(data, 40, 8);
  const std::uint64_t rest = data.size() - kHeaderBytes;
  if (record_count > rest / kRecordBytes || hash_count > rest / kLeafHashBytes ||
      record_count * kRecordBytes + hash_count * kLeafHashBytes != rest)
    return bad_sums(Check::sums_form, 32,
                    fmt::format("{} records and {} leaves in {} bytes", record_count, hash_count, data.size()));

  Sums sums;
  sums.id = hash_at(data, 16);
  sums.files.reserve(record_count);
  std::uint64_t next_leaf = 0;
  for (std::uint64_t i = 0; i < record_count; ++i) {
    const std::size_t at = kHeaderBytes + i * kRecordBytes;
    CKPT_TRY(FileRecord file, parse_record(data, at, reserved));
    if (!sums.files.empty() && !(sums.files.back().key < file.key))
      return bad_sums(Check::record, at, "records are out of order");
    if (file.first_leaf != next_leaf) return bad_sums(Check::record_leaves, at + 32, "a wrong first leaf");
    CKPT_TRY(next_leaf, checked_add(next_leaf, leaf_count(file.bytes)));
    if (next_leaf > hash_count) return bad_sums(Check::record_leaves, at + 16, "files have more leaves than the table");
    sums.files.push_back(file);
  }
  if (next_leaf != hash_count) return bad_sums(Check::record_leaves, 40, "the table has more leaves than the files");
  sums.leaves.resize(hash_count);
  if (hash_count != 0) {
    std::memcpy(sums.leaves.data(), data.data() + kHeaderBytes + record_count * kRecordBytes,
                hash_count * kLeafHashBytes);
  }
  return sums;
}

bool is_old_table(std::span<const std::byte> data) {
  return read_little_endian(data, 8, 2) == 0;
}

}  // namespace ckpt::universal
