#include "writers/save_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "format/checked.hpp"
#include "format/files/safetensors.hpp"
#include "format/model/value.hpp"
#include "writers/descriptions.hpp"
#include "writers/replica_groups.hpp"
#include "writers/row_text.hpp"

namespace ckpt {
namespace {

using universal::Layout;
using universal::TensorRow;

Error table_usage(const std::string& tensor, std::string reason) {
  return {.code = Errc::usage, .message = fmt::format("{}: {}", tensor, reason), .tensor = tensor};
}

void hash_numbers(Hasher& hasher, const std::vector<std::uint64_t>& numbers) {
  hasher.update_u64(numbers.size());
  for (const std::uint64_t number : numbers) hasher.update_u64(number);
}

void hash_words(Hasher& hasher, std::string_view words) {
  hasher.update_u64(words.size());
  hasher.update(words);
}

void hash_layout(Hasher& hasher, const Layout& layout) {
  hasher.update_u64(static_cast<std::uint64_t>(layout.kind));
  hasher.update_u64(layout.mesh.axes.size());
  for (const universal::Axis& axis : layout.mesh.axes) {
    hash_words(hasher, axis.name);
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

std::shared_ptr<SaveTable> build_table(const Model& model, std::vector<Tensor> described) {
  auto table = std::make_shared<SaveTable>();
  table->layouts = model.layouts;
  table->rows = model.rows;
  const auto irregular = static_cast<std::uint32_t>(table->layouts.size());
  if (!described.empty() || table->layouts.empty()) table->layouts.push_back({.kind = Layout::Kind::irregular});
  for (Tensor& tensor : described) table->rows.push_back({.tensor = std::move(tensor), .layout = irregular});
  std::sort(table->rows.begin(), table->rows.end(),
            [](const TensorRow& a, const TensorRow& b) { return a.tensor.name < b.tensor.name; });
  return table;
}

}  // namespace

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
    if (i > 0 && model.rows[i - 1].tensor.name == name) return fail(table_usage(name, "declared twice"));
    if (row.layout >= model.layouts.size() || model.layouts[row.layout].kind != Layout::Kind::mesh) {
      return fail(table_usage(name, "it has no layout on a mesh"));
    }
    if (auto fits = check_layout(model.layouts[row.layout], row.tensor, row.begin); !fits) {
      return fail({.code = Errc::usage, .message = std::move(fits.error().message), .tensor = name});
    }
    std::string text;
    append_tensor(text, row.tensor);
    hash_words(hasher, text);
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

std::optional<std::uint32_t> SaveTable::find(std::string_view name) const {
  const auto at = std::lower_bound(rows.begin(), rows.end(), name,
                                   [](const TensorRow& row, std::string_view n) { return row.tensor.name < n; });
  if (at == rows.end() || at->tensor.name != name) return std::nullopt;
  return static_cast<std::uint32_t>(at - rows.begin());
}

Result<std::shared_ptr<const SaveTable>> agree_on_table(Comm& comm, Deadline deadline, const Model& model,
                                                        std::span<const Piece> pieces, Result<> mine,
                                                        std::shared_ptr<const SaveTable> last, Hash128& last_hash) {
  Hasher all;
  const auto model_words = model.hash.words();
  std::string text = descriptions_text(pieces);
  all.update(std::as_bytes(std::span(model.hash.bytes)));
  all.update(text);
  const Hash128 now = all.digest();
  // A maximum of a value and of its complement are equal on ranks that hold the same value, and on no others.
  std::array<std::uint64_t, 6> words{
      last == nullptr || now != last_hash, !mine, model_words[0], ~model_words[0], model_words[1], ~model_words[1]};
  CKPT_CHECK(comm.max(words, deadline));
  if (words[1] != 0) CKPT_CHECK(agree(comm, deadline, std::move(mine)));
  if (words[2] != ~words[3] || words[4] != ~words[5]) {
    return fail(Errc::usage, "the ranks have declared different models");
  }
  if (words[0] == 0) return last;

  CKPT_TRY(const std::vector<std::string> texts, comm.gather(text, deadline));
  Result<> merged;
  std::string shared;
  if (comm.is_root()) {
    auto whole = merge_descriptions(model, texts);
    text.clear();
    if (whole) {
      for (const Tensor& tensor : whole->tensors) append_tensor(text, tensor);
      const std::vector<std::uint64_t>& keys = whole->shared;
      shared.assign(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(std::uint64_t));
    } else {
      merged = fail(std::move(whole).error());
    }
  }
  CKPT_CHECK(agree(comm, deadline, std::move(merged)));
  CKPT_CHECK(comm.broadcast(text, deadline));
  CKPT_CHECK(comm.broadcast(shared, deadline));
  CKPT_TRY(std::vector<Tensor> described, tensors_from_text(text));
  const auto table = build_table(model, std::move(described));
  table->shared.resize(shared.size() / sizeof(std::uint64_t));
  if (!shared.empty()) std::memcpy(table->shared.data(), shared.data(), table->shared.size() * sizeof(std::uint64_t));
  table->groups = std::make_shared<ReplicaGroups>(model, comm.rank(), comm.ranks());
  last_hash = now;  // only now: a refused piece must be checked again
  return table;
}

}  // namespace ckpt
