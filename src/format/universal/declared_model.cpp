#include "format/universal/declared_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "format/checked.hpp"
#include "format/files/safetensors.hpp"
#include "format/model/value.hpp"
#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

using universal::Layout;
using universal::TensorRow;

Error usage(const std::string& tensor, std::string reason) {
  return {.code = Errc::usage, .message = fmt::format("{}: {}", tensor, reason), .tensor = tensor};
}

void hash_numbers(Hasher& hasher, const std::vector<std::uint64_t>& numbers) {
  hasher.update_u64(numbers.size());
  for (const std::uint64_t number : numbers) hasher.update_u64(number);
}

void hash_text(Hasher& hasher, std::string_view words) {
  hasher.update_u64(words.size());
  hasher.update(words);
}

void hash_layout(Hasher& hasher, const Layout& layout) {
  hasher.update_u64(static_cast<std::uint64_t>(layout.kind));
  hasher.update_u64(layout.mesh.axes.size());
  for (const universal::Axis& axis : layout.mesh.axes) {
    hash_text(hasher, axis.name);
    hasher.update_u64(axis.size);
  }
  hasher.update_u64(layout.at.size());
  for (const Layout::At& at : layout.at) {
    hasher.update_u64(at.axis);
    hash_numbers(hasher, at.indices);
  }
  hasher.update_u64(layout.cuts.size());
  for (const Layout::Cut& cut : layout.cuts) {
    hasher.update_u64(cut.dim);
    hasher.update_u64(static_cast<std::uint64_t>(cut.rule));
    hash_numbers(hasher, {cut.axes.begin(), cut.axes.end()});
    hash_numbers(hasher, cut.points);
    hash_numbers(hasher, cut.segments);
  }
  hasher.update_u64(layout.flat ? layout.flat->part : 0);
  if (layout.flat) hash_numbers(hasher, {layout.flat->axes.begin(), layout.flat->axes.end()});
}

void hash_tensor(Hasher& hasher, const Tensor& tensor) {
  hash_text(hasher, tensor.name);
  hasher.update_u64(static_cast<std::uint64_t>(tensor.dtype));
  hasher.update_u64(static_cast<std::uint64_t>(tensor.role));
  hash_numbers(hasher, tensor.shape);
  hash_text(hasher, tensor.parameter);
  hash_text(hasher, tensor.slot);
  hash_text(hasher, tensor.true_dtype);
}

}  // namespace

Result<> check_tensor(const Tensor& tensor) {
  if (tensor.name.empty()) return fail(usage(tensor.name, "a tensor has no name"));
  if (tensor.name == "__metadata__") return fail(usage(tensor.name, "a name that safetensors reserves"));
  for (const std::string* text : {&tensor.name, &tensor.parameter, &tensor.slot}) {
    if (!is_utf8(*text)) return fail(usage("", "a name that is not UTF-8"));
  }
  if (tensor.shape.size() > safetensors::kMaxRank) {
    return fail(usage(tensor.name, fmt::format("more than {} dimensions", safetensors::kMaxRank)));
  }
  if (!tensor_bytes(tensor.dtype, tensor.shape)) return fail(usage(tensor.name, "its size overflows 64 bits"));
  return {};
}

Result<Model> Model::make(std::vector<Layout> layouts, std::vector<TensorRow> rows) {
  Model model{.layouts = std::move(layouts), .rows = std::move(rows)};
  std::sort(model.rows.begin(), model.rows.end(),
            [](const TensorRow& a, const TensorRow& b) { return a.tensor.name < b.tensor.name; });
  Hasher hasher;
  for (const Layout& layout : model.layouts) {
    if (auto fits = check_layout(layout); !fits) return fail(Errc::usage, "layout: " + fits.error().message);
    hash_layout(hasher, layout);
  }
  for (std::size_t i = 0; i < model.rows.size(); ++i) {
    const TensorRow& row = model.rows[i];
    const std::string& name = row.tensor.name;
    CKPT_CHECK(check_tensor(row.tensor));
    if (i > 0 && model.rows[i - 1].tensor.name == name) return fail(usage(name, "declared twice"));
    if (row.layout >= model.layouts.size() || model.layouts[row.layout].kind != Layout::Kind::mesh) {
      return fail(usage(name, "it has no layout on a mesh"));
    }
    if (auto fits = check_layout(model.layouts[row.layout], row.tensor, row.begin); !fits) {
      return fail({.code = Errc::usage, .message = std::move(fits.error().message), .tensor = name});
    }
    hash_tensor(hasher, row.tensor);
    hasher.update_u32(row.layout);
    hasher.update_u64(row.begin);
  }
  model.hash = hasher.digest();
  return model;
}

const TensorRow* Model::find(std::string_view name) const {
  const auto at = std::lower_bound(rows.begin(), rows.end(), name,
                                   [](const TensorRow& row, std::string_view n) { return row.tensor.name < n; });
  return at != rows.end() && at->tensor.name == name ? &*at : nullptr;
}

}  // namespace ckpt
