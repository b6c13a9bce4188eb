#pragma once

#include <span>
#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// Where a directory is among stores.
struct StorePlace {
  /// The store that it is or, nearest first, lies in; else the directory above the run that it is or lies in; else itself.
  std::string store{};
  std::string run{};      ///< its path below that, without checkpoints: "prod/llama"; "" if it is in no run
  bool is_store = false;  ///< a command has made it one
};
StorePlace store_place(Io& io, const std::string& directory);
/// Of the current directory.
StorePlace place_here();

/// Refuses the path of a store where names of runs are expected.
/// errors  not_found
Result<> check_no_stores(std::span<const std::string> runs);

/// A new store is not made among a store's own files.
/// errors  usage: the path is .ckpt, or below one
Result<> check_not_internal(const std::string& store);

/// Refuses to treat a directory in a store, such as a run, or in a checkpoint as a store of its own: it would get a trash
/// that no other command on the store sees.
/// errors  usage; not_found: no such directory; io
Result<> check_outermost(Io& io, const std::string& store);

}  // namespace ckpt
