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

/// A separate directory for this test on the real file system; removed with everything in it.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = testing::TempDir()) {
    std::string pattern = parent + "/ckpt-test-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ckpt
