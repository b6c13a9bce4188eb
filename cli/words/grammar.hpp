#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::cli {

/// One option. The environment variable CKPT_SOME_NAME is the default of `--some-name`.
struct Flag {
  std::string_view name;                    ///< "shard-size", without dashes
  char letter = 0;                          ///< 'n' for -n, 0 = none
  std::string_view value{};                 ///< "SIZE"; empty = a switch. "FORMAT" = a name of known_formats()
  std::string_view help{};                  ///< one sentence without a full stop
  std::vector<std::string_view> choices{};  ///< the allowed values; empty = any
  bool repeatable = false;
  std::vector<std::string_view> guesses{};  ///< other tools' names for it; not accepted, answered with a hint
  std::vector<std::pair<std::string_view, std::string_view>> synonyms{};  ///< accepted values, and what they mean
  /// The value where none is given. The next word is the value only if it begins with a digit.
  std::string_view bare{};
  bool loads = false;   ///< of "FORMAT": a load_name instead
  bool seldom = false;  ///< only named by -h; --help explains it
};

struct Example {
  std::string_view command;
  std::string_view meaning;
};

/// The heading of a command in `ckpt --help`.
enum class Group : std::uint8_t { files, store, planning, help };

/// One command: the single description that the parser, the help, the man page and the completions are made from.
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
  bool main_verb = false;         ///< has a man page even without options
  Group group = Group::files;
  bool hidden = false;  ///< for scripts that ckpt writes itself: in no help, page or completion

  bool has_page() const { return main_verb || !flags.empty(); }  ///< a separate man page
};

/// All commands but hidden ones, in the order of the help.
std::span<const Verb> verbs();
/// `complete`, which completion scripts call.
const Verb& complete_verb();

/// What completes a word of the command line, besides options and their fixed values.
enum class Completes : std::uint8_t { nothing, files, directories, runs, checkpoints, tags, tensors };
/// Of an option's value.
Completes completes(const Verb& verb, const Flag& flag);
/// Of an argument. Checkpoints may also be files.
Completes argument_completes(const Verb& verb);
/// "checkpoints": the word for `ckpt complete`; empty for files, directories and nothing.
std::string_view completion_word(Completes kind);
std::span<const Flag> global_flags();

/// By name or alias; null if not found.
const Verb* find_verb(std::string_view name);
/// An option of the command (may be null) or a global one; null if not found.
const Flag* find_flag(const Verb* verb, std::string_view name);

/// The values that an option accepts: its choices, or the names of the formats; empty = any.
std::vector<std::string> allowed_values(const Flag& flag);
/// The value that a synonym means ("hf" of --to: "safetensors"); any other value unchanged.
std::string canonical_value(const Flag& flag, const std::string& value);
/// "CKPT_SHARD_SIZE".
std::string environment_name(std::string_view flag);

/// The exit code table, shared by `ckpt help exit-codes` and the man pages.
struct ExitCode {
  int code;
  std::string_view meaning;
  std::string_view retry;  ///< "yes", a condition, or "" if retrying does not help
};
std::span<const ExitCode> exit_codes();

}  // namespace ckpt::cli
