#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"

/// Notes for a store's catalog, in STORE/.ckpt/inbox: "check this checkpoint". They are hints: a lost note costs one
/// listing of the directory.
namespace ckpt {

/// The store's own directory; and the inbox below that.
inline constexpr std::string_view kStoreDirectory = ".ckpt";
inline constexpr std::string_view kInboxDirectory = "inbox";
inline constexpr std::string_view kPolicyFile = "ckpt.toml";  // of the store, beside kStoreDirectory

/// Notes that the checkpoint RUN/NAME has changed, in the inbox of the store that contains the run: the
/// nearest directory at or above it that has a .ckpt. Without a store no note is written. No sync, and
/// failures are ignored: neither a save nor a mark fails for it. `word` distinguishes notes of one
/// checkpoint.
void drop_note(Io& io, std::string_view run_directory, std::string_view name, std::string_view word);

struct InboxNote {
  std::string run{};   ///< path of the run in the store; "." is the store
  std::string name{};  ///< of the checkpoint's directory in it
  std::string file{};  ///< the note's path: the reader removes it
};

/// The notes in a store's inbox, also those whose writer was killed before naming them; none if there is no inbox.
/// Malformed or half-written ones have empty names.
std::vector<InboxNote> read_inbox(Io& io, std::string_view store);

}  // namespace ckpt
