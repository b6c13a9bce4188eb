#include "api/catalog/store_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "engine/io/real_path.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/holds_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {

namespace {

bool holds_checkpoints(Io& io, const std::string& directory) {
  const auto entries = io.list(directory);
  return entries && std::ranges::any_of(*entries, [](const DirEntry& entry) {
           return entry.kind == FileInfo::Kind::directory && CheckpointName::parse(entry.name);
         });
}

}  // namespace

StorePlace store_place(Io& io, const std::string& directory) {
  StorePlace out{.store = directory, .is_store = holds_store(io, directory).value_or(false)};
  const auto whole = out.is_store ? std::nullopt : real_path(directory);
  if (!whole) return out;
  const std::string run = without_checkpoint(*whole);
  std::string root;
  if (const auto around = store_around(io, directory); around && !around->empty()) {
    out = {.store = *around, .is_store = true};
    root = real_path(*around).value_or("");
  } else if (run != *whole || holds_checkpoints(io, directory)) {  // in a run that no store knows yet
    root = parent_path(run);
    out.store = run == *whole ? join_path(directory, "..") : root;
  }
  if (!root.empty() && run.size() > root.size() && run.starts_with(root)) {
    out.run = run.substr(root == "/" ? 1 : root.size() + 1);
  }
  return out;
}

StorePlace place_here() {
  const auto io = open_io(IoKind::threads);
  return io ? store_place(**io, ".") : StorePlace{.store = "."};
}

Result<> check_no_stores(std::span<const std::string> runs) {
  const auto io = open_io(IoKind::threads);
  for (const std::string& run : runs) {
    if (!io || run.empty() || !holds_store(**io, run).value_or(false)) continue;
    return fail({.code = Errc::not_found,
                 .message = fmt::format("{}: a store, not a run", run),
                 .file = run,
                 .hint = fmt::format("write: --store {}", run)});
  }
  return {};
}

Result<> check_not_internal(const std::string& store) {
  const std::string inside = fmt::format("/{}/", kStoreDirectory);
  const std::string path = "/" + join_path(real_path(store).value_or(store), "") + "/";
  const std::size_t at = path.find(inside);
  if (at == std::string::npos) return {};
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: {} is where a store keeps its own files", store, kStoreDirectory),
               .file = store,
               .hint = "give the directory above it with --store"});
}

Result<> check_outermost(Io& io, const std::string& store) {
  if (const auto there = io.stat(store); !there && there.error().code == Errc::not_found)
    return fail({.code = Errc::not_found, .message = store + ": no such directory", .file = store});
  if (const auto whole = real_path(store); whole && without_checkpoint(*whole) != *whole)
    return fail({.code = Errc::usage, .message = store + ": is or lies in a checkpoint", .file = store});
  CKPT_CHECK(check_not_internal(store));
  CKPT_TRY(const std::string around, store_around(io, store));
  if (around.empty()) return {};
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: lies in the store {}", store, around),
               .file = store,
               .hint = fmt::format("--store {}", around)});
}

}  // namespace ckpt
