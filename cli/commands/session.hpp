#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/verbs.hpp"
#include "cli/output/progress.hpp"
#include "cli/report/say.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {

/// The parts that a verb's Session refers to, built once.
class OpenSession {
 public:
  /// Works alone on this process: inspect, ls, verify.
  static Result<std::unique_ptr<OpenSession>> alone(Context& context);
  /// On all ranks of the launch, if there is one. Collective. mpi_launch when they cannot be reached.
  static Result<std::unique_ptr<OpenSession>> on_all_ranks(Context& context);

  /// Why there is no session on this rank, or null. The communicator works even then: every rank settles.
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  /// Only without a failure.
  Session& session() { return *session_; }
  Comm& comm() { return *comm_; }
  /// Ends the progress display, so that it does not mix with later output.
  void end_progress() { display_.reset(); }

 private:
  static Result<std::unique_ptr<OpenSession>> open(Context& context, std::shared_ptr<Comm> comm);
  Result<> read_names(const Words& words);

  std::optional<Error> failure_;
  std::shared_ptr<Comm> comm_;
  std::unique_ptr<Io> io_;
  std::unique_ptr<ProgressDisplay> display_;
  std::optional<MapRules> rules_;
  std::optional<Session> session_;
};

/// The path of the checkpoint that a command reads, by path or by name. Says on standard error which one it is where
/// `word` is a directory of several. With --from, a directory is the checkpoint itself. Collective.
/// errors  as find_source
Result<std::string> source_path(Context& context, Session& session, const std::string& word);

/// The signal decides between `interrupted` (130) and `terminated` (143).
Error name_signal(Error error);

/// Asks the api one thing, on this process alone: what `ask(Session&)` returns, a Result, after the progress display
/// has ended.
template <class Ask>
std::invoke_result_t<Ask, Session&> ask_alone(Context& context, Ask ask) {
  CKPT_TRY(const auto open, OpenSession::alone(context));
  if (open->failure() != nullptr) return fail(*open->failure());
  auto answer = ask(open->session());
  open->end_progress();
  if (!answer) return fail(name_signal(std::move(answer).error()));
  return answer;
}

/// The same of a command whose arguments name checkpoints: what `ask(Session&, NamesInStore)` returns.
/// errors  also as names_in_store
template <class Ask>
std::invoke_result_t<Ask, Session&, NamesInStore> ask_by_name(Context& context, Ask ask) {
  return ask_alone(context, [&](Session& session) -> std::invoke_result_t<Ask, Session&, NamesInStore> {
    CKPT_TRY(NamesInStore named, names_of(session, context.words));
    return ask(session, std::move(named));
  });
}

/// The common outcome of all ranks after a collective command.
struct Verdict {
  int exit_code = 0;
  std::vector<Failure> failures{};  ///< on rank 0: the causes, without the ranks that only say "a peer failed"
};

/// Collective: every rank passes its own outcome (null = success); all get one exit code, that of the lowest rank with
/// a cause. If ranks cannot be reached, each keeps its own.
Verdict agree_on_verdict(Comm& comm, const Error* mine);

}  // namespace ckpt::cli
