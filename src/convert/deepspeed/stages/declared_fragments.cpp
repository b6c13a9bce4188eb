#include "convert/deepspeed/stages/declared_fragments.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::deepspeed {
namespace {

using Fragments = std::vector<std::pair<std::string, Extent>>;

/// The fragments of the parameters that rank `part` holds, in elements from the start of its part.
Fragments expected_fragments(const FragmentCheck& check, std::uint64_t part) {
  Fragments out;
  const Extent owned = check.cut.owned(part);
  auto first = std::upper_bound(check.begins.begin(), check.begins.end(), owned.begin);
  if (first != check.begins.begin()) --first;
  for (auto i = static_cast<std::size_t>(first - check.begins.begin()); i < check.shapes.size(); ++i) {
    if (check.begins[i] >= owned.end) break;
    const std::uint64_t begin = std::max(check.begins[i], owned.begin);
    const std::uint64_t end = std::min(check.begins[i] + check.shapes[i].elements, owned.end);
    if (begin < end) out.emplace_back(check.shapes[i].name, Extent{begin - owned.begin, end - owned.begin});
  }
  return out;
}

}  // namespace

Result<std::string> check_fragments(const FragmentCheck& check) {
  for (std::size_t r = 0; r < check.ranks.size(); ++r) {
    const Fragments& claimed = check.ranks[r].fragments;
    if (claimed.empty() || claimed == expected_fragments(check, r)) continue;
    const std::string& file = check.ranks.file(r).path;
    for (std::size_t other = 0; other < check.ranks.size(); ++other) {
      if (other == r || claimed != expected_fragments(check, other)) continue;
      return fail({.code = Errc::corrupt,
                   .message = file + ": parameter group " + std::to_string(check.ranks.group()) +
                              ": this is the part of rank " + std::to_string(other) + ", not of rank " +
                              std::to_string(r) + ": the file is a copy of another rank's",
                   .file = file,
                   .hint = "fetch the file of rank " + std::to_string(r) + " from where that rank wrote it"});
    }
    return file + ": parameter group " + std::to_string(check.ranks.group()) +
           ": param_slice_mappings do not fit param_shapes; param_shapes is followed";
  }
  return std::string();
}

}  // namespace ckpt::deepspeed
