#include "writers/replica_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/io/exceptions_to_result.hpp"
#include "format/hash.hpp"
#include "format/universal/replica_groups.hpp"
#include "writers/descriptions.hpp"

namespace ckpt {
namespace {

bool is_given(const Piece& piece) {
  return piece.memory.data != nullptr || piece.memory.bytes == 0 || piece.memory.fill != nullptr;
}

bool differs(std::span<const std::uint64_t> combined, std::size_t pair) {
  return (combined[2 * pair] != 0 || combined[2 * pair + 1] != 0) && combined[2 * pair] != ~combined[2 * pair + 1];
}

Error unlike(const std::string& name, const char* what) {
  return {.code = Errc::usage,
          .message = fmt::format("{}: {}", name, what),
          .tensor = name,
          .hint = "replicated tensors must be equal on every rank; give per-rank data the name NAME@RANK"};
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Model& model, const SaveTable& table, std::span<const Piece> pieces)
    : model_(model), table_(table), pieces_(pieces), by_row_(model.rows.size(), 0) {
  const std::size_t pairs = static_cast<std::size_t>(table_.groups->number_end()) + table_.shared.size();
  words_.assign(2 * pairs + static_cast<std::size_t>(table_.groups->number_end()), 0);
}

/// The index in `shared` of a described piece, if other ranks describe it as well.
std::optional<std::size_t> ReplicaCheck::shared_place(const Piece& piece) const {
  if (!piece.described || table_.shared.empty()) return std::nullopt;
  const std::uint64_t key = description_key({&piece, 1});
  const auto at = std::lower_bound(table_.shared.begin(), table_.shared.end(), key);
  if (at == table_.shared.end() || *at != key) return std::nullopt;
  return static_cast<std::size_t>(at - table_.shared.begin());
}

bool ReplicaCheck::is_compared(const Piece& piece) const {
  if (!is_given(piece)) return false;
  if (piece.described) return shared_place(piece).has_value();
  const universal::TensorRow* row = model_.find(piece.name);
  return row != nullptr &&
         table_.groups->group_of(static_cast<std::size_t>(row - model_.rows.data())) != ReplicaGroups::kNoGroup;
}

void ReplicaCheck::add_blocks() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!is_compared(pieces_[i])) continue;
    const std::uint64_t bytes = pieces_[i].memory.bytes;
    std::uint64_t offset = 0;
    do {
      const std::uint64_t size = std::min<std::uint64_t>(kLeafBytes, bytes - offset);
      blocks_.push_back({.piece = i, .offset = offset, .bytes = size});
      offset += size;
    } while (offset < bytes);
  }
}

Result<> ReplicaCheck::hash_some(BufferPool& pool, std::span<Block> blocks, std::atomic<std::size_t>& next,
                                 const std::atomic<bool>& stop) {
  std::optional<BufferPool::Buffer> buffer;
  while (!stop.load()) {
    const std::size_t i = next.fetch_add(1);
    if (i >= blocks.size()) return {};
    Block& block = blocks[i];
    const MemorySource& memory = pieces_[block.piece].memory;
    const std::byte* data = memory.data + (memory.data != nullptr ? block.offset : 0);
    if (memory.data == nullptr && block.bytes != 0) {
      if (!buffer) buffer = pool.acquire(stop);
      if (!buffer && stop.load()) return {};
      if (!buffer) return fail(Errc::memory, "no buffer is left because I/O failed");
      CKPT_CHECK(memory.fill(buffer->data(), block.offset, block.bytes));
      data = buffer->data();
    }
    block.hash = hash128({data, static_cast<std::size_t>(block.bytes)});
  }
  return {};
}

Result<> ReplicaCheck::hash(BufferPool& pool, unsigned threads) {
  add_blocks();
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Result<> outcome;
  const auto work = [&] {
    auto done = exceptions_to_result([&] { return hash_some(pool, blocks_, next, stop); });
    if (done) return;
    stop.store(true);
    const std::lock_guard held(mutex);
    if (outcome) outcome = std::move(done);
  };
  {
    const std::size_t others =
        std::min<std::size_t>(std::max(threads, 1U), std::max<std::size_t>(blocks_.size(), 1)) - 1;
    std::vector<std::jthread> helpers;
    helpers.reserve(others);
    try {
      for (std::size_t i = 0; i < others; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads can be started: the existing ones hash everything.
    }
    work();
  }
  if (outcome) fill_words();
  return outcome;
}

void ReplicaCheck::fill_words() {
  const ReplicaGroups& groups = *table_.groups;
  const auto first_shared = static_cast<std::size_t>(groups.number_end());
  const auto set = [this](std::size_t pair, std::uint64_t word) {
    words_[2 * pair] = word;
    words_[2 * pair + 1] = ~word;
  };
  for (std::size_t i = 0; i < blocks_.size();) {
    const Piece& piece = pieces_[blocks_[i].piece];
    Hasher hasher;
    hasher.update_u64(piece.memory.bytes);
    for (const std::size_t own = blocks_[i].piece; i < blocks_.size() && blocks_[i].piece == own; ++i) {
      for (const std::uint64_t word : blocks_[i].hash.words()) hasher.update_u64(word);
    }
    const std::uint64_t word = hasher.digest().words()[0];
    if (const auto place = shared_place(piece)) {
      set(first_shared + *place, word);
    } else {
      by_row_[static_cast<std::size_t>(model_.find(piece.name) - model_.rows.data())] = word;
    }
  }
  struct Seen {
    Hasher hasher{};
    bool any = false;
    bool all = true;
  };
  std::vector<Seen> seen(groups.groups().size());
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    const std::uint32_t group = groups.group_of(row);
    if (group == ReplicaGroups::kNoGroup) continue;
    (by_row_[row] != 0 ? seen[group].any : seen[group].all) = by_row_[row] != 0;
    seen[group].hasher.update_u64(by_row_[row]);
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto number = static_cast<std::size_t>(groups.groups()[i].number);
    if (seen[i].all) set(number, seen[i].hasher.digest().words()[0]);
    if (seen[i].any && !seen[i].all) words_[words_.size() - first_shared + number] = 1;
  }
}

Result<> ReplicaCheck::judge(Comm& comm, Deadline deadline, std::span<const std::uint64_t> combined) const {
  const auto groups = static_cast<std::size_t>(table_.groups->number_end());
  const std::size_t pairs = groups + table_.shared.size();
  for (std::size_t number = 0; number < groups; ++number) {
    if (differs(combined, number) || combined[2 * pairs + number] != 0) CKPT_CHECK(judge_group(comm, deadline, number));
  }
  std::size_t pair = groups;
  while (pair < pairs && !differs(combined, pair)) ++pair;
  if (pair == pairs) return {};
  Result<> mine;
  for (const Piece& piece : pieces_) {
    if (!piece.described || description_key({&piece, 1}) != table_.shared[pair - groups]) continue;
    mine = fail(unlike(piece.described->name, "ranks added different bytes"));
  }
  return agree(comm, deadline, std::move(mine));
}

/// Compares tensor by tensor. Collective.
Result<> ReplicaCheck::judge_group(Comm& comm, Deadline deadline, std::uint64_t number) const {
  const ReplicaGroups& groups = *table_.groups;
  std::vector<std::uint64_t> rows(2 * by_row_.size(), 0);
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    const std::uint32_t group = groups.group_of(row);
    if (group == ReplicaGroups::kNoGroup || groups.groups()[group].number != number || by_row_[row] == 0) continue;
    rows[2 * row] = by_row_[row];
    rows[2 * row + 1] = ~by_row_[row];
  }
  CKPT_CHECK(comm.max(rows, deadline));
  for (std::size_t row = 0; row < by_row_.size(); ++row) {
    if (differs(rows, row)) return fail(unlike(model_.rows[row].tensor.name, "replicas differ between ranks"));
  }
  return {};
}

}  // namespace ckpt
