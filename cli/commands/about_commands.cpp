#include <fmt/format.h>

#include "api/words.hpp"
#include "cli/commands/commands.hpp"
#include "cli/process/build_id.hpp"
#include "cli/words/manual.hpp"

namespace ckpt::cli {
namespace {

Json exit_code_rows() {
  Json out = Json::array();
  for (const ExitCode& row : exit_codes())
    out.push_back({{"code", row.code}, {"meaning", row.meaning}, {"retry", row.retry}});
  return out;
}

}  // namespace

Answer run_help(Context& context) {
  const auto& arguments = context.words.arguments;
  const std::string topic = arguments.empty() ? "" : arguments[0];
  Answer out;
  std::string text;
  if (topic.empty()) {
    text = first_screen();
  } else if (const Verb* verb = find_verb(topic)) {
    text = verb_help(*verb);
  } else if (const auto page = topic_help(topic)) {
    text = *page;
  } else {
    const auto near = nearest(topic, help_topics());
    return failed({.code = Errc::usage,
                   .message = fmt::format("no help on '{}'", topic),
                   .hint = near ? fmt::format("did you mean 'ckpt help {}'?", *near) : "'ckpt help' lists the verbs"});
  }
  out.data = {{"topic", topic.empty() ? Json(nullptr) : Json(topic)}, {"text", text}};
  if (topic == "exit-codes") out.data["exit_codes"] = exit_code_rows();
  say(context, text, true);
  return out;
}

Answer run_explain(Context& context) {
  const std::string& id = context.words.arguments[0];
  const auto code = code_of(id);
  if (!code) {
    std::vector<std::string> ids;
    for (const Errc known : all_codes()) ids.push_back(error_id(known).substr(5));
    const auto near = nearest(id, ids);
    return failed({.code = Errc::not_found,
                   .message = fmt::format("no error has the id '{}'", id),
                   .hint = near ? fmt::format("did you mean 'ckpt explain {}'?", *near)
                                : "an id reads E1503; it stands in the first line of the error"});
  }
  const Explanation text = explain(*code);
  Answer out;
  out.data = {{"id", error_id(*code)},
              {"exit_code", exit_code(*code)},
              {"title", text.title},
              {"meaning", text.meaning},
              {"remedy", text.remedy}};
  say(context,
      fmt::format("{}: {} (exit code {})\n\n{}\n{}", error_id(*code), text.title, exit_code(*code),
                  wrapped(text.meaning, 0, 96), wrapped(text.remedy, 0, 96)),
      true);
  return out;
}

Answer run_version(Context& context) {
  Json formats = Json::array();
  for (const FormatInfo& format : known_formats())
    formats.push_back({{"name", format.name},
                       {"summary", format.summary},
                       {"readable", format.readable},
                       {"writable", format.writable}});
  Answer out;
  out.data = {{"version", CKPT_VERSION},
              {"build_id", build_id()},
              {"compiler", CKPT_COMPILER},
              {"formats", std::move(formats)},
              {"features", {{"mpi", CKPT_HAS_MPI != 0}, {"hdf5", CKPT_HAS_HDF5 != 0}}},
              {"libraries",
               {{"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
                {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                              NLOHMANN_JSON_VERSION_PATCH)}}}};
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
                   .message = fmt::format("no completion for '{}': there are bash, zsh, fish", shell),
                   .hint = near ? fmt::format("did you mean 'ckpt completion {}'?", *near) : ""});
  }
  Answer out;
  out.data = {{"shell", shell}, {"script", *script}};
  say(context, *script, true);
  return out;
}

}  // namespace ckpt::cli
