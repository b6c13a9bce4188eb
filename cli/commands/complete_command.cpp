#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/catalog/store_names.hpp"
#include "catalog/trash/trash.hpp"
#include "cli/commands/commands.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {
namespace {

/// Names that a shell takes as they are. Others are left out: a completion script must not have to quote them.
bool is_plain(std::string_view name) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+,:@%";
  return !name.empty() && name.front() != '-' && name.find_first_not_of(plain) == std::string_view::npos;
}

/// The unfinished command line, as far as a completion needs it.
struct Line {
  std::string store{};
  std::string first{};  ///< the first argument of the command
  const Verb* verb = nullptr;
};

/// bash splits RUN@STEP at @.
std::vector<std::string> joined_names(std::span<const std::string> words) {
  std::vector<std::string> out;
  bool joins = false;
  for (const std::string& word : words) {
    if (!out.empty() && (joins || word == "@"))
      out.back() += word;
    else
      out.push_back(word);
    joins = word == "@";
  }
  return out;
}

Line read_line(std::span<const std::string> given, std::string store) {
  const std::vector<std::string> words = joined_names(given);
  const Verb* verb = words.empty() ? nullptr : find_verb(words.front());
  Line out{.store = std::move(store), .verb = verb};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with("--store=")) {
      out.store = word.substr(std::string_view("--store=").size());
    } else if (word == "--store" && i + 1 < words.size()) {
      out.store = words[++i];
    } else if (word.starts_with("--") && word.find('=') == std::string::npos) {
      const Flag* flag = find_flag(verb, std::string_view(word).substr(2));
      if (flag != nullptr && !flag->value.empty()) ++i;
    } else if (!word.starts_with('-') && out.first.empty()) {
      out.first = word;
    }
  }
  return out;
}

std::vector<std::string> names_of(Io& io, const std::string& kind, const Line& line) {
  if (kind == "tensors") {
    const bool is_path = io.stat(line.first).has_value();
    const std::string path = is_path ? line.first : directory_of_step(io, line.store, line.first);
    if (path.empty()) return {};
    auto names = tensor_names(io, path, "");
    return names ? *std::move(names) : std::vector<std::string>{};
  }
  const bool in_trash = line.verb != nullptr && line.verb->name == "undelete";
  StoreNames names = store_names(io, in_trash ? catalog::trash_path(line.store) : line.store);
  if (in_trash) std::erase_if(names.checkpoints, [](const std::string& name) { return name.ends_with("@latest"); });
  if (kind == "runs") return std::move(names.runs);
  if (kind == "checkpoints") return std::move(names.checkpoints);
  if (kind == "tags") return std::move(names.tags);
  return {};
}

}  // namespace

/// `ckpt complete KIND -- WORDS`: the words of the unfinished command line, without `ckpt` and the word at the cursor.
/// Never fails: a shell that completes a word shows no messages.
Answer run_complete(Context& context) {
  const std::span<const std::string> words = context.words.arguments;
  const auto io = open_io(IoKind::threads);
  if (!io) return {};
  const std::string store = store_of(context.words);
  std::string out;
  for (const std::string& name : names_of(**io, words.front(), read_line(words.subspan(1), store)))
    if (is_plain(name)) out += name + "\n";
  say(context, out, true);
  return {};
}

}  // namespace ckpt::cli
