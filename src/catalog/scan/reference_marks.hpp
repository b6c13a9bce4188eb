#pragma once

#include <string>
#include <vector>

#include "catalog/scan/entry.hpp"
#include "format/universal/manifest.hpp"

/// Marks that a virtual checkpoint leaves in the checkpoints of a store whose files it refers to: FORMAT.md section 14.
/// They protect those files for as long as the virtual checkpoint exists. Marks of kind `reference` whose name is an id
/// are of other programs, and always protect.
namespace ckpt::catalog {

/// The paths of the files that the virtual checkpoint at `path` refers to; none of any other.
std::vector<std::string> referenced_paths(const universal::Manifest& manifest, const std::string& path);

/// The mark of the virtual checkpoint with this id. `path`: where it is or will be, absolute and without links.
/// errors  usage: the path is not UTF-8, or too long for a mark; io
Result<Mark> reference_mark(Io& io, const std::string& path, const std::string& id);

/// Whether the virtual checkpoint that left a mark in `checkpoint` is proven to be gone: deleted, or replaced by a
/// checkpoint that does not refer to that one. Anything that cannot be read, a directory above it that is another one
/// than when the mark was made (a disk that is not mounted), and what another host sees on its own disks prove nothing.
/// One that was moved counts as deleted.
bool is_owner_gone(Io& io, const std::string& checkpoint, const Mark& mark);

/// Removes from an entry's references those of virtual checkpoints that are gone, and returns their paths.
std::vector<std::string> drop_ownerless(Io& io, const std::string& store, Entry& entry);

/// Removes the mark of the virtual checkpoint at `owner` from a checkpoint that nothing reads, if the virtual one is
/// gone. A conversion to a virtual checkpoint reads what it marks, so its mark is never removed before it is committed.
/// False if the mark stays, or does not exist.
/// errors  io
Result<bool> remove_ownerless(Io& io, const std::string& checkpoint, const std::string& owner);

/// Who refers to the checkpoint at a path, by its readable marks: the path of a virtual checkpoint that may exist, or
/// an id. "" if there is none.
std::string find_referrer(Io& io, const std::string& checkpoint);

}  // namespace ckpt::catalog
