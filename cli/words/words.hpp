#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/verbs.hpp"
#include "cli/process/launch.hpp"
#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// An option's value and its origin: "--memory" or "CKPT_MEMORY".
struct Value {
  std::string text;
  std::string origin;
};

/// One parsed command line. Values are checked against the option's choices only.
class Words {
 public:
  const Verb* verb = nullptr;  ///< null only after a failure
  std::vector<std::string> arguments{};
  bool brief_help = false;  ///< help was requested by -h

  bool on(std::string_view flag) const;  ///< a switch that is set
  unsigned count(std::string_view flag) const;
  /// The last value given, or null.
  const Value* value(std::string_view flag) const;
  std::string text(std::string_view flag) const;  ///< the last value, or ""
  std::vector<std::string> all(std::string_view flag) const;

  void add(std::string_view flag, Value value);

 private:
  std::map<std::string, std::vector<Value>, std::less<>> values_;
};

struct Parsed {
  Words words;                   ///< after a failure: the command, --json and -q if they were parsed
  std::optional<Error> error{};  ///< always Errc::usage
  bool no_command = false;       ///< the error is a missing command
};

/// Parses the arguments (without the program's name), then the environment for options that were not given. `--help`,
/// `-h` and `--version` become the commands help and version. An existing path instead of a command fails with a hint
/// that names the probable command.
Parsed parse_words(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ckpt::cli
