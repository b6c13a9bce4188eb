#include "cli/words/mark_options.hpp"

#include <fmt/format.h>

#include "catalog/index/names.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::cli {
namespace {

/// "loss=1.7".
Result<catalog::Mark> read_metric(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  catalog::Mark mark{.kind = catalog::Mark::Kind::metric, .name = text.substr(0, equals)};
  const auto number = parse_number<double>(equals == std::string::npos ? "" : text.substr(equals + 1));
  if (mark.name.empty() || !number)
    return fail({.code = Errc::usage,
                 .message = fmt::format("--metric '{}' is not NAME=NUMBER", text),
                 .hint = "example: --metric loss=1.7 (nan and inf are allowed)"});
  mark.value = *number;
  return mark;
}

}  // namespace

Result<std::vector<catalog::Mark>> marks_of(const Words& words) {
  using Kind = catalog::Mark::Kind;
  std::vector<catalog::Mark> out;
  for (const std::string& text : words.all("metric")) {
    CKPT_TRY(catalog::Mark metric, read_metric(text));
    out.push_back(std::move(metric));
  }
  for (const std::string& tag : words.all("tag")) {
    if (!catalog::is_tag(tag))
      return fail({.code = Errc::usage,
                   .message = fmt::format("--tag '{}': would be read as another name of a checkpoint", tag),
                   .hint = "use a word such as release; numbers, 'latest', 'best', '@' and '/' are not allowed"});
    out.push_back({.kind = Kind::tag, .name = tag});
  }
  if (const Value* note = words.value("note")) {
    if (note->text.empty()) return fail({.code = Errc::usage, .message = "--note is empty"});
    out.push_back({.kind = Kind::note, .text = note->text});
  }
  if (words.on("pin") || words.value("pin-reason") != nullptr)
    out.push_back({.kind = Kind::pin, .text = words.text("pin-reason")});
  for (catalog::Mark& mark : out) {
    mark.owner = user_name();
    mark.at = now();
  }
  // Of several of one name the last counts, as everywhere on the command line.
  std::vector<catalog::Mark> last;
  for (catalog::Mark& mark : out) {
    std::erase_if(last, [&](const catalog::Mark& other) { return other.kind == mark.kind && other.name == mark.name; });
    last.push_back(std::move(mark));
  }
  return last;
}

}  // namespace ckpt::cli
