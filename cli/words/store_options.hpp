#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_place.hpp"
#include "catalog/bucket.hpp"
#include "cli/words/words.hpp"

/// Shared by the commands of a store: its path, the time, and the user and process.
namespace ckpt::cli {

/// --store, else CKPT_STORE, else the store that the current directory is or lies in, else the current directory.
std::string store_of(const Words& words);
/// Whether the store was found around the current directory: output then names it.
bool is_store_found(const Words& words, const std::string& store);
/// Arguments that name runs.
/// errors  not_found: one is the path of a store
Result<std::vector<std::string>> runs_of(const Words& words);
/// The store of `list` and `status`: as store_of, or the argument [STORE], which may be a run of one; and --run, below that run.
/// errors  usage: both are given
Result<StorePlace> listed_place(Session& session, const Words& words);

/// The context for looking up a checkpoint named on the command line.
NamedCheckpoint named(const Words& words, const std::string& word);

/// The arguments of a command that changes a store, and the store: names_in_store.
/// errors  as names_in_store
Result<NamesInStore> names_of(Session& session, const Words& words);

/// The path of a checkpoint that a command reads: `word` if it exists, else the checkpoint of that name in the store.
/// Collective.
/// errors  as find_path
Result<std::string> path_of(Session& session, const Words& words, const std::string& word);

/// --lock-timeout; no wait if not given.
/// errors  usage
Result<std::chrono::milliseconds> lock_timeout_of(const Words& words);

/// A span from now ("30d"), back or `forward`, or a time ("2026-12-31").
/// errors  usage
Result<catalog::Time> time_of(const Value& value, catalog::Time now, bool forward);

catalog::Time now();

/// The name of the user, or "uid 1000".
std::string user_name();

/// "ana@n17 pid 4211".
std::string who();

}  // namespace ckpt::cli
