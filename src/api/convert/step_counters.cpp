#include "api/convert/step_counters.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/checks.hpp"
#include "format/model/cast.hpp"

namespace ckpt {
namespace {

/// The location of one counter.
struct Counter {
  std::uint32_t tensor = 0;
  Locator where{};
};

Result<Counter> find_counter(const Map& map, std::uint32_t tensor) {
  Counter out{.tensor = tensor};
  bool found = false;
  CKPT_CHECK(map.index->chunks(tensor, {0, 1}, [&](const PlacedChunk& chunk) -> Result<> {
    if (!found) out.where = chunk.where;
    found = true;
    return {};
  }));
  if (!found) return fail(Errc::uncovered, map.tensors[tensor].name + ": not in any file");
  if (out.where.compressed)
    return fail({.code = Errc::unsupported,
                 .message = map.tensors[tensor].name + ": a step counter in compressed data is not read",
                 .tensor = map.tensors[tensor].name});
  return out;
}

Result<double> number(const std::string& name, Dtype dtype, std::array<std::byte, 8> bytes) {
  const auto raw = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  if (dtype == Dtype::i64) return static_cast<double>(raw(std::int64_t{}));
  if (dtype == Dtype::i32) return static_cast<double>(raw(std::int32_t{}));
  if (dtype == Dtype::f64) return raw(double{});
  if (is_castable(dtype)) {
    std::array<std::byte, sizeof(double)> wide{};
    CastCounts counts;
    cast(dtype, bytes.data(), Dtype::f64, wide.data(), 1, counts);
    bytes = wide;
    return raw(double{});
  }
  return fail({.code = Errc::unsupported,
               .message = name + ": a step counter of type " + std::string(dtype_name(dtype)),
               .tensor = name});
}

/// The step, or another number that an optimizer keeps next to the step (NAdam's mu_product).
bool is_counter(const Tensor& tensor) {
  if (tensor.role != Role::slot) return false;
  if (tensor.slot == "step") return volume(tensor.shape) == 1;
  return tensor.shape.empty() && tensor.slot != "master" && is_castable(tensor.dtype) && tensor.true_dtype.empty();
}

}  // namespace

Result<std::unordered_map<std::uint32_t, double>> read_step_counters(const Source& source,
                                                                     std::span<const Selected> tensors) {
  const Map& map = source.map;
  std::vector<std::vector<Counter>> by_file(map.files.size());
  for (const Selected& selected : tensors) {
    const Tensor& tensor = map.tensors[selected.tensor];
    if (!is_counter(tensor)) continue;
    CKPT_TRY(Counter counter, find_counter(map, selected.tensor));
    by_file[counter.where.file].push_back(std::move(counter));
  }
  std::unordered_map<std::uint32_t, double> out;
  for (std::uint32_t file = 0; file < by_file.size(); ++file) {
    if (by_file[file].empty()) continue;
    CKPT_TRY(const FileHandle handle, source.io->open(path_of(map, file, source.root), {}));
    Result<> read;
    for (const Counter& counter : by_file[file]) {
      const unsigned size = dtype_bits(counter.where.dtype) / 8;
      std::array<std::byte, 8> bytes{};
      read = source.io->read_at(handle, counter.where.offset, std::span(bytes).first(size));
      if (!read) break;
      if (counter.where.big_endian) std::reverse(bytes.begin(), bytes.begin() + size);
      auto value = number(map.tensors[counter.tensor].name, counter.where.dtype, bytes);
      if (!value) {
        read = fail(std::move(value).error());
        break;
      }
      out.emplace(counter.tensor, *value);
    }
    const auto closed = source.io->close(handle);
    CKPT_CHECK(read);
    CKPT_CHECK(closed);
  }
  return out;
}

}  // namespace ckpt
