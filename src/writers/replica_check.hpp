#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm.hpp"
#include "format/result.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// What several ranks give of one save must be the same bytes: else a checkpoint would mix two states, as where data
/// parallel ranks have drifted apart. Of what they hold alike by the model a sample of each tensor is compared (both
/// ends, and blocks between), of equal descriptions and blobs every byte. Compared are words, in an all-reduce that a
/// save needs anyway; nothing is sent of what is alike. A rank that gives one of its replicas by a callback, or not at
/// all, abstains.
class ReplicaCheck {
 public:
  /// `pieces`: what this rank gives; they outlive this, as do the model and the table.
  ReplicaCheck(const Model& model, const SaveTable& table, std::span<const Piece> pieces);

  /// Pairs of a word and its complement, 0 and 0 where this rank abstains; as many on all ranks.
  const std::vector<std::uint64_t>& words() const { return words_; }
  /// `told`: the maximum of all ranks' words. Collective where they differ. errors  usage, with the tensor
  Result<> judge(Comm& comm, Deadline deadline, std::span<const std::uint64_t> told) const;

 private:
  void add_groups();
  void add_shared();
  Result<> judge_group(Comm& comm, Deadline deadline, std::uint64_t number) const;

  const Model& model_;
  const SaveTable& table_;
  std::span<const Piece> pieces_;
  std::vector<const Piece*> by_row_{};  // of the model
  std::vector<std::uint64_t> words_{};
};

}  // namespace ckpt
