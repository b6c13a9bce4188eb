#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands/commands.hpp"
#include "cli/output/paragraph.hpp"
#include "cli/process/build_id.hpp"
#include "cli/words/manual.hpp"
#include "format/text/json.hpp"
#include "format/text/nearest.hpp"

namespace ckpt::cli {
namespace {

void put_exit_codes(json::Writer& out) {
  out.begin_array();
  for (const ExitCode& row : exit_codes())
    out.begin_object().member("code", row.code).member("meaning", row.meaning).member("retry", row.retry).end_object();
  out.end_array();
}

}  // namespace

Answer run_help(Context& context) {
  const auto& arguments = context.words.arguments;
  const bool brief = context.words.brief_help;
  const std::size_t width = context.console.is_width_known() ? context.console.width() : 100;
  const std::string topic = arguments.empty() ? "" : arguments[0];
  Answer out;
  std::string text;
  if (topic.empty()) {
    text = brief ? short_help(width) : long_help(width);
  } else if (const Verb* verb = find_verb(topic)) {
    text = brief ? short_verb_help(*verb, width) : verb_help(*verb, width);
  } else if (const auto page = topic_help(topic)) {
    text = *page;
  } else {
    const auto near = nearest(topic, help_topics());
    return failed(
        {.code = Errc::usage,
         .message = fmt::format("no help on '{}'", topic),
         .hint = near ? fmt::format("did you mean 'ckpt help {}'?", *near) : "'ckpt help' lists the commands"});
  }
  json::Writer data = data_writer(out.data);
  data.begin_object();
  put_optional(data, "topic", topic);
  data.member("text", text);
  if (topic == "exit-codes") put_exit_codes(data.key("exit_codes"));
  data.end_object();
  say(context, text, true);
  return out;
}

/// "14": what it means, and the errors that end with it.
std::optional<Answer> explain_exit_code(Context& context, const std::string& word) {
  const auto row =
      std::ranges::find_if(exit_codes(), [&](const ExitCode& one) { return fmt::format("{}", one.code) == word; });
  if (row == exit_codes().end()) return std::nullopt;
  std::string text = fmt::format("exit code {}: {}\n", row->code, row->meaning);
  Answer out;
  json::Writer data = data_writer(out.data);
  data.begin_object().member("exit_code", row->code).member("meaning", row->meaning).member("retry", row->retry);
  data.key("ids").begin_array();
  for (const Errc code : all_codes()) {
    if (exit_code(code) != row->code) continue;
    text += fmt::format("  {}  {}\n", error_id(code), explain(code).title);
    data.value(error_id(code));
  }
  data.end_array().end_object();
  say(context, text, true);
  return out;
}

Answer run_explain(Context& context) {
  const std::string& id = context.words.arguments[0];
  if (auto answer = explain_exit_code(context, id)) return *std::move(answer);
  const auto code = code_of(id);
  if (!code) {
    std::vector<std::string> ids;
    for (const Errc known : all_codes()) ids.push_back(error_id(known).substr(5));
    const auto near = nearest(id, ids);
    return failed({.code = Errc::not_found,
                   .message = fmt::format("unknown error id or exit code '{}'", id),
                   .hint = near ? fmt::format("did you mean 'ckpt explain {}'?", *near)
                                : "ids look like E1503 (-v prints them), exit codes like 14"});
  }
  const Explanation text = explain(*code);
  Answer out;
  json::Writer data = data_writer(out.data);
  data.begin_object().member("id", error_id(*code)).member("exit_code", exit_code(*code)).member("title", text.title);
  data.member("meaning", text.meaning).member("remedy", text.remedy).end_object();
  say(context,
      fmt::format("{}: {} (exit code {})\n\n{}\n{}", error_id(*code), text.title, exit_code(*code),
                  wrapped(text.meaning, 0, 96), wrapped(text.remedy, 0, 96)),
      true);
  return out;
}

Answer run_version(Context& context) {
  Answer out;
  json::Writer data = data_writer(out.data);
  data.begin_object().member("version", CKPT_VERSION).member("build_id", build_id()).member("compiler", CKPT_COMPILER);
  data.key("formats").begin_array();
  for (const FormatInfo& format : known_formats()) {
    data.begin_object().member("name", format.name).member("summary", format.summary);
    data.member("readable", format.readable).member("writable", format.writable).end_object();
  }
  data.end_array().key("features").begin_object().member("mpi", CKPT_HAS_MPI != 0).member("hdf5", CKPT_HAS_HDF5 != 0);
  data.end_object().key("libraries").begin_object();
  data.member("fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  data.member("nlohmann_json", json::parser_version()).end_object().end_object();
  say(context, fmt::format("ckpt {}\n", CKPT_VERSION), true);
  if (context.settings.verbose > 0)
    say(context, fmt::format("build {} · {} · MPI {} · HDF5 {}\n", build_id(), CKPT_COMPILER,
                             CKPT_HAS_MPI != 0 ? "yes" : "no", CKPT_HAS_HDF5 != 0 ? "yes" : "no"));
  return out;
}

Answer run_completion(Context& context) {
  const std::string& shell = context.words.arguments[0];
  const auto script = completion_script(shell);
  if (!script) {
    const auto near = nearest(shell, completion_shells());
    return failed({.code = Errc::usage,
                   .message = fmt::format("no completion for '{}'; supported: bash, zsh, fish", shell),
                   .hint = near ? fmt::format("did you mean 'ckpt completion {}'?", *near) : ""});
  }
  Answer out;
  data_writer(out.data).begin_object().member("shell", shell).member("script", *script).end_object();
  say(context, *script, true);
  return out;
}

}  // namespace ckpt::cli
