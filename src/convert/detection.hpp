#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/format.hpp"
#include "convert/several_checkpoints.hpp"

namespace ckpt {

/// A format and what it found at a place.
struct Found {
  const Format* format = nullptr;
  Match match{};
};

/// errors  as Io::stat and Io::list; unsupported: neither a file nor a directory
Result<Place> place_at(Io& io, const std::string& root);
/// The one format that recognises a place.
/// errors  unsupported: none does, or one level below or above; ambiguous: several do; as the first format that failed
///         to look
Result<Found> choose(const Place& place);
/// The format that `from` names, which still decides where below the place the checkpoint is.
/// errors  usage: no such format; unsupported: it cannot be read, and another recognises the place
Result<Found> forced(const Place& place, std::string_view from);
/// An error that names another format than the forced one; nothing if none recognises the place.
std::optional<Error> mistaken(const Place& place, const Format& forced);
/// The names of formats with a reader, for hints.
std::string readable_formats();

/// A format that knows a place.
struct Candidate {
  const Format* format = nullptr;
  bool has_folders = false;  ///< files of the checkpoint may be in folders below the place
};
/// All formats that recognise it; open_source takes one of them if there are several.
/// errors  as Io::stat and Io::list; if none recognises it, that of the first that could not read
///         it
Result<std::vector<Candidate>> candidates(Io& io, const std::string& path);

/// A checkpoint that is only recognised, and where it is.
struct UnreadFormat {
  const Format* format = nullptr;
  std::string root{};  ///< its directory or file
  Match match{};
};
/// Nothing if the format can be read.
/// errors  as open_source
Result<std::optional<UnreadFormat>> find_unread(Io& io, const std::string& path, std::string_view from);

/// The known facts about a checkpoint that is only recognised.
struct UnreadSummary {
  const Format* format = nullptr;
  std::uint64_t file_count = 0;
};
/// Detects, and checks names and sizes. Nothing if the format can be read, or nothing is known.
/// errors  as open_source
Result<std::optional<UnreadSummary>> summarize_unread(Io& io, const std::string& path, std::string_view from);

/// The checkpoints one level below a directory that is not a checkpoint itself, newest first; none below any other
/// path. If there are very many, only those with the greatest steps.
/// errors  as Io::stat and Io::list
Result<std::vector<OneCheckpoint>> find_checkpoints_below(Io& io, const std::string& path);

/// The result of detection for a path, without opening it.
struct Recognition {
  const Format* format = nullptr;  ///< the first that recognises it; null if none does
  bool unfinished = false;         ///< it is known as the beginning of an unfinished save
  std::optional<Error> unread{};   ///< the system's error, if nothing recognises it and it could not be read
};
/// Uses names and first bytes only.
Recognition recognise(Io& io, const std::string& path);

}  // namespace ckpt
