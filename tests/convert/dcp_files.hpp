#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "support/dcp_build.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {

/// A DCP directory on disk, written item by item.
class DcpFiles {
 public:
  const std::string& root() const { return dir_.path(); }
  std::vector<dcp_build::Entry>& entries() { return entries_; }
  dcp_build::Entry& add(dcp_build::Entry entry) { return entries_.emplace_back(std::move(entry)); }

  /// Appends bytes to a data file; where they stand.
  dcp_build::StorageInfo append(const std::string& file, const std::string& bytes) {
    std::string& data = data_of(file);
    data += bytes;
    return {file, data.size() - bytes.size(), bytes.size(), {}};
  }
  /// Writes the data files and then `.metadata`.
  void write(const dcp_build::Style& style = {}) {
    for (const auto& [file, data] : data_) write_file(file, data);
    write_file(".metadata", dcp_build::metadata(entries_, style));
  }
  void write_file(const std::string& name, const std::string& bytes) const {
    std::ofstream out(root() + "/" + name, std::ios::binary | std::ios::trunc);
    out << bytes;
    ASSERT_TRUE(out.good()) << name;
  }
  std::string& data_of(const std::string& file) {
    for (auto& [name, data] : data_) {
      if (name == file) return data;
    }
    return data_.emplace_back(file, "").second;
  }

 private:
  TempDir dir_;
  std::vector<dcp_build::Entry> entries_;
  std::vector<std::pair<std::string, std::string>> data_;
};

}  // namespace ckpt
