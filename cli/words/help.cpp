#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "api/verbs.hpp"
#include "cli/output/console.hpp"
#include "cli/words/manual.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kWidth = 96;

constexpr std::array<std::string_view, 4> kTopics{"exit-codes", "formats", "units", "environment"};

std::string usage_of(const Verb& verb) {
  return verb.arguments.empty() ? std::string(verb.name) : fmt::format("{} {}", verb.name, verb.arguments);
}

/// "-n, --dry-run" or "    --to FORMAT".
std::string flag_form(const Flag& flag) {
  const std::string letter = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "    ";
  return fmt::format("{}--{}{}{}", letter, flag.name, flag.value.empty() ? "" : " ", flag.value);
}

std::string flag_list(std::span<const Flag> flags) {
  std::size_t widest = 0;
  for (const Flag& flag : flags) widest = std::max(widest, flag_form(flag).size());
  std::string out;
  for (const Flag& flag : flags) {
    std::string text(flag.help);
    const std::vector<std::string> allowed = allowed_values(flag);
    if (!allowed.empty()) text += fmt::format(" ({})", fmt::join(allowed, ", "));
    if (flag.repeatable && !flag.value.empty()) text += "; may be given several times";
    const std::string body = wrapped(text, widest + 4, kWidth);
    out += fmt::format("  {:<{}}  {}", flag_form(flag), widest, body.substr(widest + 4));
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
         "\nAn unknown code means failure. Under mpirun all ranks end with one code; mpirun itself turns Ctrl-C into "
         "1.\n";
}

std::string format_table() {
  std::string out = "name                 read  write  what it is\n";
  for (const FormatInfo& format : known_formats())
    out += fmt::format("{:<20} {:<5} {:<6} {}\n", format.name, format.readable ? "yes" : "no",
                       format.writable ? "yes" : "no", format.summary);
  return out + "\nA format that can neither be read nor written is recognised, so that the message can say so.\n";
}

std::string units_text() {
  return "Sizes you write:  4G and 4GiB are 2^32 bytes, 4GB is 4 000 000 000 bytes; 1.5TiB, 512M, 4_000_000;\n"
         "                  --memory also takes a share of the machine's or the container's limit: 50%.\n"
         "Sizes you read:   KiB, MiB, GiB (powers of 1024); --si writes GB (powers of 1000), --bytes writes bytes.\n"
         "                  In --json and in tables into a pipe sizes are always bytes, times are seconds.\n"
         "Times you write:  90s, 15m, 2h, 7d, 4w.\n";
}

std::string environment_text() {
  std::string out =
      "Every flag has a variable that gives its default: CKPT_ and the name of the flag in capitals, with _ for -.\n"
      "A flag on the command line wins over the variable. Switches take 1 or 0.\n\n"
      "  CKPT_MEMORY=4G  CKPT_THREADS=8  CKPT_IO=threads  CKPT_PROGRESS=plain  CKPT_SHARD_SIZE=5GB\n\n";
  out +=
      wrapped("CKPT_PROGRESS_EVERY is the time between progress lines (30s); the first comes after 5 s at the latest.",
              0, kWidth);
  out += wrapped("NO_COLOR, CLICOLOR_FORCE, TERM and COLUMNS are heeded.", 0, kWidth);
  out += wrapped("OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS or PMIX_RANK tell of an MPI launch.", 0, kWidth);
  return out;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::string line(indent, ' ');
  std::size_t columns = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (columns > indent && columns + 1 + text_width(word) > width) {
      out += line + "\n";
      line.assign(indent, ' ');
      columns = indent;
    }
    if (columns > indent) {
      line += ' ';
      ++columns;
    }
    line += word;
    columns += text_width(word);
  }
  return out + line + "\n";
}

std::string first_screen() {
  std::string out =
      "ckpt turns the checkpoint of any training framework into another form, proves it, and shows what is inside.\n\n"
      "usage: ckpt VERB [flags]\n\n";
  for (const Verb& verb : verbs()) {
    if (!verb.main_verb) continue;
    const std::string usage = usage_of(verb);  // of several ways to call it the first is shown
    out += fmt::format("  {:<16} {}\n", usage.substr(0, usage.find(" | ")), verb.summary);
  }
  out += "\nmore:";
  for (const Verb& verb : verbs())
    if (!verb.main_verb) out += fmt::format(" {}", verb.name);
  out +=
      "\n\nexamples:\n"
      "  ckpt inspect runs/exp7                                        what is this?\n"
      "  ckpt convert runs/exp7 model.safetensors --only weights       the weights in one file\n"
      "  ckpt convert runs/exp7 exp7                                   everything, with checksums\n"
      "  ckpt verify exp7 --against runs/exp7                          the same tensors, bit for bit?\n"
      "  mpirun -n 8 ckpt convert runs/exp7 out --memory 2G            on eight processes of 2 GiB\n\n"
      "'ckpt help VERB' lists its flags; 'ckpt help exit-codes', 'formats', 'units' and 'environment' explain those.\n";
  return out;
}

std::string verb_help(const Verb& verb) {
  std::string out = fmt::format("usage: ckpt {}{}\n\n", usage_of(verb), verb.flags.empty() ? "" : " [flags]");
  out += wrapped(fmt::format("{}.", verb.summary), 0, kWidth);
  for (const std::string_view paragraph : verb.about) out += "\n" + wrapped(paragraph, 0, kWidth);
  if (!verb.flags.empty()) out += "\nflags:\n" + flag_list(verb.flags);
  out += "\nflags of every verb:\n" + flag_list(global_flags());
  if (!verb.examples.empty()) {
    out += "\nexamples:\n";
    std::size_t widest = 0;
    for (const Example& example : verb.examples) widest = std::max(widest, example.command.size());
    for (const Example& example : verb.examples)
      out += fmt::format("  {:<{}}   {}\n", example.command, widest, example.meaning);
  }
  std::vector<int> codes{0, 2};
  codes.insert(codes.end(), verb.exit_codes.begin(), verb.exit_codes.end());
  std::ranges::sort(codes);
  out += fmt::format("\nexit codes: {} (ckpt help exit-codes)\n", fmt::join(codes, ", "));
  return out;
}

std::optional<std::string> topic_help(std::string_view topic) {
  if (topic == "exit-codes") return exit_code_table();
  if (topic == "formats") return format_table();
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
