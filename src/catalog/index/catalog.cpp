#include "catalog/index/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "catalog/index/sqlite.hpp"
#include "engine/io/file_system.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::string_view kFile = "catalog.sqlite";
constexpr std::string_view kDamaged = ".damaged";

/// Moves away a file that is damaged or not a database: the next opening makes a new one, and the old one can still be
/// examined.
void put_aside(Io& io, const std::string& store) {
  const auto held = hold_store(io, store);
  if (!held) return;
  const std::string file = catalog_file(store);
  static_cast<void>(io.rename(file, file + std::string(kDamaged), RenameMode::replace));
  for (const char* suffix : {"-wal", "-shm", "-journal"}) static_cast<void>(io.unlink(file + suffix));
}

/// An empty file is an empty database. It is made here, and not by SQLite, so that it has the store's owner and is
/// below the held store.
Result<> make_catalog_file(Io& io, const std::string& file) {
  auto there = io.stat(file);
  if (!there && there.error().code == Errc::not_found) {
    const auto made = io.open(file, {.mode = OpenOptions::Mode::write_new});
    if (made) return io.close(*made);
    if (made.error().code != Errc::target_exists) return fail(made.error());
    there = io.stat(file);
  }
  CKPT_CHECK(there);
  if (there->kind == FileInfo::Kind::file) return {};
  return fail({.code = Errc::linked, .message = file + ": a symbolic link or not a regular file", .file = file});
}

bool is_store(Io& io, const std::string& store) {
  return io.stat(join_path(store, kStoreDirectory)).has_value() || io.stat(join_path(store, kPolicyFile)).has_value();
}

/// Whether the run is in a store of its own, below this directory.
bool is_in_other_store(Io& io, const std::string& store, const std::string& run) {
  for (std::size_t end = run.find('/');; end = run.find('/', end + 1)) {
    if (is_store(io, join_path(store, run.substr(0, end)))) return true;
    if (end == std::string::npos) return false;
  }
}

/// Whether runs with checkpoints of ours, which are in no other store, are right here: further above, other stores may
/// be meant.
Result<bool> holds_own(Io& io, const std::string& store, Database& database) {
  return asked(database.file(), [&]() -> Result<bool> {
    SQLite::Statement runs(database.sqlite(), "SELECT DISTINCT run FROM checkpoints WHERE is_foreign=0");
    while (runs.executeStep()) {
      const std::string run = runs.getColumn(0).getString();
      if (run != "." && run.find('/') == std::string::npos && !is_in_other_store(io, store, run)) return true;
    }
    return false;
  });
}

/// What is in a directory that cannot be listed goes without saying.
std::vector<std::string> warnings_of(const std::vector<Unread>& unread) {
  std::vector<std::string> out;
  for (const Unread& one : unread) {
    const auto holds_it = [&](const Unread& other) { return one.run.starts_with(other.run + "/"); };
    if (std::ranges::none_of(unread, holds_it)) out.push_back(one.error.message);
  }
  return out;
}

}  // namespace

std::string catalog_file(const std::string& store) {
  return join_path(join_path(store, kStoreDirectory), kFile);
}

Result<Catalog> Catalog::open_indexed(Io& io, const std::string& store, const Options& options) {
  CKPT_TRY(const auto held, hold_store(io, store));
  const std::string directory = join_path(store, kStoreDirectory);
  CKPT_CHECK(make_directory(io, directory));
  CKPT_TRY(const auto place, hold_directory(io, directory, {.reads = true}));
  const std::string file = catalog_file(store);
  CKPT_CHECK(make_catalog_file(io, file));
  CKPT_TRY(Database database,
           Database::open(file, {.shared = !is_local_file_system(store), .patience = options.patience, .make = false}));
  Catalog out(store, std::move(database), options.now);
  CKPT_TRY(out.refreshed_,
           refresh(io, store, out.database_, options.tools, options.trust, options.now, options.manifest_bytes));
  return out;
}

Result<Catalog> Catalog::open_scanned(Io& io, const std::string& store, const Options& options) {
  CKPT_TRY(Database memory, Database::in_memory());
  Catalog out(store, std::move(memory), options.now);
  out.indexed_ = false;
  CKPT_TRY(out.refreshed_,
           refresh(io, store, out.database_, options.tools, Trust::nothing, options.now, options.manifest_bytes));
  out.warnings_ = warnings_of(out.refreshed_.unread);
  return out;
}

Result<Catalog> Catalog::open(Io& io, const std::string& store, const Options& options) {
  CKPT_TRY(const FileInfo info, io.stat(store));
  if (info.kind != FileInfo::Kind::directory)
    return fail({.code = Errc::not_found, .message = store + ": not a directory", .file = store});
  if (!options.makes_store && !is_store(io, store)) {
    CKPT_TRY(Catalog scanned, open_scanned(io, store, options));
    CKPT_TRY(const bool any, holds_own(io, store, scanned.database_));
    // In another store, an index would be a store of its own: paths below it would lead there, and its trash.
    CKPT_TRY(const std::string around, store_around(io, store));
    if (!any || !around.empty()) return scanned;
  }
  auto indexed = open_indexed(io, store, options);
  std::vector<std::string> warnings;
  if (!indexed && indexed.error().code == Errc::corrupt) {
    warnings.push_back(fmt::format("{}; it was moved aside and rebuilt", indexed.error().message));
    put_aside(io, store);
    indexed = open_indexed(io, store, options);
  }
  if (indexed) {
    std::ranges::move(warnings_of(indexed->refreshed_.unread), std::back_inserter(warnings));
    indexed->warnings_ = std::move(warnings);
    return indexed;
  }
  warnings.push_back(indexed.error().message + "; the directories were scanned instead");
  CKPT_TRY(Catalog out, open_scanned(io, store, options));
  out.warnings_.insert(out.warnings_.begin(), warnings.begin(), warnings.end());
  return out;
}

}  // namespace ckpt::catalog
