#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace ckpt::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(in) << path;
  if (!in) return {};
  std::string bytes(static_cast<std::size_t>(in.tellg()), '\0');
  in.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(in) << path;
  return bytes;
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  EXPECT_TRUE(out.flush()) << path;
}

/// The files of a folder, at any depth: path below it -> bytes. Of a single file: "" -> bytes. Empty if nothing exists.
using FileTree = std::map<std::string, std::string>;

inline FileTree read_tree(const std::string& path) {
  namespace fs = std::filesystem;
  FileTree out;
  if (fs::is_regular_file(path)) out[""] = read_file(path);
  if (!fs::is_directory(path)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) out[fs::relative(entry.path(), path)] = read_file(entry.path());
  }
  return out;
}

}  // namespace ckpt::test
