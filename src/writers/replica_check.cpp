#include "writers/replica_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "format/hash.hpp"
#include "writers/descriptions.hpp"
#include "writers/replica_groups.hpp"

namespace ckpt {
namespace {

// 4 KiB of a tensor, spread over it: ranks that have drifted apart differ nearly everywhere.
constexpr std::uint64_t kBlockBytes = 64;
constexpr std::uint64_t kBlocks = 64;

Hash128 sample(const MemorySource& memory) {
  Hasher hasher;
  hasher.update_u64(memory.bytes);
  if (memory.bytes <= kBlocks * kBlockBytes) {
    hasher.update({memory.data, static_cast<std::size_t>(memory.bytes)});
    return hasher.digest();
  }
  const std::uint64_t last = memory.bytes - kBlockBytes;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t at = last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1);
    hasher.update({memory.data + at, static_cast<std::size_t>(kBlockBytes)});
  }
  return hasher.digest();
}

bool is_readable(const Piece* piece) {
  return piece != nullptr && (piece->memory.data != nullptr || piece->memory.bytes == 0);
}

bool differs(std::span<const std::uint64_t> told, std::size_t pair) {
  return (told[2 * pair] != 0 || told[2 * pair + 1] != 0) && told[2 * pair] != ~told[2 * pair + 1];
}

Error unlike(const std::string& name, const char* what) {
  return {.code = Errc::usage,
          .message = fmt::format("save: {}: {}", name, what),
          .tensor = name,
          .hint = "replicated tensors must be equal on every rank; give per-rank data the name NAME@RANK"};
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Model& model, const SaveTable& table, std::span<const Piece> pieces)
    : model_(model), table_(table), pieces_(pieces), by_row_(model.rows.size(), nullptr) {
  for (const Piece& piece : pieces_) {
    if (piece.described) continue;
    if (const universal::TensorRow* row = model_.find(piece.name))
      by_row_[static_cast<std::size_t>(row - model_.rows.data())] = &piece;
  }
  words_.assign(static_cast<std::size_t>(2 * (table_.groups->number_end() + table_.shared.size())), 0);
  add_groups();
  add_shared();
}

void ReplicaCheck::add_groups() {
  const ReplicaGroups& groups = *table_.groups;
  std::vector<Hasher> hashers(groups.groups().size());
  std::vector<bool> abstains(hashers.size(), false);
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    const std::uint32_t group = groups.group_of(row);
    if (group == ReplicaGroups::kNoGroup) continue;
    if (!is_readable(by_row_[row])) {
      abstains[group] = true;
      continue;
    }
    hashers[group].update_u64(sample(by_row_[row]->memory).words()[0]);
  }
  for (std::size_t i = 0; i < hashers.size(); ++i) {
    if (abstains[i]) continue;
    const auto pair = static_cast<std::size_t>(groups.groups()[i].number);
    words_[2 * pair] = hashers[i].digest().words()[0];
    words_[2 * pair + 1] = ~words_[2 * pair];
  }
}

void ReplicaCheck::add_shared() {
  if (table_.shared.empty()) return;
  const auto first = static_cast<std::size_t>(table_.groups->number_end());
  for (const Piece& piece : pieces_) {
    if (!piece.described || !is_readable(&piece)) continue;
    const std::uint64_t key = description_key({&piece, 1});
    const auto at = std::lower_bound(table_.shared.begin(), table_.shared.end(), key);
    if (at == table_.shared.end() || *at != key) continue;
    const std::size_t pair = first + static_cast<std::size_t>(at - table_.shared.begin());
    words_[2 * pair] = hash128({piece.memory.data, static_cast<std::size_t>(piece.memory.bytes)}).words()[0];
    words_[2 * pair + 1] = ~words_[2 * pair];
  }
}

Result<> ReplicaCheck::judge(Comm& comm, Deadline deadline, std::span<const std::uint64_t> told) const {
  const auto groups = static_cast<std::size_t>(table_.groups->number_end());
  std::size_t pair = 0;
  while (pair < told.size() / 2 && !differs(told, pair)) ++pair;
  if (pair == told.size() / 2) return {};
  if (pair < groups) return judge_group(comm, deadline, pair);
  Result<> mine;
  for (const Piece& piece : pieces_) {
    if (!piece.described || description_key({&piece, 1}) != table_.shared[pair - groups]) continue;
    mine = fail(unlike(piece.described->name, "ranks added different bytes"));
  }
  return agree(comm, deadline, std::move(mine));
}

/// Finds the tensor. Collective.
Result<> ReplicaCheck::judge_group(Comm& comm, Deadline deadline, std::uint64_t number) const {
  const ReplicaGroups& groups = *table_.groups;
  std::vector<std::uint64_t> rows(2 * by_row_.size(), 0);
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    const std::uint32_t group = groups.group_of(row);
    if (group == ReplicaGroups::kNoGroup || groups.groups()[group].number != number || !is_readable(by_row_[row]))
      continue;
    rows[2 * row] = sample(by_row_[row]->memory).words()[0];
    rows[2 * row + 1] = ~rows[2 * row];
  }
  CKPT_CHECK(comm.max(rows, deadline));
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    if (differs(rows, row)) return fail(unlike(model_.rows[row].tensor.name, "replicas differ between ranks"));
  }
  return fail(Errc::internal, "save: replicas differ, but no tensor does");
}

}  // namespace ckpt
