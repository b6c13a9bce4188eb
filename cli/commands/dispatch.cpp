#include "cli/commands/dispatch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "api/path_hint.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/stop_watch.hpp"
#include "cli/process/signals.hpp"
#include "cli/words/manual.hpp"

namespace ckpt::cli {
namespace {

using Command = Answer (*)(Context&);

Command command_of(std::string_view verb) {
  static constexpr std::array<std::pair<std::string_view, Command>, 28> commands{
      {{"convert", run_convert},     {"save", run_save},
       {"export", run_export},       {"verify", run_verify},
       {"diff", run_diff},           {"stats", run_stats},
       {"inspect", run_inspect},     {"ls", run_ls},
       {"plan", run_plan},           {"doctor", run_doctor},
       {"prune", run_prune},         {"policy", run_policy},
       {"repair", run_repair},       {"rm", run_rm},
       {"undelete", run_undelete},   {"why", run_why},
       {"list", run_list},           {"mark", run_mark},
       {"status", run_status},       {"pin", run_pin},
       {"unpin", run_unpin},         {"next-save", run_next_save},
       {"help", run_help},           {"explain", run_explain},
       {"version", run_version},     {"completion", run_completion},
       {"materialize", run_convert}, {"complete", run_complete}}};
  for (const auto& [name, command] : commands)
    if (name == verb) return command;
  return nullptr;
}

void print_failures(Console& console, const Answer& answer, const Settings& settings) {
  for (const Failure& failure : answer.failures) {
    for (const std::string& line : error_lines(failure, settings.sizes, &console)) console.err(line);
    const Errc code = failure.error.code;
    if (settings.verbose > 0 || needs_explaining(code))
      console.err(explain_line(code));
    else
      console.log(explain_line(code));
  }
}

/// A launch that cannot be joined: rank 0 prints the error block. On other nodes one rank prints one line, because
/// rank 0 may be fine and waiting for it.
void print_stray(const Launch& launch, const Answer& answer) {
  if (launch.rank == 0 || launch.local_rank != 0) return;
  for (const Failure& failure : answer.failures) {
    if (failure.error.code != Errc::mpi_launch) continue;
    std::array<char, 256> node{};
    if (gethostname(node.data(), node.size() - 1) != 0) node[0] = '\0';
    const std::string line = stray_line(failure.error, launch.rank, node.data()) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

/// A rank that ends with a failure makes mpirun kill the others, even a rank 0 that has not yet printed the error.
/// Ends early when mpirun, after the end of rank 0, stops this rank.
void await_rank_0() {
  constexpr std::chrono::seconds kPatience(5);
  constexpr std::chrono::milliseconds kLook(20);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!stop_flag().load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kLook);
}

}  // namespace

int dispatch(const std::vector<std::string>& arguments, const Environment& environment) {
  const Parsed parsed = parse_words(arguments, environment);
  const Words& words = parsed.words;
  const bool alone = words.on("no-mpi");
  const Launch launch = alone ? Launch{} : find_launch(environment);
  const std::string_view verb = words.verb != nullptr ? words.verb->name : "error";
  const bool is_shared = verb == "convert" || verb == "save" || verb == "materialize";
  Console console({.speaks = launch.rank == 0,
                   .answers = !is_shared || words.on("json"),
                   .launched = find_launch(environment).active(),
                   .color = words.text("color"),
                   .log_file = words.text("log-file")},
                  environment);
  // Only conversions are shared between ranks. Everything else runs on rank 0; the others are silent.
  if (launch.active() && launch.rank != 0 && !is_shared && !parsed.error) return 0;

  const Machine machine = read_machine();
  Settings settings{.json = words.on("json"), .quiet = words.on("quiet")};
  Answer answer;
  std::shared_ptr<Comm> ranks;
  if (parsed.error) {
    answer = failed(*parsed.error);
  } else if (auto read = read_settings(words, environment, machine); !read) {
    answer = failed(std::move(read).error());
  } else if (auto log = console.open_log(); !log) {
    answer = failed(std::move(log).error());
  } else {
    settings = *read;
    std::string said = "ckpt";
    for (const std::string& argument : arguments) said += " " + shell_word(argument);
    console.log(said);
    Context context{
        .words = words, .settings = settings, .launch = launch, .machine = machine, .console = console, .ranks = ranks};
    if (verb != "doctor") raise_open_files();  // doctor reports the limit that other commands start with
    const StopWatch watch(verb, settings);
    answer = command_of(verb)(context);
    for (Failure& failure : answer.failures) failure.error = with_nearest_path(std::move(failure.error));
  }
  if (settings.json)
    console.out(document(verb, answer));
  else if (parsed.no_command)
    console.err(short_help(console.width()));
  else
    print_failures(console, answer, settings);
  print_stray(launch, answer);
  console.log(fmt::format("exit {}", answer.exit_code));
  if (auto finished = console.finish(); !finished && answer.exit_code == 0) {
    answer = failed(std::move(finished).error());
    print_failures(console, answer, settings);
  }
  ranks.reset();
  if (answer.exit_code != 0 && launch.rank != 0) await_rank_0();
  return answer.exit_code;
}

}  // namespace ckpt::cli
