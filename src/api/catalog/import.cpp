#include "api/catalog/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "api/catalog/import_link.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_place.hpp"
#include "api/convert/conversion.hpp"
#include "api/convert/target.hpp"
#include "api/prune_policies.hpp"
#include "api/run/run_series.hpp"
#include "catalog/index/names.hpp"
#include "catalog/scan/scan.hpp"
#include "catalog/trash/trash.hpp"
#include "convert/foreign_names.hpp"
#include "convert/open_source.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/file_name.hpp"
#include "format/text/utf8.hpp"
#include "format/universal/own_names.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"
#include "writers/publish_save.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kGreatestStep = (std::uint64_t{1} << 53) - 1;  // JSON holds it, and the catalog

Result<> check_run(const std::string& run) {
  const auto refuse = [&](std::string reason) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("--run '{}': {}", run, reason),
                 .hint = "name a run such as llama8b or prod/llama8b"});
  };
  if (!is_utf8(run)) return refuse("not UTF-8");
  const bool controls = std::any_of(run.begin(), run.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (controls) return refuse("contains a control character");
  std::string_view rest = run;
  for (unsigned depth = 1;; ++depth) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return refuse("not a path below the store");
    if (part.size() > kLongestFileName)
      return refuse(fmt::format("a name has {} bytes; the limit is {}", part.size(), kLongestFileName));
    if (part.starts_with('.')) return refuse("names that begin with a dot are ignored");
    if (part.starts_with('-')) return refuse("a name that begins with a dash looks like an option");
    if (depth == 1 && part == kPolicyFile) return refuse("reserved for the store's policy");
    if (part.find(kPartialMark) != std::string_view::npos || CheckpointName::parse(part))
      return refuse("reserved for checkpoints");
    if (depth > catalog::kDeepestRun) return refuse(fmt::format("more than {} levels deep", catalog::kDeepestRun));
    if (slash == std::string_view::npos) return {};
    rest.remove_prefix(slash + 1);
  }
}

class Import final : RunTarget {
 public:
  Import(Session& session, const ImportRequest& request, std::uint64_t step)
      : session_(session),
        io_(session.io),
        request_(request),
        step_(step),
        run_directory_(join_path(request.store, request.run)),
        target_(join_path(run_directory_, step_text(step))) {
    out_.step = step;
  }

  Result<ImportReport> run() {
    CKPT_CHECK(check_run(request_.run));
    CKPT_CHECK(check_committed_place(request_.store));
    CKPT_CHECK(check_not_internal(request_.store));
    if (io_.stat(request_.store)) CKPT_CHECK(check_outermost(io_, request_.store));
    if (step_ > kGreatestStep)
      return fail(Errc::usage, fmt::format("--step {}: greater than {}", step_, kGreatestStep));
    if (request_.back_to && *request_.back_to >= step_)
      return fail(Errc::usage, fmt::format("--back-to {}: not before step {}", *request_.back_to, step_));
    for (const catalog::Mark& mark : all_marks()) {
      CKPT_TRY(catalog::MarkFile file, catalog::mark_file(mark));
      marks_.push_back({.path = join_path(catalog::kMarksDirectory, file.name), .bytes = std::move(file.text)});
    }
    out_.new_store = !io_.stat(request_.store);
    ConvertRequest conversion = request_.conversion;
    conversion.target = target_;
    conversion.to = "ckpt";
    conversion.overwrite = false;
    auto converted = request_.link ? link_checkpoint(session_, conversion, *this) : convert_into_run(conversion);
    if (!converted) return fail(std::move(converted).error());
    out_.conversion = *std::move(converted);
    out_.linked = request_.link && !out_.conversion.already_done;
    if (session_.comm.is_root()) CKPT_CHECK(describe());
    return std::move(out_);
  }

 private:
  /// Those of the request, and the metrics that the source's tool has kept, where the request has none of the name.
  std::vector<catalog::Mark> all_marks() {
    std::vector<catalog::Mark> out = request_.marks;
    for (const auto& metric : catalog::foreign_metrics(io_, request_.conversion.source, foreign_names())) {
      const auto is_given = [&](const catalog::Mark& mark) {
        return mark.kind == catalog::Mark::Kind::metric && mark.name == metric.first;
      };
      if (std::ranges::any_of(out, is_given)) continue;
      out.push_back({.kind = catalog::Mark::Kind::metric, .name = metric.first, .value = metric.second});
    }
    return out;
  }

  Result<ConvertReport> convert_into_run(const ConvertRequest& conversion) {
    CKPT_TRY(const Format* const target, choose_target(conversion));
    std::vector<std::string> parameters{"save", request_.run, std::to_string(step_)};
    // After a rollback it is another save, though it may have the same tensors as the one before.
    if (request_.back_to) parameters.push_back(fmt::format("back to {}", *request_.back_to));
    return Conversion(session_, conversion, {.target = target, .parameters = parameters, .run_target = this}).run();
  }

  Result<std::optional<std::string>> find(const std::string& id) override {
    const auto hash = Hash128::from_hex(id);
    if (!hash) return fail(Errc::internal, request_.store + ": an invalid id");
    CKPT_TRY(const auto name, find_committed(io_, run_directory_, step_, *hash));
    if (request_.link && (!name || request_.back_to)) CKPT_CHECK(check_unused(*hash));
    if (!name) return std::nullopt;
    std::string path = join_path(run_directory_, *name);
    CKPT_CHECK(check_found(path));
    return path;
  }

  /// Copies of a checkpoint are identified by its id: with two steps of one id, a run could return the wrong one.
  Result<> check_unused(const Hash128& id) {
    const auto refuse = [&](const std::string& where) {
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: --link would keep the id {}, which the run already has {}",
                                          run_directory_, id.hex(), where),
                   .hint = "omit --link: the copy gets its own id"});
    };
    CKPT_TRY(const auto names, list_checkpoints(io_, run_directory_));
    for (const std::string& name : names) {
      const auto manifest = read_manifest(io_, join_path(run_directory_, name));
      if (manifest && manifest->id == id) return refuse("as " + name);
    }
    CKPT_TRY(const auto trash, catalog::list_trash(io_, request_.store));
    for (const catalog::TrashEntry& entry : trash)
      if (entry.run == request_.run && entry.present && entry.recorded && entry.record.id == id.hex())
        return refuse("in the trash as " + entry.name);
    return {};
  }

  /// "Already done" requires that manifest, table and the sizes of all files are still right.
  Result<> check_found(const std::string& path) {
    const auto opened =
        open_source(io_, path, "ckpt", {.metadata_limit = session_.memory_bytes, .stop = session_.stop});
    std::string reason;
    if (opened) {
      const auto& findings = opened->map.findings;
      const auto missing = std::ranges::find(findings, Severity::incomplete, &Finding::severity);
      if (missing == findings.end()) return {};
      reason = missing->text;
    } else {
      const Errc code = opened.error().code;
      if (code != Errc::corrupt && code != Errc::checksum && code != Errc::incomplete) return fail(opened.error());
      reason = opened.error().message;
    }
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: already saved, but damaged since: {}", path, reason),
                 .file = path,
                 .hint = "'ckpt repair " + path + "' shows what can be repaired"});
  }

  Result<> make_directories() override {
    CKPT_CHECK(make_directory(io_, request_.store));
    CKPT_TRY(held_, hold_store(io_, request_.store));
    CKPT_CHECK(make_directory(io_, join_path(request_.store, kStoreDirectory)));
    CKPT_CHECK(make_directory(io_, run_directory_));
    CKPT_TRY(const auto entries, io_.list(run_directory_));
    for (const DirEntry& entry : entries) {
      if (is_save_partial(entry.name)) leftover_.push_back(entry.name);
    }
    return {};
  }

  Result<std::string> publish(Publication& publication, std::vector<SmallFile> files) override {
    CKPT_CHECK(decide_series());
    SaveToPublish save{.run_directory = run_directory_, .step = step_, .marks = std::move(marks_)};
    for (const SmallFile& file : files) {
      if (file.path == universal::kManifestPath) {
        CKPT_TRY(save.manifest, universal::parse_manifest(file.bytes));
      } else if (file.path == universal::kSumsPath) {
        CKPT_TRY(universal::Sums sums, universal::parse_sums(std::as_bytes(std::span(file.bytes))));
        save.files = std::move(sums.files);
        save.leaves = std::move(sums.leaves);
      }
    }
    files.clear();
    save.manifest.revision = 0;  // of a linked one, too: nothing was done to this one yet
    save.manifest.run = series_;
    save.manifest.meta.step = step_;
    CKPT_TRY(const std::string name, publish_save(io_, publication, std::move(save)));
    return join_path(run_directory_, name);
  }

  /// Whether another tool's checkpoint of a later step is in the run, which no series has superseded yet: names count it, too.
  bool holds_others_after(std::uint64_t step) const {
    const auto folder = catalog::list_folder(io_, request_.store, request_.run, other_tools());
    if (!folder || !*folder) return false;
    return std::ranges::any_of((*folder)->places, [&](const catalog::EntryPlace& place) {
      const std::uint64_t theirs = place.foreign ? place.step.value_or(0) : 0;
      return theirs > step && !(known_.from && theirs > *known_.from);
    });
  }

  /// The state of the run before this save.
  Result<> decide_series() {
    CKPT_TRY(known_, series_of(io_, run_directory_, ""));
    bool goes_after = false;
    bool goes_on = false;
    std::uint64_t reached = 0;  // by the newest series
    for (std::size_t i = 0; i < known_.standing.size(); ++i) {
      const RunCheckpoint& one = known_.standing[i];
      if (known_.superseded[i] || !one.run) continue;
      goes_after = goes_after || (request_.back_to && one.name.step > *request_.back_to);
      if (one.run->series == known_.greatest) reached = std::max(reached, one.name.step);
    }
    // Saves of one series rise: one that does not is of a training that went back once more.
    goes_on = request_.back_to && known_.from == request_.back_to && step_ > reached;
    series_ = stay_in_series(run_directory_, known_);
    if (!request_.back_to) return {};
    if (!goes_after) goes_after = holds_others_after(*request_.back_to);
    if (!goes_after) {
      series_note_ = fmt::format("no new series: the run has no current checkpoint after step {}", *request_.back_to);
    } else if (goes_on) {
      series_note_ = fmt::format("continuing series {}, which began after step {}", series_.series, *request_.back_to);
    } else {
      begins_ = true;
      series_ = begin_series(run_directory_, known_, request_.back_to);
      series_note_ = superseding_note(series_, *request_.back_to);
    }
    return {};
  }

  /// Its marks, if it was there before.
  Result<> mark_later() {
    for (const catalog::Mark& mark : request_.marks)
      CKPT_CHECK(catalog::write_mark(io_, catalog::marks_path(out_.conversion.target, false), mark,
                                     catalog::Holding::lease, foreign_names()));
    if (request_.marks.empty()) return {};
    out_.marked_later = true;
    drop_note(io_, run_directory_, out_.name, "marks");
    return {};
  }

  Result<> describe() {
    const ConvertReport& conversion = out_.conversion;
    const auto named = CheckpointName::parse(base_name(conversion.target));
    if (!named) {  // --dry-run
      CKPT_CHECK(decide_series());
      out_.series = series_.series;
      return report_order();
    }
    out_.name = named->text();
    out_.generation = named->generation;
    const auto manifest = read_manifest(io_, conversion.target);
    if (manifest && manifest->run) out_.series = manifest->run->series;
    if (manifest) out_.created = manifest->created;
    if (!conversion.already_done) {
      sweep();
      return report_order();
    }
    return conversion.dry_run ? Result<>() : mark_later();
  }

  /// Removes leftovers that were there when this began and that no process holds now that it is over: a new save has
  /// its partial for an instant before it locks it. This one's own was renamed by now, or resumed.
  void sweep() {
    std::vector<Finding>& notes = out_.conversion.notes;
    for (const std::string& name : leftover_) {
      const std::string path = join_path(run_directory_, name);
      if (!io_.stat(path)) continue;
      const auto swept = sweep_leftover(io_, path, universal::is_own_name);
      if (swept)
        notes.push_back({.text = fmt::format("removed {}, left by a killed save", name)});
      else if (swept.error().code != Errc::locked)
        notes.push_back({.severity = Severity::warning, .text = swept.error().message});
    }
  }

  /// The last save is the newest, whatever its step, which is not always intended.
  Result<> report_order() {
    std::vector<Finding>& notes = out_.conversion.notes;
    if (!series_note_.empty()) notes.push_back({.text = series_note_});
    const auto newest = std::ranges::find_if(known_.standing, [](const RunCheckpoint& one) { return !one.id.empty(); });
    if (begins_ || newest == known_.standing.end() || newest->name.step < step_) return {};
    const bool again = newest->name.step == step_;
    std::string text =
        again ? fmt::format("step {} was already saved, now {}.g{}; rules that count steps use this save", step_,
                            catalog::short_name(request_.run, step_), newest->name.generation)
              : fmt::format("step {} was the newest checkpoint of the run; step {} is now", newest->name.step, step_);
    notes.push_back({.severity = again ? Severity::note : Severity::warning, .text = std::move(text)});
    return {};
  }

  Session& session_;
  Io& io_;
  const ImportRequest& request_;
  const std::uint64_t step_;
  const std::string run_directory_;
  const std::string target_;
  std::unique_ptr<HeldDirectory> held_{};  // the store, while something is made in it
  std::vector<SmallFile> marks_{};
  std::vector<std::string> leftover_{};  // partials in the run when this began
  RunSeries known_{};                    // before it was saved
  universal::Run series_{};
  bool begins_ = false;
  std::string series_note_{};  // the outcome of `back_to`
  ImportReport out_{};
};

/// The step recorded in the source: trainer_state.json, global_steps, a manifest.
Result<std::uint64_t> step_of_source(Session& session, const ImportRequest& request) {
  const std::string& path = request.conversion.source;
  CKPT_TRY(const Source source, open_source(session.io, path, request.conversion.from,
                                            {.metadata_limit = session.memory_bytes,
                                             .rules = session.rules,
                                             .stop = session.stop,
                                             .state_beside = false}));
  if (source.map.meta.step) return *source.map.meta.step;
  return fail({.code = Errc::usage,
               .message = path + ": --step is missing, and the checkpoint does not contain its step",
               .file = path,
               .hint = "--step N    the training step"});
}

}  // namespace

Result<ImportReport> import_checkpoint(Session& session, const ImportRequest& request) {
  std::uint64_t step = request.step.value_or(0);
  if (!request.step) {
    constexpr auto kStepPatience = std::chrono::minutes(10);
    auto known = step_of_source(session, request);
    CKPT_CHECK(agree(session.comm, std::chrono::steady_clock::now() + kStepPatience,
                     known ? Result<>() : Result<>(fail(known.error()))));
    step = *known;
  }
  return Import(session, request, step).run();
}

}  // namespace ckpt
