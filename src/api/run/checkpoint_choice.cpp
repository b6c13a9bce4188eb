#include "api/run/checkpoint_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/comm/agree_after.hpp"
#include "engine/comm/equal_on_all.hpp"
#include "engine/store/run_directory.hpp"
#include "format/model/finding_error.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

/// Reasons why a checkpoint that opens must not be resumed from.
std::optional<Error> unusable(const Map& map, const std::string& path) {
  for (const Finding& finding : map.findings) {
    if (finding.severity < Severity::incomplete) continue;
    return as_error(finding, path, finding.severity == Severity::incomplete ? Errc::incomplete : Errc::corrupt);
  }
  return std::nullopt;
}

/// Failures of one checkpoint, for which an older one may do.
bool is_lost_copy(Errc code) {
  const int exit = exit_code(code);
  return exit == exit_code(Errc::corrupt) || exit == exit_code(Errc::incomplete) || code == Errc::io ||
         code == Errc::changed;
}

Errc verdict_of(const Error& error) {
  return error.verdict.value_or(error.code);
}

}  // namespace

/// Not those that a roll-back has left behind, unless nothing else can be resumed from.
Result<> CheckpointChoice::list(const Result<>& mine) {
  const auto look = [&]() -> Result<> {
    CKPT_CHECK(mine);
    CKPT_TRY(listed_, series_of(io_, options_.run_directory, options_.local_directory));
    if (!listed_.standing.empty() || io_.stat(options_.run_directory)) return {};
    // It existed on opening. Reporting no checkpoint would make a trainer start over.
    return fail({.code = Errc::io,
                 .message = fmt::format("{}: the run directory no longer exists", options_.run_directory),
                 .file = options_.run_directory});
  };
  std::function<Result<>()> work;
  if (comm_.is_root() || !mine) work = look;
  CKPT_CHECK(agree_after(comm_, options_.patience, work));
  CKPT_CHECK(agree_on_step());
  add_candidates();
  return {};
}

Result<> CheckpointChoice::agree_on_step() {
  const std::vector<std::uint64_t> words{options_.step.has_value() ? 1U : 0U, options_.step.value_or(0)};
  CKPT_TRY(const std::vector<bool> equal, equal_on_all(comm_, deadline(), words));
  if (equal[0] && equal[1]) return {};
  return fail(
      {.code = Errc::usage,
       .message = fmt::format("{}: ranks requested different steps; rank {} requested {}", options_.run_directory,
                              comm_.rank(), options_.step ? fmt::format("step {}", *options_.step) : "the newest"),
       .file = options_.run_directory});
}

void CheckpointChoice::add_candidates() {
  const std::vector<RunCheckpoint>& standing = listed_.standing;
  if (options_.step) {
    const auto newest =
        std::ranges::find_if(standing, [&](const auto& one) { return one.name.step == *options_.step; });
    for (auto at = newest; at != standing.end() && at->name == newest->name; ++at)  // two that do not show the same id
      candidates_.insert(candidates_.end(), at->copies.begin(), at->copies.end());
    return;
  }
  bool others = false;
  for (std::size_t i = 0; i < standing.size(); ++i)
    others = others || (!standing[i].id.empty() && !listed_.superseded[i]);
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const std::vector<std::string>& copies = standing[i].copies;
    if (!listed_.superseded[i] || !others) candidates_.insert(candidates_.end(), copies.begin(), copies.end());
  }
}

std::string CheckpointChoice::wanted() const {
  return options_.step ? fmt::format("checkpoint of step {}", *options_.step) : "checkpoint";
}

Result<std::unique_ptr<Checkpoint>> CheckpointChoice::next(std::vector<std::string>& skipped) {
  for (;;) {
    std::string path;
    if (comm_.is_root() && !candidates_.empty()) {
      path = candidates_.front();
      candidates_.erase(candidates_.begin());
    }
    CKPT_CHECK(comm_.broadcast(path, deadline()));
    if (path.empty()) {
      // A trainer that finds no checkpoint starts over; one that has lost them all must not.
      if (skipped.empty()) {
        return fail(
            {.code = Errc::not_found,
             .message = fmt::format("{}: no {}", options_.run_directory, wanted()),
             .file = options_.run_directory,
             .hint = options_.step ? "'ckpt list --trash' shows deleted ones, and 'ckpt undelete' restores them" : ""});
      }
      return fail(
          {.code = Errc::corrupt,
           .message = fmt::format("{}: no usable {}; {} tried", options_.run_directory, wanted(), skipped.size()),
           .file = options_.run_directory,
           .hint = (options_.step ? "the reason: " : "the newest one: ") + skipped.front()});
    }
    std::unique_ptr<Checkpoint> opened;
    auto verdict = agree_after(comm_, options_.patience, [&]() -> Result<> {
      CKPT_TRY(opened, Checkpoint::open(io_, path));
      auto reason = unusable(opened->map(), path);
      return reason ? fail(std::move(*reason)) : Result<>();
    });
    if (verdict) CKPT_CHECK(agree_on_id(*opened));
    if (verdict) return opened;
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return fail(std::move(verdict).error());
    // A checkpoint of a later release is not damaged: resuming from an older one would discard training.
    if (verdict_of(verdict.error()) == Errc::newer) return fail(std::move(verdict).error());
    note_skipped(path, verdict.error(), skipped);
  }
}

/// One path may be another directory on another node: then each rank would load another checkpoint. Collective.
Result<> CheckpointChoice::agree_on_id(const Checkpoint& checkpoint) {
  const auto words = hash128(checkpoint.map().id).words();
  CKPT_TRY(const std::vector<bool> equal, equal_on_all(comm_, deadline(), words));
  if (equal[0] && equal[1]) return {};
  return fail({.code = Errc::io,
               .message = fmt::format("{}: not the same checkpoint on all ranks; id {} on rank {}", checkpoint.path(),
                                      checkpoint.map().id, comm_.rank()),
               .file = checkpoint.path(),
               .hint = "check that every rank opens and mounts the same directory"});
}

void CheckpointChoice::note_skipped(const std::string& path, const Error& why,
                                    std::vector<std::string>& skipped) const {
  skipped.push_back(why.message);
  if (!options_.log) return;
  const std::string name = options_.names_paths ? path : base_name(path);
  const std::string_view next = options_.step          ? ""
                                : options_.names_paths ? ", trying the next copy or the previous one"
                                                       : ", trying the previous one";
  options_.log(fmt::format("{}: cannot be used{}: {}", name, next, why.message));
}

Result<> CheckpointChoice::skip(const std::string& path, const Error& why, std::vector<std::string>& skipped) const {
  if (!is_lost_copy(verdict_of(why))) return fail(why);
  note_skipped(path, why, skipped);
  return {};
}

}  // namespace ckpt
