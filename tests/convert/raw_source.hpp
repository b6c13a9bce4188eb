#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "convert/format.hpp"
#include "convert/materialize.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {

/// A source of one file of raw bytes, tensor after tensor, and the request to convert all of it.
struct RawSource {
  static constexpr std::string_view kId = "0123456789abcdef0123456789abcdef";

  TempDir dir{};
  Map map{};
  WriteRequest request{};

  explicit RawSource(const std::vector<Tensor>& tensors) {
    std::string bytes;
    auto table = std::make_shared<ChunkTable>(tensors.size());
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i];
      const std::uint64_t size = tensor_bytes(tensor.dtype, tensor.shape).value();
      if (size > 0)
        table->add(i, tensor.shape, {.box = Box::whole(tensor.shape)}, {.offset = bytes.size(), .dtype = tensor.dtype});
      for (std::uint64_t b = 0; b < size; ++b) bytes += static_cast<char>(b * 7 + i * 31 + 1);
      map.tensors.push_back(tensor);
      request.tensors.push_back({i, tensor.name, tensor.dtype});
    }
    table->seal();
    map.index = std::move(table);
    map.files.push_back({.path = "data", .bytes = bytes.size()});
    spill(dir.path() + "/data", bytes);
    request.source = &map;
    request.id = kId;
  }

  Skeleton lay_out(const Format& format, const std::string& target) {
    request.target = target;
    auto skeleton = format.writer->lay_out(request);
    EXPECT_TRUE(skeleton.has_value()) << (skeleton ? "" : skeleton.error().message);
    return skeleton ? *std::move(skeleton) : Skeleton{};
  }
};

}  // namespace ckpt
