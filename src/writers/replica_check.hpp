#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// Replicated data in one save must be the same bytes: otherwise a checkpoint would mix two states, for example when
/// data-parallel ranks have drifted apart. Every byte of such data on a rank is hashed, whichever rank writes it, and
/// only the hashes are compared, in an all-reduce that the save needs anyway. A rank that does not add a replica
/// abstains, and so do all for rows that ReplicaGroups leaves out.
class ReplicaCheck {
 public:
  /// `pieces`: added by this rank. They, the model and the table outlive this object.
  ReplicaCheck(const Model& model, const SaveTable& table, std::span<const Piece> pieces);

  /// Whether any two ranks may hold the same data: the same answer on all ranks.
  bool is_needed() const { return !words_.empty(); }
  /// Reads the data that this rank shares with others, with `threads` threads of which the caller is one. Local. Memory
  /// that only a callback can read goes through buffers of `pool`.
  /// errors  those that `fill` callbacks return or throw; memory
  Result<> hash(BufferPool& pool, unsigned threads);

  /// The same number on all ranks: for each group, then for each shared description, a word and its complement, 0 and 0
  /// if this rank abstains; then for each group 1 if this rank adds only some of its tensors.
  const std::vector<std::uint64_t>& words() const { return words_; }
  /// `told`: the maximum of all ranks' words. Collective if they differ or a rank adds only some of a group.
  /// errors  usage, with the tensor
  Result<> judge(Comm& comm, Deadline deadline, std::span<const std::uint64_t> combined) const;

 private:
  /// A leaf's worth of a piece.
  struct Block {
    std::size_t piece = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Hash128 hash{};
  };
  void add_blocks();
  std::optional<std::size_t> shared_place(const Piece& piece) const;
  bool is_compared(const Piece& piece) const;
  Result<> hash_some(BufferPool& pool, std::span<Block> blocks, std::atomic<std::size_t>& next,
                     const std::atomic<bool>& stop);
  void fill_words();
  Result<> judge_group(Comm& comm, Deadline deadline, std::uint64_t number) const;

  const Model& model_;
  const SaveTable& table_;
  std::span<const Piece> pieces_;
  std::vector<Block> blocks_{};          // by piece, then offset
  std::vector<std::uint64_t> by_row_{};  // hash of this rank's part of a row of the model; 0: not compared
  std::vector<std::uint64_t> words_{};
};

}  // namespace ckpt
