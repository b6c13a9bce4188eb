#include "format/torch/dcp_item.hpp"

#include <type_traits>
#include <utility>
#include <variant>

#include "format/text/parse_number.hpp"
#include "format/torch/pickle_writer.hpp"
#include "format/torch/tensor_pickle.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::string_view kDataFile = ".distcp";

/// Nests at most as deep as readers let values nest.
bool write_value(pickle::Writer& out, const Value& value) {
  return std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, None>) {
          out.none();
        } else if constexpr (std::is_same_v<T, bool>) {
          out.boolean(v);
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          out.integer(v);
        } else if constexpr (std::is_same_v<T, BigInt>) {
          out.big_integer(v.decimal);
        } else if constexpr (std::is_same_v<T, double>) {
          out.real(v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.text(v);
        } else if constexpr (std::is_same_v<T, Bytes>) {
          out.bytes(v.data);
        } else if constexpr (std::is_same_v<T, List>) {
          if (v.kind == List::Kind::tuple) {
            out.begin_tuple(v.items.size());
          } else if (v.kind == List::Kind::set) {
            out.begin_set(v.items.size());
          } else {
            out.begin_list(v.items.size());
          }
          for (const ValuePtr& item : v.items)
            if (!write_value(out, *item)) return false;
          out.end();
        } else if constexpr (std::is_same_v<T, Dict>) {
          out.begin_dict(v.items.size());
          for (const auto& [key, item] : v.items)
            if (!write_value(out, *key) || !write_value(out, *item)) return false;
          out.end();
        } else {
          return false;
        }
        return true;
      },
      value.v);
}

}  // namespace

std::optional<std::uint64_t> rank_of(std::string_view file_name) {
  const std::size_t bar = file_name.rfind('_');
  if (!file_name.starts_with("__") || !file_name.ends_with(kDataFile) || bar == std::string_view::npos || bar < 3) {
    return std::nullopt;
  }
  if (!parse_number<std::uint32_t>(file_name.substr(bar + 1, file_name.size() - bar - 1 - kDataFile.size())))
    return std::nullopt;
  return parse_number<std::uint32_t>(file_name.substr(2, bar - 2));
}

std::string tensor_pickle(std::string_view dtype, const Shape& shape, std::uint64_t bytes) {
  pickle::Writer writer;
  torch::TensorPickler(writer).tensor({.storage_bytes = bytes, .dtype = dtype, .shape = shape});
  return std::move(writer).finish();
}

Result<std::string> object_pickle(const Value& value) {
  pickle::Writer writer;
  if (!write_value(writer, value)) return fail(Errc::unsupported, "object: it is not made of plain values only");
  return std::move(writer).finish();
}

}  // namespace ckpt::dcp
