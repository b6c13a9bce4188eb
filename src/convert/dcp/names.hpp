#pragma once

#include <string>

#include "format/model/value.hpp"
#include "format/text/utf8.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// The name of an entry in the map.
struct EntryName {
  std::string name;  ///< the key unchanged; its escaped path if it is not UTF-8; after "OWNER/"
  Path path{};       ///< kept if it differs from the name split at dots
};
inline EntryName name_of(const Entry& entry) {
  if (!entry.owner.empty()) {
    Entry first = entry;
    first.owner.clear();
    EntryName name = name_of(first);
    Path path = entry.path.empty() ? Path{entry.fqn} : entry.path;
    path.insert(path.begin(), entry.owner);
    return {entry.owner + "/" + name.name, std::move(path)};
  }
  if (!is_utf8(entry.fqn)) {
    const Path path = entry.path.empty() ? Path{entry.fqn} : entry.path;
    return {dotted_escaped(path), path};
  }
  return {entry.fqn, splits_to(entry.fqn, entry.path) ? Path{} : entry.path};
}

}  // namespace ckpt::dcp
