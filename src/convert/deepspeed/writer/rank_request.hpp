#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convert/write_request.hpp"

/// A source whose model-parallel ranks stayed apart (WriteRequest::ranks), rank by rank.
namespace ckpt::deepspeed {

/// What one rank has, as if the source were its alone.
struct RankRequest {
  Map map{};               ///< at the indices of the whole source; names are the rank's own
  WriteRequest request{};  ///< of `map`
};

/// The requests of all ranks. Tensors of objects keep their names; objects lose the rank that ends theirs.
class RankRequests {
 public:
  /// whole  of the whole source; outlives this
  explicit RankRequests(const WriteRequest& whole);
  std::unique_ptr<RankRequest> of(std::uint64_t rank) const;

 private:
  const WriteRequest& whole_;
  std::vector<std::vector<std::uint32_t>> selected_;  // by rank: numbers in WriteRequest::tensors, ascending
};

}  // namespace ckpt::deepspeed
