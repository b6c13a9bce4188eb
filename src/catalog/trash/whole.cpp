#include "catalog/trash/whole.hpp"

#include <array>
#include <string_view>

namespace ckpt::catalog {

Result<std::unique_ptr<HeldDirectory>> hold_whole(Io& io, const std::string& checkpoint) {
  constexpr std::array<std::string_view, 6> kOurs{"index",  "blobs",          "marks",
                                                  "shards", "shards/weights", "shards/optim"};
  CKPT_TRY(auto whole, hold_directory(io, checkpoint, {.reads = true}));
  for (const std::string_view folder : kOurs) {
    const auto inside = hold_directory(io, join_path(checkpoint, folder));
    if (!inside && inside.error().code != Errc::not_found) return fail(inside.error());
  }
  return whole;
}

}  // namespace ckpt::catalog
