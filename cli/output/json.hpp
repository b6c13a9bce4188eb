#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output/errors.hpp"

namespace ckpt::cli {

using Json = nlohmann::ordered_json;

/// The members of one array of a document's `data`, as the document shows them: a hundred thousand rows as one tree
/// would take longer to build, copy and free than what they tell of took.
class Rows {
 public:
  Rows() = default;
  /// `member`: of `data`.
  explicit Rows(std::string member) : member_(std::move(member)) {}
  void add(const Json& row);
  /// As row_text.hpp writes it.
  void add(std::string row) { texts_.push_back(std::move(row)); }
  /// The text of the document, where they are data[member].
  std::string shown_in(Json document) const;

 private:
  std::string member_{};
  std::vector<std::string> texts_{};  // of each, as it stands in the document
};

/// What a command has to say, for the exit code and for --json.
struct Answer {
  int exit_code = 0;
  Json data = nullptr;
  Rows rows{};  ///< of an array of `data` that is empty there
  std::vector<Finding> warnings{};
  std::vector<Failure> failures{};
};

/// The one document of --json: {schema, ok, exit_code, data, warnings, errors} and a line break. `verb` names the
/// schema: "ckpt.convert/1"; its description is schemas/convert.schema.json. ok is exit_code == 0.
std::string document(std::string_view verb, const Answer& answer);

/// Puts text that need not be UTF-8 (a path, a name): invalid bytes become U+FFFD, and `key`_b64 then holds the true
/// bytes.
void put_text(Json& object, const std::string& key, std::string_view text);

/// Bytes that are no UTF-8 become U+FFFD.
std::string valid_utf8(std::string_view text);

/// JSON as the library writes it, with characters that terminals hide escaped: they stand in texts only, and the
/// library escapes those of ASCII alone.
std::string without_hidden(const std::string& dumped);

/// The bytes in base64 (RFC 4648, padded).
std::string base64(std::string_view bytes);

Json to_json(const Finding& finding);
Json to_json(const std::vector<Finding>& findings);
/// {"path": ..., "bytes": ...} for each.
Json to_json(const std::vector<std::pair<std::string, std::uint64_t>>& files);
Json to_json(const ConvertReport& report, const ConvertRequest& request);
Json to_json(const LoadReport& report, const LoadRequest& request);
Json to_json(const VerifyReport& report, const VerifyRequest& request);
/// `with_files` also lists the files.
Json to_json(const InspectReport& report, bool with_files);
/// `path` as the user gave it; the report's tensors as they are listed.
Json to_json(const ListReport& report, const std::string& path);

std::string_view level_name(VerifyLevel level);

}  // namespace ckpt::cli
