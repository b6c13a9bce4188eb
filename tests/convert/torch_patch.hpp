#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "format/files/zip.hpp"
#include "format/hash.hpp"
#include "support/file_bytes.hpp"

namespace ckpt::test {

/// Changes bytes of one entry of a torch.save file in place and makes its CRC right again: what a framework would have
/// written, had its numbers been others.
class TorchPatch {
 public:
  explicit TorchPatch(std::string path, std::string_view entry_suffix = "/data.pkl")
      : path_(std::move(path)), file_(read_file(path_)) {
    const auto bytes = std::as_bytes(std::span(file_));
    const std::uint64_t tail_bytes = std::min<std::uint64_t>(file_.size(), zip::kTailBytes);
    const auto tail = zip::find_tail(bytes.subspan(file_.size() - tail_bytes), file_.size());
    EXPECT_TRUE(tail.has_value()) << path_;
    if (!tail) return;
    const auto entries =
        zip::parse_directory(bytes.subspan(tail->directory_offset, tail->directory_bytes), *tail, file_.size());
    EXPECT_TRUE(entries.has_value()) << path_;
    if (!entries) return;
    for (const zip::Entry& entry : *entries) {
      if (!entry.name.ends_with(entry_suffix)) continue;
      const auto begin = zip::data_offset(bytes.subspan(entry.header_offset), entry, *tail);
      EXPECT_TRUE(begin.has_value()) << path_;
      if (!begin) return;
      name_ = entry.name;
      header_ = entry.header_offset;
      begin_ = *begin;
      bytes_ = entry.bytes;
      directory_ = tail->directory_offset;
      return;
    }
    ADD_FAILURE() << path_ << " has no entry " << entry_suffix;
  }

  /// Replaces the first `from` that follows each of `keys` in turn by `to`, of equal length.
  TorchPatch& replace(std::initializer_list<std::string_view> keys, std::string_view from, std::string_view to) {
    EXPECT_EQ(from.size(), to.size());
    const std::string_view entry = std::string_view(file_).substr(begin_, bytes_);
    std::size_t at = 0;
    for (const std::string_view key : keys) at = std::min(entry.find(key, at), entry.size());
    at = entry.find(from, at);
    EXPECT_NE(at, std::string_view::npos) << path_;
    if (at != std::string_view::npos) file_.replace(begin_ + at, to.size(), to);
    return *this;
  }

  std::size_t size() const { return bytes_; }
  TorchPatch& set(std::size_t at, char value) {
    file_[begin_ + at] = value;
    return *this;
  }

  void write() {
    const std::uint32_t crc = crc32(0, std::as_bytes(std::span(file_)).subspan(begin_, bytes_));
    std::string text;
    for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(crc >> (8 * i) & 0xff));
    file_.replace(header_ + 14, 4, text);
    const std::size_t name = file_.find(name_, directory_);
    ASSERT_NE(name, std::string::npos);
    file_.replace(name - 46 + 16, 4, text);
    write_file(path_, file_);
  }

 private:
  std::string path_;
  std::string file_;
  std::string name_;
  std::uint64_t header_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t directory_ = 0;
};

}  // namespace ckpt::test
