#include "convert/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "format/text/name_list.hpp"

namespace ckpt {

std::vector<Finding> left_out(const WriteRequest& request, std::string_view form) {
  std::vector<std::string> blobs;
  for (const Selected& selected : request.tensors) {
    if (request.source->tensors[selected.tensor].role == Role::blob) blobs.push_back(selected.name);
  }
  const std::unordered_set<std::string_view> named(blobs.begin(), blobs.end());
  std::vector<std::string> objects;
  for (const NamedObject& object : request.objects) {
    if (!named.contains(object.name)) objects.push_back(object.name);
  }
  std::vector<Finding> out;
  add_left_out(out, blobs, "opaque blob", "opaque blobs", form);
  add_left_out(out, objects, "Python object", "Python objects", form);
  return out;
}

void add_left_out(std::vector<Finding>& out, const std::vector<std::string>& names, std::string_view one,
                  std::string_view many, std::string_view form, Skipped skipped) {
  if (names.empty()) return;
  out.push_back({.severity = skipped == Skipped::nothing ? Severity::note : Severity::warning,
                 .text = fmt::format("not written: {} {}, which {} cannot hold: {}", names.size(),
                                     names.size() == 1 ? one : many, form, name_list(names)),
                 .skipped = skipped});
}

std::vector<bool> written_tensors(const WriteRequest& request) {
  std::unordered_set<std::string_view> objects;
  for (const NamedObject& object : request.objects) objects.insert(object.name);
  std::vector<bool> out;
  out.reserve(request.tensors.size());
  for (const Selected& selected : request.tensors) {
    const std::string_view name = selected.name;
    const bool is_pickle = name.ends_with("data.pkl") || name.starts_with("data/") || name.find("/data/") != name.npos;
    const bool is_blob = request.source->tensors[selected.tensor].role == Role::blob;
    out.push_back(!is_blob || (!is_pickle && !objects.contains(name)));
  }
  return out;
}

}  // namespace ckpt
