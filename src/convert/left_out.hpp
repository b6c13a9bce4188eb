#pragma once

#include <string_view>
#include <vector>

#include "convert/write_request.hpp"

namespace ckpt {

/// The parts of a request that a format for tensors leaves out: opaque blobs, and Python objects that are not kept as a
/// blob of the same name. One note each, with the first names.
///
/// form  for people: "safetensors"
std::vector<Finding> left_out(const WriteRequest& request, std::string_view form);

/// "not written: 2 tied names, which safetensors cannot hold: a, b"; nothing if there are no names.
///
/// skipped  what the names are of, if a target of this kind is expected to hold it: then it is a warning, not a note
void add_left_out(std::vector<Finding>& out, const std::vector<std::string>& names, std::string_view one,
                  std::string_view many, std::string_view form, Skipped skipped = Skipped::nothing);

/// Which of a request's tensors a state holds: of blobs those that no object duplicates, and no pickle streams.
std::vector<bool> written_tensors(const WriteRequest& request);

}  // namespace ckpt
