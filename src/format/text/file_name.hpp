#pragma once

#include <cstddef>
#include <string_view>

namespace ckpt {

constexpr std::size_t kLongestFileName = 255;  // bytes, on ext4, XFS, Btrfs, tmpfs and NFS

/// Why a text cannot be the name of a file or a folder, to follow "NAME: "; "" if it can.
inline std::string_view why_no_file_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name == "." || name == "..") return "it means a folder";
  if (name.find('/') != std::string_view::npos) return "it has a slash";
  if (name.find('\0') != std::string_view::npos) return "it has a NUL character";
  if (name.size() > kLongestFileName) return "it is longer than 255 bytes";
  return {};
}

}  // namespace ckpt
