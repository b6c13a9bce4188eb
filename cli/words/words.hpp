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

/// A flag's value and where it was given: "--memory" or "CKPT_MEMORY".
struct Value {
  std::string text;
  std::string origin;
};

/// The words of one command line, sorted out. Values are checked against the flag's choices, nothing else.
class Words {
 public:
  const Verb* verb = nullptr;  ///< null only after a failure
  std::vector<std::string> arguments{};

  bool on(std::string_view flag) const;  ///< a switch that is given
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
  Words words;                   ///< after a failure: what was understood (the verb, --json, -q)
  std::optional<Error> error{};  ///< always Errc::usage
  bool no_command = false;       ///< the error is only that no verb was given
};

/// Reads the arguments (without the program's name), then the environment for flags that were not given.
/// `--help`, `-h` and `--version` become the verbs help and version. A path that exists
/// in the place of a verb is answered with the command that was probably meant.
Parsed parse_words(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ckpt::cli
