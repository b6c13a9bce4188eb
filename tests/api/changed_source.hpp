#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/memory_io.hpp"

/// A source that becomes another one while it is read.
namespace ckpt::test {

constexpr std::size_t kTensorBytes = 3000;
using Values = std::map<std::string, int>;  // by tensor, of which every byte is the same

inline std::string shard_of(const std::string& name, int value) {
  std::string header = R"({")" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(kTensorBytes) +
                       R"(],"data_offsets":[0,)" + std::to_string(kTensorBytes) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return length + header + std::string(kTensorBytes, static_cast<char>(value));
}

/// Two shards and their index; `first` and `second`: what they hold.
struct Generation {
  std::pair<std::string, int> first;
  std::pair<std::string, int> second;

  std::map<std::string, std::string> files() const {
    return {{"model-00001-of-00002.safetensors", shard_of(first.first, first.second)},
            {"model-00002-of-00002.safetensors", shard_of(second.first, second.second)},
            {"model.safetensors.index.json", R"({"metadata":{},"weight_map":{")" + first.first +
                                                 R"(":"model-00001-of-00002.safetensors",")" + second.first +
                                                 R"(":"model-00002-of-00002.safetensors"}})"}};
  }
  Values values() const { return {first, second}; }
  void put(MemoryDisk& disk, const std::string& at) const {
    for (auto& [name, bytes] : files()) disk.put(at + "/" + name, bytes);
  }
};

inline const Generation kOld{{"emb", 1}, {"head", 2}};

/// How the source becomes another one.
struct Change {
  std::string name;
  Generation after;
  bool in_place = false;

  void carry_out(MemoryDisk& disk) const {
    if (in_place) return after.put(disk, "/source");
    after.put(disk, "/new");
    const auto io = disk.io();
    for (const auto& [path, bytes] : after.files())
      ASSERT_TRUE(io->rename("/new/" + path, "/source/" + path, RenameMode::replace));
  }
};
inline void PrintTo(const Change& each, std::ostream* out) {
  *out << each.name;
}

inline const std::vector<Change> kChanges{
    {"replaced", {{"head", 12}, {"emb", 11}}},
    {"written_to", {{"emb", 11}, {"head", 12}}, true},
};

}  // namespace ckpt::test
