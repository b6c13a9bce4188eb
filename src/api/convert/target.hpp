#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

/// Checks of a conversion's target before anything is planned or written.
namespace ckpt {

/// By --to, else by the suffix, else the universal format. A suffix that promises another format gets none of it.
/// errors  usage: --to is not written; unsupported: such a suffix
Result<const Format*> choose_target(const ConvertRequest& request);

/// Every option that was given is one that the target takes.
/// errors  usage: names the formats that take it
Result<> check_options(const ConvertRequest& request, const Format& target);

/// errors  usage: the path is a partial, or below one; it would never be read, and would be swept
Result<> check_committed_place(const std::string& path);

/// The directory that will contain the target must exist.
/// errors  not_found; usage: it is a file
Result<> check_parent(Io& io, const std::string& target);

/// A file added to the files of a checkpoint would count as one of them.
/// errors  usage
Result<> check_outside(Io& io, const ConvertRequest& request, const std::string& source_root);

/// The target is not the source itself under another name.
/// errors  usage
Result<> check_apart(Io& io, const ConvertRequest& request, const std::string& source_root);

/// The files that belong to the checkpoint at `path`, which --overwrite is to replace: its map's files and
/// Format::own_names. `target` is the format to write: one that is never read is recognised by its names. `in_place`:
/// the checkpoint is the source, a virtual one.
/// errors  usage: it is not one checkpoint, or a part of a larger one, or the source was read from it; locked, io: this
///         cannot be determined
Result<std::vector<std::string>> own_files(Session& session, const Source& source, const Format& target,
                                           const std::string& path, bool in_place = false);

/// A virtual checkpoint refers to the files of a checkpoint: that is not replaced.
/// errors  usage: names it
Result<> check_unreferenced(Io& io, const std::string& target);
/// Nor one that is pinned.
/// errors  usage: with the reason
Result<> check_unpinned(Io& io, const std::string& target);

/// no_space, for a plan that is not carried out; both in bytes.
Error too_little_space(const std::string& target, std::uint64_t needed, std::uint64_t free);

}  // namespace ckpt
