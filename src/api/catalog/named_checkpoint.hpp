#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/index/names.hpp"
#include "catalog/policy.hpp"
#include "format/result.hpp"

/// Finds the checkpoint that the user names: one rule for all commands.
namespace ckpt {

struct NamedCheckpoint {
  std::string word;          ///< a path, or a name in the store: catalog/index/names.hpp
  std::string store = ".";   ///< the directory of runs
  bool store_given = false;  ///< false: `store` is searched only if it has been used as one
  catalog::Time now{};
  bool exact = false;  ///< find_source: a directory is the checkpoint itself, as with --from
};

/// With the index in which it was found: that of the store, or, where it is no store and none was given, of the run if the word
/// gives its path (runs/llama@5000, ../llama@5000). Nothing if the word is a path that exists, or cannot be a name.
/// errors   not_found: neither a path nor a name of the store; usage: it matches several; those of the catalog
struct FoundByName {
  catalog::Catalog catalog;
  catalog::Entry entry;

  std::string path() const { return entry.path(catalog.store()); }
};
Result<std::optional<FoundByName>> find_by_name(Io& io, const NamedCheckpoint& named);

/// The path of the checkpoint: the word itself if such a file or directory exists, or if it cannot be a name (the
/// command then reports the error); else the path of the checkpoint of this name, or a path below the store.
/// errors  as find_by_name
Result<std::string> find_path(Io& io, const NamedCheckpoint& named);

/// Collective: rank 0 searches, and all ranks get its result.
Result<std::string> find_path(Session& session, const NamedCheckpoint& named);

/// "newer, but not usable: llama@30 (damaged)": of the entries of its run; "" if there is none.
std::string newer_unusable(std::span<const catalog::Entry> entries, const catalog::Entry& used);

/// The policies of STORE/ckpt.toml; none if there is no such file, or it cannot be read.
std::vector<catalog::Policy> policies_in(Io& io, const std::string& store);
/// By which metric the policy of a run keeps the best; nothing if it does not say.
std::optional<catalog::BestMetric> best_metric_of(const std::vector<catalog::Policy>& policies, const std::string& run);

/// The checkpoint that a command reads.
struct FoundSource {
  std::string path;
  std::string note{};  ///< which of several checkpoints it is, for the user; empty if the word names it
};
/// As find_path. A directory that is not a checkpoint but holds some (a store with one run, a run, a trainer's output)
/// leads to its newest checkpoint, if names or the catalog tell which one that is. Collective.
/// errors  as find_path; not_found: a store or run without a checkpoint; ambiguous: a store of several runs
Result<FoundSource> find_source(Session& session, const NamedCheckpoint& named);

/// A store and checkpoints in it, as a command that changes the store takes them.
struct NamesInStore {
  std::string store;
  std::vector<std::string> names{};
};
/// Each word that is a path, or a name whose run is one, becomes RUN/DIRECTORY or RUN@STEP in its store. If the user gives
/// no store (`store_given`), the paths give it: the nearest directory above with `.ckpt/`, or the current directory for RUN/DIRECTORY.
/// errors  usage: a path in no store, or paths in several
Result<NamesInStore> names_in_store(Io& io, const std::string& store, bool store_given, std::vector<std::string> words);

/// The checkpoint of a name; `@best` is the best by the store's policy.
/// errors  as catalog::find_checkpoint
Result<catalog::Entry> find_in_catalog(Io& io, catalog::Catalog& catalog, const std::string& name);

}  // namespace ckpt
