#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::cli {

/// One flag. Every flag `--some-name` also has the environment variable CKPT_SOME_NAME as its default.
struct Flag {
  std::string_view name;     ///< "shard-size", without dashes
  char letter = 0;           ///< 'n' for -n, 0 = none
  std::string_view value{};  ///< "SIZE"; empty = a switch. "FORMAT" = a name of known_formats(), "FORM" = a load_name
  std::string_view help{};   ///< one sentence without a full stop
  std::vector<std::string_view> choices{};  ///< the values allowed, where there is a list
  bool repeatable = false;
  std::vector<std::string_view> guesses{};  ///< what people type instead; never accepted, answered with a hint
};

struct Example {
  std::string_view command;
  std::string_view meaning;
};

/// One verb: the only description of it. The parser, the help, the man page and the completions are made from it.
struct Verb {
  std::string_view name;
  std::string_view arguments{};  ///< "SRC DST", as shown
  std::size_t least_arguments = 0;
  std::size_t most_arguments = 0;
  std::string_view summary{};               ///< one line without a full stop
  std::vector<std::string_view> about{};    ///< paragraphs
  std::vector<std::string_view> aliases{};  ///< accepted, not shown
  std::vector<Flag> flags{};
  std::vector<Example> examples{};
  std::vector<int> exit_codes{};  ///< besides 0, 2, 70, 130 and 143
  bool main_verb = false;         ///< on the first screen

  bool has_page() const { return main_verb || !flags.empty(); }  ///< a man page of its own
};

/// All verbs, in the order in which they are shown.
std::span<const Verb> verbs();
std::span<const Flag> global_flags();

/// By name or alias; null where there is none.
const Verb* find_verb(std::string_view name);
/// A flag of the verb (may be null) or a global one; null where there is none.
const Flag* find_flag(const Verb* verb, std::string_view name);

/// The values that a flag takes: its choices, or the names of the formats; empty = anything.
std::vector<std::string> allowed_values(const Flag& flag);
/// "CKPT_SHARD_SIZE".
std::string environment_name(std::string_view flag);

/// The exit code table, shared by `ckpt help exit-codes` and the man pages.
struct ExitCode {
  int code;
  std::string_view meaning;
  std::string_view retry;  ///< "yes", a condition, or "" where it is no use
};
std::span<const ExitCode> exit_codes();

}  // namespace ckpt::cli
