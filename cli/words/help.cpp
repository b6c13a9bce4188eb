#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "api/verbs.hpp"
#include "cli/output/console.hpp"
#include "cli/output/paragraph.hpp"
#include "cli/words/manual.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kWidest = 100;
constexpr std::size_t kWidestForm = 29;  // of the column of options: "    --placement NAME=CUTS"

constexpr std::array<std::string_view, 5> kTopics{"exit-codes", "formats", "profiles", "units", "environment"};

constexpr std::array<std::pair<Group, std::string_view>, 4> kGroups{
    {{Group::files, "Files"}, {Group::store, "Store"}, {Group::planning, "Plan and check"}, {Group::help, "More"}}};

constexpr std::string_view kPurpose = "Convert, verify, inspect and manage training checkpoints.\n";

constexpr std::string_view kUsage = "Usage: ckpt COMMAND [OPTIONS]\n";

constexpr std::string_view kFirstExamples =
    "Examples:\n"
    "  ckpt inspect runs/exp7                                what is this?\n"
    "  ckpt convert runs/exp7 w.safetensors --only weights   the weights, in one file\n"
    "  ckpt convert runs/exp7 exp7                           everything\n"
    "  ckpt diff exp7 runs/exp7                              bitwise equal?\n"
    "  mpirun -n 8 ckpt convert runs/exp7 out --memory 2G    8 processes, 2 GiB each\n";

std::string usage_of(const Verb& verb) {
  return verb.arguments.empty() ? std::string(verb.name) : fmt::format("{} {}", verb.name, verb.arguments);
}

/// "-n, --dry-run" or "    --to FORMAT".
std::string flag_form(const Flag& flag) {
  const std::string letter = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "    ";
  return fmt::format("{}--{}{}{}", letter, flag.name, flag.value.empty() ? "" : " ", flag.value);
}

/// An option wider than the column has its text on the next line.
std::string flag_list(std::span<const Flag> flags, std::size_t width) {
  std::size_t widest = 0;
  for (const Flag& flag : flags) {
    const std::size_t columns = flag_form(flag).size();
    if (columns <= kWidestForm) widest = std::max(widest, columns);
  }
  std::string out;
  for (const Flag& flag : flags) {
    std::string text(flag.help);
    const std::vector<std::string> allowed = allowed_values(flag);
    if (!allowed.empty()) text += fmt::format(" [{}]", fmt::join(allowed, ", "));
    if (flag.repeatable && !flag.value.empty()) text += " (repeatable)";
    const std::string body = wrapped(text, widest + 4, width);
    const std::string form = flag_form(flag);
    out += form.size() <= widest ? fmt::format("  {:<{}}  {}", form, widest, body.substr(widest + 4))
                                 : fmt::format("  {}\n{}", form, body);
  }
  return out;
}

std::string example_list(std::span<const Example> examples, std::size_t width) {
  std::size_t widest = 0;
  std::size_t longest = 0;
  for (const Example& example : examples) widest = std::max(widest, example.command.size());
  for (const Example& example : examples) longest = std::max(longest, widest + example.meaning.size() + 5);
  std::string out = "Examples:\n";
  for (const Example& example : examples) {
    if (longest <= width)
      out += fmt::format("  {:<{}}   {}\n", example.command, widest, example.meaning);
    else
      out += fmt::format("  # {}\n  {}\n", example.meaning, example.command);
  }
  return out;
}

/// The global options by name; `ckpt --help` explains them.
std::string global_names(std::size_t width) {
  std::string names;
  for (const Flag& flag : global_flags()) {
    if (!names.empty()) names += ' ';
    if (flag.letter != 0) names += fmt::format("-{}, ", flag.letter);
    names += fmt::format("--{}", flag.name);
  }
  return "Global options ('ckpt --help' explains them):\n" + wrapped(names, 2, width);
}

/// One entry per command under the heading of its group. `form` gives the text before the summary.
template <class Form>
std::string command_list(std::size_t width, Form form) {
  std::size_t widest = 0;
  for (const Verb& verb : verbs()) widest = std::max(widest, form(verb).size());
  std::string out;
  for (const auto& [group, title] : kGroups) {
    out += fmt::format("\n{}:\n", title);
    for (const Verb& verb : verbs())
      if (verb.group == group)
        out += fmt::format("  {:<{}}  {}", form(verb), widest,
                           wrapped(verb.summary, widest + 4, width).substr(widest + 4));
  }
  return out;
}

std::string exit_code_table() {
  std::string out = "code  meaning\n";
  for (const ExitCode& row : exit_codes())
    out += fmt::format("{:>4}  {}{}\n", row.code, row.meaning,
                       row.retry == "yes"  ? "; worth a retry"
                       : row.retry.empty() ? ""
                                           : fmt::format("; {}", row.retry));
  return out +
         "\nTreat an unknown code as failure. Under mpirun all ranks exit with the same code; mpirun turns Ctrl-C into 1.\n";
}

std::string format_table() {
  std::string out = "name                 read  write  description\n";
  for (const FormatInfo& format : known_formats())
    out += fmt::format("{:<20} {:<5} {:<6} {}\n", format.name, format.readable ? "yes" : "no",
                       format.writable ? "yes" : "no", format.summary);
  return out + "\nFormats with no read and no write are only recognised.\n";
}

std::string profile_table() {
  std::string out = "name            transformers                  models\n";
  for (const ProfileInfo& profile : known_profiles())
    out += fmt::format("{:<15} {:<29} {}\n", profile.family, profile.architecture, profile.summary);
  return out +
         "\n'ckpt convert --names hf' writes tensors and config.json for transformers, '--names megatron' for Megatron-LM.\n"
         "The model's config selects the profile; --names hf:NAME overrides it. --map FILE adds your own.\n";
}

std::string units_text() {
  return "Input sizes:   4G and 4GiB are 2^32 bytes, 4GB is 4 000 000 000 bytes; also 1.5TiB, 512M, 4_000_000.\n"
         "               --memory also accepts a share of the machine or container: 50%.\n"
         "Output sizes:  KiB, MiB, GiB (powers of 1024); GB with --si (powers of 1000); bytes with --bytes.\n"
         "               In --json and --tsv, sizes are bytes and times are seconds.\n"
         "Input times:   90s, 15m, 2h, 7d, 4w.\n";
}

std::string environment_text() {
  std::string out =
      "A variable sets the default of every option: CKPT_ and the option's name in capitals, with _ for -.\n"
      "The command line takes precedence. Switches are 1 or 0.\n\n"
      "  CKPT_MEMORY=4G  CKPT_THREADS=8  CKPT_IO=threads  CKPT_PROGRESS=plain  CKPT_SHARD_SIZE=5GB\n\n";
  out +=
      "CKPT_PROGRESS_EVERY is the time between progress lines (30s); the first comes after at most 5 s.\n"
      "ckpt follows NO_COLOR, CLICOLOR_FORCE, TERM and COLUMNS.\n"
      "It detects an MPI launch by OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS or PMIX_RANK.\n";
  return out;
}

}  // namespace

std::string short_help(std::size_t width) {
  width = std::min(width, kWidest);
  const auto name = [](const Verb& verb) { return std::string(verb.name); };
  return fmt::format("{}\n{}\n{}{}\n", kPurpose, kUsage, kFirstExamples, command_list(width, name)) +
         "'ckpt COMMAND -h' shows its options, 'ckpt --help' the global options.\n";
}

std::string long_help(std::size_t width) {
  width = std::min(width, kWidest);
  const auto form = [](const Verb& verb) {  // the first of several forms: "undelete [NAME]"
    const std::string usage = usage_of(verb);
    std::string first = usage.substr(0, usage.find(" | "));
    if (std::ranges::count(first, '[') > std::ranges::count(first, ']')) first += ']';
    return first;
  };
  std::string out = fmt::format("{}\n{}\n{}", kPurpose, kUsage, kFirstExamples) + command_list(width, form);
  out += "\nGlobal options:\n" + flag_list(global_flags(), width);
  return out + "\nSee also: ckpt help exit-codes | formats | profiles | units | environment\n";
}

std::string short_verb_help(const Verb& verb, std::size_t width) {
  width = std::min(width, kWidest);
  std::string out =
      fmt::format("{}.\n\nUsage: ckpt {}{}\n", verb.summary, usage_of(verb), verb.flags.empty() ? "" : " [OPTIONS]");
  if (!verb.examples.empty()) out += "\n" + example_list(verb.examples, width);
  std::vector<Flag> shown;
  std::vector<std::string> named;
  for (const Flag& flag : verb.flags) {
    if (flag.seldom)
      named.push_back(fmt::format("--{}", flag.name));
    else
      shown.push_back(flag);
  }
  if (!shown.empty()) out += "\nOptions:\n" + flag_list(shown, width);
  if (!named.empty()) out += "\nMore options:\n" + wrapped(fmt::to_string(fmt::join(named, " ")), 2, width);
  return out + fmt::format("\n'ckpt {} --help' explains {}.\n", verb.name, named.empty() ? "more" : "all");
}

std::string verb_help(const Verb& verb, std::size_t width) {
  width = std::min(width, kWidest);
  std::string out = wrapped(fmt::format("{}.", verb.summary), 0, width);
  out += fmt::format("\nUsage: ckpt {}{}\n", usage_of(verb), verb.flags.empty() ? "" : " [OPTIONS]");
  if (!verb.examples.empty()) out += "\n" + example_list(verb.examples, width);
  for (const std::string_view paragraph : verb.about) out += "\n" + wrapped(paragraph, 0, width);
  if (!verb.flags.empty()) out += "\nOptions:\n" + flag_list(verb.flags, width);
  out += "\n" + global_names(width);
  std::vector<int> codes{0, 2};
  codes.insert(codes.end(), verb.exit_codes.begin(), verb.exit_codes.end());
  std::ranges::sort(codes);
  return out + fmt::format("\nExit codes: {} ('ckpt help exit-codes')\n", fmt::join(codes, ", "));
}

std::optional<std::string> topic_help(std::string_view topic) {
  if (topic == "exit-codes") return exit_code_table();
  if (topic == "formats") return format_table();
  if (topic == "profiles") return profile_table();
  if (topic == "units") return units_text();
  if (topic == "environment") return environment_text();
  return std::nullopt;
}

std::vector<std::string> help_topics() {
  std::vector<std::string> out(kTopics.begin(), kTopics.end());
  for (const Verb& verb : verbs()) out.emplace_back(verb.name);
  return out;
}

}  // namespace ckpt::cli
