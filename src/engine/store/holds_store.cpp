#include "engine/store/holds_store.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/io/stat_if_present.hpp"
#include "engine/store/inbox.hpp"

namespace ckpt {
namespace {

/// Whether a name in .ckpt is one that a store has.
bool is_of_store(std::string_view name) {
  constexpr std::array<std::string_view, 8> ours{
      "catalog.sqlite", "inbox", "trash", "claims", "recycle", "policies.json", "last-prune.json", "last-verify.json"};
  return std::ranges::find(ours, name) != ours.end();
}

}  // namespace

Result<bool> holds_store(Io& io, const std::string& directory) {
  const std::string own = join_path(directory, kStoreDirectory);
  CKPT_TRY(const auto there, stat_if_present(io, own));
  if (!there || there->kind != FileInfo::Kind::directory) return false;
  const auto entries = io.list(own);
  if (!entries || entries->empty()) return true;
  return std::ranges::any_of(*entries, [](const DirEntry& entry) { return is_of_store(entry.name); });
}

}  // namespace ckpt
