#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt::universal {

constexpr std::size_t kMaxObjectValues = std::size_t{4} << 20;  ///< in one objects.json, keys included
constexpr std::size_t kMaxObjectDepth = 64;                     ///< values inside values

/// blobs/objects.json: the objects of a checkpoint besides tensors. FORMAT.md section 7.
struct Objects {
  Hash128 id{};
  std::vector<NamedObject> objects{};  ///< in the source's order
  std::string version{};               ///< as read
};

/// New names of tensors, by their names inside the objects.
using Renamed = std::unordered_map<std::string, std::string>;

/// The bytes of objects.json. Shared values are written each time; tensors are written by their new names, if
/// renamed.
/// errors  refused: more values than kMaxObjectValues; unsupported: nested deeper than kMaxObjectDepth
Result<std::string> build_objects(const Hash128& id, std::span<const NamedObject> objects, const Renamed& renamed = {});

/// One value in the form of objects.json.
/// errors  as build_objects
Result<> put_value(json::Writer& out, const Value& value);

/// Reads objects.json.
/// errors   those of checks 47, 48 and 50 to 52 of FORMAT.md section 10
Result<Objects> parse_objects(std::string_view text);

}  // namespace ckpt::universal
