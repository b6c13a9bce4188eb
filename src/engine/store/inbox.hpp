#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"

/// Notes for a store's catalog, in STORE/.ckpt/inbox: "look at this checkpoint". They are hints, never the truth: one
/// that is lost costs a look at the directory.
namespace ckpt {

/// What a store keeps for itself, in its own directory; and the inbox below that.
inline constexpr std::string_view kStoreDirectory = ".ckpt";
inline constexpr std::string_view kInboxDirectory = "inbox";

/// Says that something happened to the checkpoint RUN/NAME, in the inbox of the store that the run's directory lies in:
/// the nearest directory above it, or it itself, that keeps things for itself. Where there is none nobody asks for
/// notes. No sync, and a failure is of no account: neither a save nor a mark fails for it. `word` tells notes of one
/// checkpoint apart.
void drop_note(Io& io, std::string_view run_directory, std::string_view name, std::string_view word);

struct InboxNote {
  std::string run{};   ///< path of the run in the store; "." is the store
  std::string name{};  ///< of the checkpoint's directory in it
  std::string file{};  ///< the note's own path: whoever has looked removes it
};

/// The notes in a store's inbox, also those whose writer was killed before they had their names; none where there is no
/// inbox. Those that make no sense, or are half written, come with empty names.
std::vector<InboxNote> read_inbox(Io& io, std::string_view store);

}  // namespace ckpt
