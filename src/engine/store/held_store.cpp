#include "engine/store/held_store.hpp"

#include <utility>

#include "engine/io/real_path.hpp"
#include "engine/store/holds_store.hpp"
#include "engine/store/inbox.hpp"

namespace ckpt {
namespace {

constexpr unsigned kDeepestInStore = 4;  // depth of a run below its store, in directories

/// The nearest one by the names in a path alone, as far as they go up.
Result<std::string> store_in_path(Io& io, std::string at) {
  for (unsigned depth = 0; depth <= kDeepestInStore; ++depth) {
    CKPT_TRY(const bool there, holds_store(io, at));
    if (there) return at;
    std::string above = parent_path(at);
    if (above == at || base_name(at) == "..") break;
    at = std::move(above);
  }
  return std::string();
}

}  // namespace

Result<std::unique_ptr<HeldDirectory>> hold_store(Io& io, const std::string& store) {
  CKPT_TRY(auto held, hold_directory(io, store, {.follow = true, .store = true}));
  const auto own = hold_directory(io, join_path(store, kStoreDirectory), {});
  // Other contents are checked by the code that writes there.
  if (!own && own.error().code == Errc::linked) return fail(own.error());
  return held;
}

Result<std::string> store_above(Io& io, const std::string& run_directory) {
  // By the path as given: paths in the store begin the same way. It may end below the store: at "." or "..".
  CKPT_TRY(std::string store, store_in_path(io, join_path(run_directory, "")));
  if (!store.empty()) return store;
  auto real = real_path(run_directory);
  return real ? store_in_path(io, *std::move(real)) : Result<std::string>();
}

Result<std::string> store_around(Io& io, const std::string& directory) {
  const bool has_policy = io.stat(join_path(directory, kPolicyFile)).has_value();
  CKPT_TRY(const bool is_store, has_policy ? Result<bool>(true) : holds_store(io, directory));
  const auto real = is_store ? std::nullopt : real_path(directory);
  return real ? store_above(io, parent_path(*real)) : Result<std::string>();
}

Result<HeldRun> hold_run(Io& io, const std::string& run_directory) {
  HeldRun out;
  // One above comes first: a run that is a link to another store does not count as that store.
  const std::string name = base_name(run_directory);
  std::string store;
  if (name != "." && name != "..") {
    CKPT_TRY(store, store_above(io, parent_path(run_directory)));
  }
  if (store.empty()) {
    CKPT_TRY(store, store_above(io, run_directory));
  }
  if (!store.empty()) {
    CKPT_TRY(out.store, hold_store(io, store));
  }
  CKPT_TRY(out.directory, hold_directory(io, run_directory, {.follow = store.empty()}));
  return out;
}

}  // namespace ckpt
