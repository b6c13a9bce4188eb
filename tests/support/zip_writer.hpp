#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "format/hash.hpp"

namespace ckpt::test {

/// Writes small zip files with stored entries, in memory.
class ZipWriter {
 public:
  /// How an entry differs from a sound one.
  struct Damage {
    std::uint16_t flags = 0;
    std::uint16_t method = 0;
    std::uint32_t crc_xor = 0;
    std::string local_extra{};      ///< in the local header only
    std::int64_t header_shift = 0;  ///< added to the offset in the directory
    std::int64_t stored_more = 0;   ///< added to both sizes in the directory
  };

  ZipWriter& add(std::string_view name, std::string_view data) { return add(name, data, Damage{}); }
  ZipWriter& add(std::string_view name, std::string_view data, const Damage& damage) {
    const std::uint32_t crc = with_crc ? crc32(0, std::as_bytes(std::span(data))) ^ damage.crc_xor : 0;
    const std::uint64_t header = out_.size();
    out_ += "PK\3\4";
    number(out_, 20, 2), number(out_, damage.flags, 2), number(out_, damage.method, 2), number(out_, 0, 4);
    number(out_, crc, 4), number(out_, data.size(), 4), number(out_, data.size(), 4);
    number(out_, name.size(), 2), number(out_, damage.local_extra.size(), 2);
    out_.append(name).append(damage.local_extra).append(data);
    const std::uint64_t size = data.size() + static_cast<std::uint64_t>(damage.stored_more);
    directory_ += "PK\1\2";
    number(directory_, 20, 2), number(directory_, 20, 2), number(directory_, damage.flags, 2);
    number(directory_, damage.method, 2), number(directory_, 0, 4), number(directory_, crc, 4);
    if (zip64) {
      number(directory_, 0xffffffff, 4), number(directory_, 0xffffffff, 4);
    } else {
      number(directory_, size, 4), number(directory_, size, 4);
    }
    number(directory_, name.size(), 2), number(directory_, zip64 ? 28 : 0, 2), number(directory_, 0, 2);
    number(directory_, 0, 2), number(directory_, 0, 2), number(directory_, 0, 4);
    const std::uint64_t shown = header + static_cast<std::uint64_t>(damage.header_shift);
    number(directory_, zip64 ? 0xffffffff : shown, 4);
    directory_ += name;
    if (zip64) {
      number(directory_, 1, 2), number(directory_, 24, 2), number(directory_, size, 8), number(directory_, size, 8);
      number(directory_, shown, 8);
    }
    ++count_;
    return *this;
  }

  std::string finish(std::string_view comment = {}) const {
    std::string out = out_ + directory_;
    if (zip64) {
      const std::uint64_t record = out.size();
      out += "PK\6\6";
      number(out, 44, 8), number(out, 0x031e, 2), number(out, 45, 2), number(out, 0, 4), number(out, 0, 4);
      number(out, count_, 8), number(out, count_, 8), number(out, directory_.size(), 8), number(out, out_.size(), 8);
      out += "PK\6\7";
      number(out, 0, 4), number(out, record, 8), number(out, 1, 4);
    }
    out += "PK\5\6";
    number(out, 0, 2), number(out, 0, 2), number(out, zip64 ? 0xffff : count_, 2);
    number(out, zip64 ? 0xffff : count_, 2), number(out, zip64 ? 0xffffffff : directory_.size(), 4);
    number(out, zip64 ? 0xffffffff : out_.size(), 4), number(out, comment.size(), 2);
    return out.append(comment);
  }

  bool with_crc = true;
  bool zip64 = false;

 private:
  static void number(std::string& out, std::uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }

  std::string out_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

/// A torch.save file: `pickle`, then the storages "0", "1", ... below the folder "archive".
inline std::string torch_file(std::string_view pickle, std::initializer_list<std::string_view> storages,
                              bool with_crc = true, std::string_view byte_order = "little") {
  ZipWriter zip;
  zip.with_crc = with_crc;
  zip.add("archive/data.pkl", pickle).add("archive/byteorder", byte_order);
  std::size_t key = 0;
  for (const std::string_view storage : storages) zip.add("archive/data/" + std::to_string(key++), storage);
  return zip.add("archive/version", "3\n").finish();
}

}  // namespace ckpt::test
