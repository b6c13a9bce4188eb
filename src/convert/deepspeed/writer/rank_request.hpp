#pragma once

#include <cstdint>
#include <memory>

#include "convert/format.hpp"

/// A source whose model-parallel ranks stayed apart (WriteRequest::ranks), rank by rank.
namespace ckpt::deepspeed {

/// What one rank has, as if the source were its alone.
struct RankRequest {
  Map map{};               ///< at the indices of the whole source; names are the rank's own
  WriteRequest request{};  ///< of `map`
};

/// request  of the whole source. Tensors of objects keep their names; objects lose the rank that ends theirs.
std::unique_ptr<RankRequest> request_of_rank(const WriteRequest& request, std::uint64_t rank);

}  // namespace ckpt::deepspeed
