#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/verbs.hpp"
#include "cli/output/json.hpp"
#include "cli/report/errors.hpp"

namespace ckpt::cli {

/// The result of a command, for the exit code and for --json.
struct Answer {
  int exit_code = 0;
  std::string data{};  ///< the member `data` of the document, as data_writer() writes it; empty: null
  std::vector<Finding> warnings{};
  std::vector<Failure> failures{};
};

/// The one document of --json: {schema, ok, exit_code, data, warnings, errors} and a line break. `verb` names the
/// schema: "ckpt.convert/1"; its description is schemas/convert.schema.json. ok is exit_code == 0. Takes
/// the data out of the answer: it may be long.
std::string document(std::string_view verb, Answer& answer);

// Each writes one value: a finding, an array of them, the report of a verb.
void put(json::Writer& out, const Finding& finding);
void put(json::Writer& out, const std::vector<Finding>& findings);
/// {"path": ..., "bytes": ...} for each.
void put(json::Writer& out, const std::vector<std::pair<std::string, std::uint64_t>>& files);
void put(json::Writer& out, const ConvertReport& report, const ConvertRequest& request);
void put(json::Writer& out, const LoadReport& report, const LoadRequest& request);
void put(json::Writer& out, const VerifyReport& report, const VerifyRequest& request);
/// `with_files` also lists the files.
void put(json::Writer& out, const InspectReport& report, bool with_files);
/// `path` as the user gave it; the report's tensors in listing order.
void put(json::Writer& out, const ListReport& report, const std::string& path);

/// A report as Answer::data: what put() writes of these.
template <class... Parts>
std::string data_of(const Parts&... parts) {
  std::string data;
  json::Writer out = data_writer(data);
  put(out, parts...);
  return data;
}

std::string_view level_name(VerifyLevel level);

}  // namespace ckpt::cli
