#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace ckpt {

/// A file system in memory where there is one, for tests that make many files and measure no disk.
inline std::string memory_temp_dir() {
  std::error_code ignored;
  return std::filesystem::is_directory("/dev/shm", ignored) ? "/dev/shm" : testing::TempDir();
}

/// A separate directory for this test on the real file system; removed with everything in it. So deep that no store is
/// found above it, whatever is in the parent; no name in its path is a step.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = testing::TempDir()) {
    std::string pattern = parent + "/ckpt-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) return;
    root_ = pattern;
    path_ = root_ + "/a/b/c/d";
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string root_;
  std::string path_;
};

}  // namespace ckpt
