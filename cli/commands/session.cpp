#include "cli/commands/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>

#include "api/run/noted_io.hpp"
#include "cli/process/launch.hpp"
#include "cli/process/signals.hpp"
#include "cli/words/flag_values.hpp"
#include "cli/words/store_options.hpp"
#include "engine/io/host.hpp"
#include "format/text/json.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

Deadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(10);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::string packed(const Failure& failure) {
  const Error& error = failure.error;
  std::string line;
  json::Writer out = line_writer(line);
  out.begin_object().member("code", static_cast<int>(error.code)).member("node", failure.node);
  if (failure.rank >= 0) out.member("rank", failure.rank);
  if (error.offset) out.member("offset", *error.offset);
  out.member("message", error.message).member("file", error.file).member("tensor", error.tensor);
  out.member("hint", error.hint).member("effect", failure.effect).end_object();
  return line;
}

std::optional<Failure> unpacked(const std::string& text) {
  const auto in = json::parse(text);
  if (!in) return std::nullopt;
  const auto text_of = [&](std::string_view key) {
    const json::Value* value = in->find(key);
    return value != nullptr && value->text() != nullptr ? *value->text() : std::string();
  };
  const auto natural_of = [&](std::string_view key) -> std::optional<std::uint64_t> {
    const json::Value* value = in->find(key);
    return value != nullptr && value->natural() != nullptr ? std::optional(*value->natural()) : std::nullopt;
  };
  Failure out{.effect = text_of("effect"), .node = text_of("node")};
  out.error = {.code = static_cast<Errc>(natural_of("code").value_or(static_cast<std::uint64_t>(Errc::internal))),
               .message = text_of("message"),
               .file = text_of("file"),
               .offset = natural_of("offset"),
               .tensor = text_of("tensor"),
               .hint = text_of("hint")};
  if (const auto rank = natural_of("rank")) out.rank = static_cast<int>(*rank);
  return out;
}

/// The failures that explain the end: a rank's own, else the first reported.
std::vector<Failure> causes(const std::vector<std::string>& messages) {
  std::vector<Failure> own;
  std::vector<Failure> others;
  for (const std::string& text : messages) {
    auto failure = text.empty() ? std::nullopt : unpacked(text);
    if (!failure) continue;
    (failure->error.code == Errc::peer_failed ? others : own).push_back(std::move(*failure));
  }
  std::vector<Failure>& chosen = own.empty() ? others : own;
  if (chosen.size() > 1) chosen.resize(1);  // one message; the other ranks' are of the same event
  return chosen;
}

}  // namespace

Result<std::unique_ptr<OpenSession>> OpenSession::alone(Context& context) {
  return open(context, Comm::solo());
}

Result<std::unique_ptr<OpenSession>> OpenSession::on_all_ranks(Context& context) {
  if (!context.launch.active() || context.settings.alone) return alone(context);
  skip_networks(context.launch);
  auto comm = Comm::mpi(context.launch.ranks);
  if (!comm) {
    Error error = std::move(comm).error();
    if (error.hint.empty()) error.hint = "start with the mpirun of the MPI that the plug-in was built with";
    error.hint += "\n--no-mpi    runs without MPI";
    error.message += fmt::format(" (the environment says {})", context.launch.seen);
    return fail(std::move(error));
  }
  context.ranks = *std::move(comm);
  return open(context, context.ranks);
}

/// --names and what belongs to it, as rules for the source.
Result<> OpenSession::read_names(const Words& words) {
  const Value* word = words.value("names");
  for (const std::string_view option : {"vocab-size", "vocab-multiple"}) {
    if (word == nullptr && words.value(option) != nullptr)
      return fail(Errc::usage, fmt::format("--{} needs --names", option));
  }
  if (word == nullptr) return {};
  constexpr std::uint64_t kMostRows = std::uint64_t{1} << 32;
  const auto rows = [](std::string_view text) { return parse_count(text, 1, kMostRows); };
  CKPT_TRY(MapRules::Names names, parse_names(word->text));
  CKPT_CHECK(read_flag(words, "vocab-size", names.vocab_size, rows));
  std::optional<std::uint64_t> multiple;
  CKPT_CHECK(read_flag(words, "vocab-multiple", multiple, rows));
  names.vocab_multiple = multiple.value_or(1);
  if (!rules_) rules_.emplace();
  rules_->set_names(std::move(names));
  return {};
}

Result<std::unique_ptr<OpenSession>> OpenSession::open(Context& context, std::shared_ptr<Comm> comm) {
  auto out = std::unique_ptr<OpenSession>(new OpenSession);
  out->comm_ = std::move(comm);
  auto io = open_io(context.settings.io);
  Result<> opened = io ? Result<>{} : Result<>(tl::unexpected<Error>(io.error()));
  if (const std::string path = context.words.text("map"); opened && !path.empty()) {
    auto rules = read_map_rules(**io, path);
    if (rules) {
      out->rules_ = *std::move(rules);
    } else {
      opened = fail(std::move(rules).error());
    }
  }
  if (opened) opened = out->read_names(context.words);
  if (out->comm_->ranks() > 1) opened = agree(*out->comm_, soon(), std::move(opened));
  if (!opened) {
    out->failure_ = std::move(opened).error();
    return out;
  }
  out->io_ = make_noted_io(std::move(*io), changes());

  const auto local = static_cast<unsigned>(std::max(1, out->comm_->local_ranks()));
  const Settings& settings = context.settings;
  out->session_.emplace(Session{
      .io = *out->io_,
      .comm = *out->comm_,
      .memory_bytes = settings.memory_bytes.value_or(default_memory(context.machine, local)),
      .threads = settings.threads.value_or(default_threads(context.machine, local)),
      .stop = &stop_flag(),
      .rules = out->rules_ ? &*out->rules_ : nullptr,
  });
  if (out->comm_->is_root()) {
    const ProgressMode mode = progress_mode(settings.progress, settings.quiet, context.console.err_is_terminal());
    out->display_ = std::make_unique<ProgressDisplay>(
        context.console,
        ProgressDisplay::Options{.mode = mode, .style = settings.sizes, .every = settings.progress_every});
    out->session_->progress = [display = out->display_.get()](const Progress& progress) { display->report(progress); };
  }
  return out;
}

Result<std::string> source_path(Context& context, Session& session, const std::string& word) {
  NamedCheckpoint asked = named(context.words, word);
  asked.exact = context.words.value("from") != nullptr;
  CKPT_TRY(FoundSource found, find_source(session, asked));
  if (!found.note.empty() && !context.settings.json && !context.settings.quiet)
    context.console.err("note: " + printable(found.note));
  return std::move(found.path);
}

Verdict agree_on_verdict(Comm& comm, const Error* mine) {
  Verdict out;
  if (comm.ranks() == 1) {
    if (mine != nullptr) {
      out.exit_code = exit_code(mine->code);
      out.failures.push_back({.error = *mine});
    }
    return out;
  }
  std::vector<std::string> messages(1);
  if (mine != nullptr) messages[0] = packed({.error = *mine, .rank = comm.rank(), .node = host_name()});
  std::string code;
  auto all = comm.gather(messages[0], soon());
  if (all && comm.is_root()) {
    messages = std::move(*all);
    const auto first = causes(messages);
    code = fmt::format("{}", first.empty() ? 0 : exit_code(first[0].error.code));
  }
  if (!all || !comm.broadcast(code, soon())) code.clear();  // a rank is lost: each keeps its own outcome
  out.failures = causes(messages);
  out.exit_code = out.failures.empty() ? 0 : exit_code(out.failures[0].error.code);
  if (const auto agreed = parse_count(code, 0, 255)) out.exit_code = static_cast<int>(*agreed);
  return out;
}

Error name_signal(Error error) {
  if (error.code == Errc::interrupted && stop_signal() == SIGTERM) error.code = Errc::terminated;
  return error;
}

}  // namespace ckpt::cli
