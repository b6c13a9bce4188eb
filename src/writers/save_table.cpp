#include "writers/save_table.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "format/universal/replica_groups.hpp"
#include "writers/descriptions.hpp"
#include "writers/row_text.hpp"

namespace ckpt {
namespace {

using universal::Layout;
using universal::TensorRow;

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
