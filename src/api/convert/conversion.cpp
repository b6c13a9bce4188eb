#include "api/convert/conversion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "api/convert/check.hpp"
#include "api/convert/existing_target.hpp"
#include "api/convert/model_facts.hpp"
#include "api/convert/pool.hpp"
#include "api/convert/progress_names.hpp"
#include "api/convert/rank_totals.hpp"
#include "api/convert/source_check.hpp"
#include "api/convert/source_hashes.hpp"
#include "api/convert/step_counters.hpp"
#include "api/convert/target.hpp"
#include "api/convert/target_extras.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "convert/apply_rules.hpp"
#include "convert/identity.hpp"
#include "convert/target_paths.hpp"
#include "engine/io/real_path.hpp"
#include "engine/store/run_directory.hpp"
#include "format/checked.hpp"
#include "format/model/finding_error.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other between phases; a dead rank ends the launch much earlier.
constexpr auto kPhasePatience = std::chrono::minutes(10);
// Changes whenever the bytes of a target change for equal source and parameters.
constexpr std::string_view kConversionVersion = "ckpt.convert.1";

Deadline phase_deadline() {
  return std::chrono::steady_clock::now() + kPhasePatience;
}

/// Damage in training state does not prevent converting the weights.
bool is_weights_alone(const ConvertRequest& request) {
  return request.only.size() == 1 && request.only.front() == "weights";
}

/// Whether the target's format drops something that was requested, apart from things that it never holds.
bool drops_requested(const Skeleton& skeleton) {
  return std::ranges::any_of(skeleton.dropped,
                             [](const Finding& finding) { return finding.skipped != Skipped::nothing; });
}

/// Checked between the phases; while bytes move, the run checks it.
Result<> not_stopped(const Session& session) {
  if (!session.is_stopped()) return {};
  return fail(Errc::interrupted, "stopped");
}

}  // namespace

Conversion::Conversion(Session& session, const ConvertRequest& request, Options options)
    : session_(session), request_(request), options_(std::move(options)) {}

Result<> Conversion::agreed(Result<> mine) {
  return agree(session_.comm, phase_deadline(), std::move(mine));
}

/// One id for equal source bytes and equal parameters.
std::string Conversion::make_id() const {
  Hasher hasher;
  const auto add = [&](std::string_view text) {
    hasher.update_u64(text.size());
    hasher.update(text);
  };
  add(kConversionVersion);
  add(options_.target->name);
  const Hash128 source = identity(map());
  hasher.update(std::as_bytes(std::span(source.bytes)));
  hasher.update_u64(request_.only.size());
  for (const std::string& only : request_.only) add(only);
  hasher.update_u64(static_cast<std::uint64_t>(request_.weights));
  hasher.update_u64(request_.dtype ? 1 + static_cast<std::uint64_t>(*request_.dtype) : 0);
  hasher.update_u64(request_.shard_bytes);
  add(request_.strip_prefix);
  add(request_.add_prefix);
  if (const std::string options = options_text(request_.options); !options.empty()) add(options);
  if (!request_.extras) add("no-extras");
  if (request_.salvage) {  // damaged objects are left out: once they are restored this is another conversion
    add("salvage");
    for (const NamedObject& object : map().objects) add(object.name);
  }
  if (request_.by_reference) {
    add("virtual");
    add(real_path(source_->root).value_or(source_->root));  // a copy of the source with its times is another one
  }
  for (const std::string& parameter : options_.parameters) add(parameter);
  return hasher.digest().hex();
}

/// Whether names and blobs of the source stay as they are stored.
bool Conversion::copies_stored() const {
  const bool renames = session_.rules != nullptr || !request_.strip_prefix.empty() || !request_.add_prefix.empty();
  return options_.target->writer && options_.target->writer->copies_stored && request_.only.empty() &&
         !request_.dtype && !renames;
}

Result<> Conversion::open() {
  const Format& target = *options_.target;
  CKPT_CHECK(check_options(request_, target));
  CKPT_CHECK(check_by_reference(session_, request_, target));
  takes_extras_ = request_.extras && !options_.in_parts && target.extras() != KeepsExtras::no;
  if (!takes_extras_ && !request_.assets.empty())
    return fail({.code = Errc::usage,
                 .message = fmt::format("--assets: {} cannot hold these files", target.name),
                 .hint = "use --to safetensors with a directory as target, or --to ckpt"});
  if (target.writer && target.writer->keeps_model_ranks) ranks_ = std::make_shared<RankLayout>();
  CKPT_TRY(Source source, open_source(session_.io, request_.source, request_.from,
                                      {.metadata_limit = session_.memory_bytes,
                                       .rules = session_.rules,
                                       .salvage = request_.salvage,
                                       .stop = session_.stop,
                                       .find_beside = true,
                                       .state_beside = !is_weights_alone(request_),
                                       .weights_alone = is_weights_alone(request_),
                                       .extras = takes_extras_,
                                       .ranks_apart = ranks_,
                                       .assets = takes_extras_ ? request_.assets : std::string(),
                                       .saved_trees = !copies_stored()}));
  source_ = std::make_unique<Source>(std::move(source));
  if (target.writer && target.writer->prepare != nullptr) target.writer->prepare(source_->map);
  CKPT_CHECK(check_complete());
  if (request_.materialize) {
    CKPT_TRY(in_place_, check_in_place(session_.io, *source_, request_.target));
  }
  id_ = in_place_ == InPlace::done ? map().id : make_id();
  return {};
}

Result<> Conversion::check_complete() {
  for (const Finding& finding : map().findings) {
    if (finding.severity != Severity::incomplete || request_.salvage) continue;
    return fail(as_error(finding, request_.source, Errc::incomplete));
  }
  CKPT_CHECK(refuse_flat_parameters(map(), source_->root));
  if (options_.run_target == nullptr) {
    CKPT_CHECK(check_name_length(join_path(request_.target, "")));
    CKPT_CHECK(check_parent(session_.io, request_.target));
  }
  if (!map().tensors.empty()) return {};
  return fail({.code = Errc::unsupported,
               .message = fmt::format("{}: no tensors found (read as {})", request_.source, map().format),
               .file = request_.source,
               .hint = (request_.from.empty() ? "'ckpt inspect " : "check --from; 'ckpt inspect ") + request_.source +
                       "' shows what it holds"});
}

bool Conversion::keeps_model_ranks() const {
  return ranks_ != nullptr && !ranks_->ranks.empty();
}

Result<> Conversion::select() {
  CKPT_TRY(selection_, ckpt::select(map(), request_, keeps_model_ranks()));
  if (request_.dtype) quantisation_ = quantisation(*source_->io, *source_);
  if (!takes_extras_) return {};
  CKPT_TRY(extras_, choose_extras(*source_->io, *source_, request_, *options_.target));
  return {};
}

/// Whether an existing target of this conversion counts as done.
Result<bool> Conversion::is_done() {
  if (request_.verify != VerifyLevel::full || request_.dry_run) return true;
  const std::string target = path_.empty() ? request_.target : path_;
  CKPT_TRY(const std::string damage,
           find_damage(session_, *source_, {selection_.tensors, extras_}, *options_.target, target));
  if (damage.empty()) return true;
  const bool in_run = options_.run_target != nullptr;
  if (overwrites() && !in_run) return false;
  return fail({.code = Errc::checksum,
               .message = fmt::format("{}: already converted, but damaged since: {}", target, damage),
               .file = target,
               .hint = in_run ? "'ckpt repair " + target + "' shows what can be repaired" : again_hint(target)});
}

/// How to repeat a conversion whose target is damaged: --overwrite needs to know which files are its own.
std::string Conversion::again_hint(const std::string& target) {
  return check_replaced(target) ? "--overwrite converts it again" : "remove it by hand, then convert again";
}

Result<bool> Conversion::already_there() {
  if (options_.run_target != nullptr) {
    CKPT_TRY(const auto found, options_.run_target->find(id_));
    path_ = found.value_or("");
    return found ? is_done() : false;
  }
  const auto info = session_.io.stat(request_.target);
  if (!info) {
    if (info.error().code == Errc::not_found) return false;
    return fail(info.error());
  }
  if (in_place_ == InPlace::no) CKPT_CHECK(check_apart(session_.io, request_, source_->root));
  std::string id;
  if (info->kind == FileInfo::Kind::other) {
    // No checkpoint: a pipe would never end.
  } else if (options_.target->writer && options_.target->writer->stored_id != nullptr) {
    if (auto stored = options_.target->writer->stored_id(session_.io, request_.target)) id = *stored;
  } else if (auto existing = open_source(session_.io, request_.target, options_.target->name,
                                         {.metadata_limit = session_.memory_bytes})) {
    id = existing->map.id;
  }
  if (id == id_) return is_done();
  if (overwrites()) return false;
  return fail({.code = Errc::target_exists,
               .message = request_.target + ": already exists",
               .file = request_.target,
               .hint = "use --overwrite to replace it"});
}

Result<std::vector<std::string>> Conversion::files_to_replace(const std::string& path) {
  return own_files(session_, *source_, *options_.target, path, in_place_ == InPlace::yes);
}

/// What --overwrite is to remove.
Result<> Conversion::check_replaced(const std::string& target) {
  CKPT_CHECK(check_unreferenced(session_.io, target));
  CKPT_CHECK(check_unpinned(session_.io, target));
  CKPT_TRY(replaced_,
           account_for(session_.io, target, [this](const std::string& path) { return files_to_replace(path); }));
  if (const auto old = read_manifest(session_.io, target)) old_references_ = catalog::referenced_paths(*old, target);
  return {};
}

/// Whether it exists; records other things next to it.
Result<bool> Conversion::check_target() {
  CKPT_CHECK(check_in_no_checkpoint(parent_path(request_.target)));  // also of a dry run
  CKPT_TRY(const bool there, already_there());
  const std::string target = join_path(request_.target, "");
  if (!there && overwrites() && options_.run_target == nullptr && session_.io.stat(target))
    CKPT_CHECK(check_replaced(target));
  // In a run leftovers are swept, and a new run has no directory yet.
  if (options_.run_target != nullptr && (!request_.dry_run || !session_.io.stat(parent_path(request_.target))))
    return there;
  CKPT_TRY(const auto found, find_leftovers(session_.io, request_.target, id_, request_.dry_run));
  selection_.notes.insert(selection_.notes.end(), found.begin(), found.end());
  return there;
}

/// Only rank 0 checks the target, and its source counts. On a shared file system ranks may see a changing target or
/// source differently, and must take the same path.
Result<> Conversion::agree_on_choice(Result<> mine) {
  CKPT_CHECK(agreed(std::move(mine)));
  Comm& comm = session_.comm;
  Result<bool> there = false;
  if (comm.is_root()) there = check_target();
  CKPT_CHECK(agreed(there ? Result<>{} : Result<>(fail(there.error()))));
  std::string of_root = id_ + (*there ? "+" : "-");
  CKPT_CHECK(comm.broadcast(of_root, phase_deadline()));
  already_done_ = of_root.ends_with('+');
  Result<> same;
  if (!of_root.starts_with(id_)) {
    same = fail(
        {.code = Errc::changed,
         .message = request_.source + ": the source is not the same on this rank and rank 0 (files, sizes or times)",
         .file = request_.source,
         .hint = "check that every rank mounts the same directory; if it is still being written, try again later"});
  }
  return agreed(std::move(same));
}

Result<WriteRequest> Conversion::write_request() {
  std::unordered_map<std::uint32_t, double> steps;
  if (options_.target->writer && options_.target->writer->reads_steps) {
    CKPT_TRY(steps, read_step_counters(*source_, selection_.tensors));
  }
  if (request_.by_reference) references_.emplace(*source_, request_.target);
  return WriteRequest{.source = &map(),
                      .ranks = keeps_model_ranks() ? ranks_ : nullptr,
                      .tensors = selection_.tensors,
                      .aliases = selection_.aliases,
                      .objects = selection_.objects,
                      .extras = extras_,
                      .shard_bytes = request_.shard_bytes,
                      .only_weights = request_.only == std::vector<std::string>{"weights"},
                      .options = request_.options,
                      .target = request_.target,
                      .id = id_,
                      .source_format = map().format,
                      .refer = references_ ? [this](std::uint32_t file) { return references_->refer(file); }
                                           : std::function<Result<Reference>(std::uint32_t)>(),
                      .scalars = std::move(steps),
                      .stop = session_.stop};
}

Result<> Conversion::make_plan() {
  Map& map = source_->map;
  std::vector<std::uint32_t> used;
  for (const Selected& selected : selection_.tensors) used.push_back(selected.tensor);
  for (const WantedExtra& extra : extras_) used.push_back(extra.tensor);
  if (auto covered = check_coverage(map, used); !covered)
    return fail(with_file(std::move(covered).error(), source_->root));
  const Format& target = *options_.target;
  if (!options_.in_parts)
    CKPT_CHECK(check_layout_memory(session_, selection_.tensors.size(), target.writer->tensor_memory));
  CKPT_TRY(WriteRequest write, write_request());
  CKPT_TRY(Skeleton beside, lay_out_state_beside(write, target));
  CKPT_TRY(skeleton_, options_.in_parts ? target.parts_writer->lay_out(write) : target.writer->lay_out(write));
  std::ranges::move(beside.files, std::back_inserter(skeleton_.files));
  std::ranges::move(beside.dropped, std::back_inserter(skeleton_.dropped));
  add_beside(map, target, extras_, skeleton_);
  CKPT_CHECK(check_target_paths(skeleton_, request_.target));
  if (!skeleton_.directory) {
    extras_.clear();
    CKPT_CHECK(check_outside(session_.io, request_, source_->root));
    if (request_.shard_bytes != 0) selection_.notes.push_back({.text = "--shard-size has no effect on a single file"});
  }
  map.files.insert(map.files.end(), skeleton_.extra_files.begin(), skeleton_.extra_files.end());
  CKPT_TRY(Plan plan, Plan::make(map, std::move(skeleton_.files)));
  plan_ = std::make_unique<Plan>(std::move(plan));
  CKPT_TRY(run_options_, run_options(session_, *plan_));
  run_options_.source_root = source_->root;
  run_options_.check_crc = request_.verify != VerifyLevel::none;
  return {};
}

Result<> Conversion::lay_out() {
  if (already_done_ && options_.run_target != nullptr) return {};  // a run checks the files of what it finds
  auto laid_out = make_plan();
  if (!laid_out) laid_out = fail(source_->explained(std::move(laid_out).error()));
  CKPT_CHECK(agreed(std::move(laid_out)));
  return already_done_ ? check_files() : Result<>{};
}

/// A target that counts as done is converted again with --overwrite, or refused, if its files are not as planned.
Result<> Conversion::check_files() {
  Result<std::string> missing = std::string();
  if (session_.comm.is_root())
    missing = find_missing_file(session_.io, *plan_, skeleton_, *options_.target, request_.target);
  Result<> outcome = missing ? Result<>{} : Result<>(fail(missing.error()));
  if (missing && !missing->empty() && overwrites()) outcome = check_replaced(join_path(request_.target, ""));
  if (missing && !missing->empty() && !overwrites())
    outcome = fail({.code = Errc::incomplete,
                    .message = fmt::format("{}: already converted, but {}", request_.target, *missing),
                    .file = request_.target,
                    .hint = again_hint(request_.target)});
  CKPT_CHECK(agreed(std::move(outcome)));
  CKPT_CHECK(session_.comm.broadcast(*missing, phase_deadline()));
  already_done_ = missing->empty();
  return {};
}

ConvertReport Conversion::describe() const {
  ConvertReport report;
  const Map& map = source_->map;
  report.source_format = map.format;
  report.source_variant = map.variant;
  report.source_chosen = map.chosen;
  report.target_format = options_.target->name;
  report.target = path_.empty() ? request_.target : path_;
  report.id = id_;
  report.already_done = already_done_;
  report.dry_run = request_.dry_run;
  report.names_state = session_.rules != nullptr && !session_.rules->parameters().empty();
  report.tensor_count = selection_.tensors.size();
  report.memory_bound = session_.memory_bytes;
  report.ranks = session_.comm.ranks();
  report.verified = request_.verify;
  report.notes = findings_for(map, request_, *options_.target);
  report.notes.insert(report.notes.end(), selection_.notes.begin(), selection_.notes.end());
  report_extras(*source_, extras_, report.notes);
  if (quantisation_)
    report.notes.push_back({.severity = Severity::warning,
                            .text = fmt::format("the weights are quantised ({}): --dtype casts only what is stored as "
                                                "floating point, such as scales",
                                                *quantisation_)});
  report.partial = selection_.partial || skips_requested(map, request_, *options_.target);
  for (const OldFile& file : replaced_) report.replaced.emplace_back(file.path, file.bytes);
  if (references_) report.referenced_files = references_->paths().size();
  if (references_) report.referenced_bytes = references_->bytes();
  if (plan_ == nullptr) return report;
  report.notes.insert(report.notes.end(), skeleton_.dropped.begin(), skeleton_.dropped.end());
  report.partial = report.partial || (!request_.allow_skipped && drops_requested(skeleton_));
  report.source_bytes = plan_->totals().source_bytes;
  report.target_bytes = plan_->totals().target_bytes;
  report.planned_memory = resident_bytes() + run_options_.pool_bytes;
  for (const TargetFile& file : plan_->targets()) report.files.emplace_back(file.path, file.bytes);
  return report;
}

/// --verify full: the written bytes, read again and compared with the hashes from memory.
Result<> Conversion::check_target(const std::string& root, const std::vector<Hash128>& leaves) {
  Written written = as_written(*plan_);
  CKPT_TRY(const LeafCheck check,
           check_leaves(session_, session_.comm, written.map, root, std::move(written.files), leaves, "verify target"));
  if (check.damage.empty()) return {};
  const Finding& first = check.damage.front();
  return fail(as_error(first, first.file + ": reading it back", Errc::checksum));
}

/// --verify full: replicas equal, masters that round to the stored 16-bit weights. Rank 0 alone.
Result<> Conversion::check_masters() {
  if (!session_.comm.is_root()) return {};
  const Source& source = *source_;
  CKPT_TRY(const SourceCheck check,
           check_source(session_, source.map, source.root, {.everything = false}, "verify masters and replicas"));
  if (check.damage.empty()) return {};
  const Finding& first = check.damage.front();
  return fail(
      with_hint(as_error(first, first.file, Errc::corrupt), "'ckpt verify " + source.root + "' lists all damage"));
}

/// Step 1 of the commit, on rank 0.
Result<std::unique_ptr<Publication>> Conversion::begin_publication() {
  CKPT_CHECK(not_stopped(session_));
  if (options_.run_target != nullptr) CKPT_CHECK(options_.run_target->make_directories());
  std::optional<Hash128> resumable;
  if (!options_.in_parts) resumable = resume_hash(*plan_, run_options_.check_crc);
  return Publication::begin(session_.io,
                            {.target = request_.target,
                             .id = id_,
                             .directory = skeleton_.directory,
                             .overwrite = overwrites(),
                             .own_files = [this](const std::string& path) { return files_to_replace(path); },
                             .small_names = skeleton_.small_names,
                             .named_later = options_.run_target != nullptr,
                             .resumable = resumable,
                             .readers = source_->files->readers(source_->map, source_->root),
                             .restart = request_.restart},
                            plan_->targets());
}

/// Between step 1 and the end of the commit; the publication is rank 0's, null elsewhere.
Result<> Conversion::fill_and_publish(Publication* publication, Done& done) {
  Comm& comm = session_.comm;
  std::string root = publication != nullptr ? publication->root() : std::string();
  CKPT_CHECK(comm.broadcast(root, phase_deadline()));
  std::string record = publication != nullptr ? publication->record() : std::string();
  CKPT_CHECK(comm.broadcast(record, phase_deadline()));
  CrcJoiner crcs;
  LateFields late(plan_->targets());
  CKPT_TRY(done.resumed, take_up(session_, *plan_,
                                 {.publication = publication,
                                  .target_root = root,
                                  .source_root = run_options_.source_root,
                                  .crcs = run_options_.check_crc ? &crcs : nullptr,
                                  .late = &late}));

  run_options_.target_root = root;
  run_options_.record = record;
  run_options_.record_every = session_.record_every;
  run_options_.reader = done.resumed.reader;
  run_options_.crcs = &crcs;
  const ProgressNames progress_names(*plan_);
  if (session_.progress) {
    run_options_.progress = [&](std::uint64_t done_bytes, std::uint64_t total) {
      session_.progress({"read+convert", done_bytes, total, progress_names.at(done_bytes)});
    };
  }
  std::optional<SourceHashes> hashes;
  if (request_.verify != VerifyLevel::none && !source_->map.hashes.leaves.empty()) {
    hashes.emplace(session_, *source_, run_options_);
    run_options_.leaves = &hashes->comparer();
  }
  run_options_.late = &late;
  phases_.end(&PhaseTimes::plan_s);
  auto ran = ckpt::run(*plan_, session_.io, comm, run_options_);
  phases_.end(&PhaseTimes::copy_s);
  run_options_.leaves = nullptr;
  run_options_.late = nullptr;
  if (!ran) return fail(hashes ? hashes->explained(std::move(ran).error()) : std::move(ran).error());
  done.run = *std::move(ran);
  if (hashes) {
    Selection with_extras = selection_;
    // What a virtual target refers to is not read.
    if (references_)
      std::erase_if(with_extras.tensors,
                    [&](const Selected& one) { return map().tensors[one.tensor].role != Role::blob; });
    for (const WantedExtra& extra : extras_)
      with_extras.tensors.push_back({.tensor = extra.tensor, .name = extra.path, .dtype = Dtype::u8});
    CKPT_TRY(done.hash_checked, hashes->finish(with_extras));
  }
  done.run.read_bytes += done.resumed.read_bytes;
  done.run.crc_checked += done.resumed.crc_checked;
  CKPT_CHECK(sum_on_root(comm, done.run, phase_deadline()));
  if (comm.is_root()) done.resumed.add_to(done.run);
  if (run_options_.check_crc) {
    Result<> padding;
    if (comm.is_root()) padding = read_padding(session_, *plan_, run_options_, done.run);
    CKPT_CHECK(agreed(std::move(padding)));
  }
  if (request_.verify == VerifyLevel::full) {
    auto checked = check_target(root, done.run.leaves);
    if (checked) checked = check_masters();
    CKPT_CHECK(agreed(std::move(checked)));
    phases_.end(&PhaseTimes::verify_s);
  }
  if (references_) {
    CKPT_TRY(done.protection, protect_files(session_.io, references_->paths(), request_.target, id_));
  }
  // The last look before the commit, at every file, those that no byte was taken from too.
  CKPT_CHECK(agreed(source_->check_unchanged()));
  Result<> committed;
  if (publication != nullptr) committed = commit(*publication, done);
  const bool is_replaced = publication != nullptr && committed && !old_references_.empty();
  if (is_replaced) {
    source_->referenced_leases.clear();  // removing a mark locks its checkpoint
    release_files(session_.io, old_references_, request_.target,
                  references_ ? references_->paths() : std::vector<std::string>());
  }
  committed = agreed(std::move(committed));
  phases_.end(&PhaseTimes::commit_s);
  return committed;
}

/// On rank 0.
Result<> Conversion::commit(Publication& publication, Done& done) {
  CKPT_CHECK(not_stopped(session_));
  std::vector<SmallFile> small;
  if (skeleton_.finish) {
    CKPT_TRY(small, skeleton_.finish(done.run.leaves));
  }
  if (options_.run_target == nullptr) return publication.commit(small);
  CKPT_TRY(done.path, options_.run_target->publish(publication, std::move(small)));
  return {};
}

/// Steps 1 to 6 of the commit, with the run between them.
Result<Conversion::Done> Conversion::carry_out() {
  if (in_place_ == InPlace::yes) {
    source_->lease.reset();  // on every rank, before rank 0 locks what it replaces; a change is seen before the commit
    CKPT_CHECK(agreed({}));
  }
  Result<std::unique_ptr<Publication>> publication = nullptr;
  if (session_.comm.is_root()) publication = begin_publication();
  CKPT_CHECK(agreed(publication ? Result<>{} : Result<>(fail(publication.error()))));
  Done done;
  auto filled = fill_and_publish(publication->get(), done);
  if (!filled) return fail(keep_for_resume(publication->get(), std::move(filled).error()));
  return done;
}

/// A mark may have been removed since, or not written by a process that was killed.
Result<> Conversion::protect_done(ConvertReport& report) {
  CKPT_TRY(const universal::Manifest manifest, read_manifest(session_.io, request_.target));
  CKPT_TRY(const Protection done,
           protect_files(session_.io, catalog::referenced_paths(manifest, request_.target), request_.target, id_));
  std::ranges::copy(done.warnings, std::back_inserter(report.notes));
  return {};
}

Result<ConvertReport> Conversion::finish() {
  ConvertReport report = describe();
  const auto free = session_.io.free_bytes(parent_path(request_.target));
  const std::uint64_t needed = already_done_ ? 0 : report.target_bytes;
  if (free) report.free_bytes_after = *free > needed ? *free - needed : 0;
  if (session_.planned) session_.planned(report);
  if (already_done_ && !request_.dry_run) {
    Result<> settled;
    if (session_.comm.is_root()) settled = finish_published(session_.io, request_.target, id_);
    CKPT_CHECK(agreed(std::move(settled)));
    if (request_.by_reference) CKPT_CHECK(protect_done(report));
  }
  if (in_place_ == InPlace::yes && report.partial)
    return fail({.code = Errc::not_done,
                 .message = request_.target + ": not replaced: the copy would be incomplete",
                 .file = request_.target,
                 .hint = fmt::format("'ckpt materialize {} OUT' keeps it", request_.target)});
  if (request_.dry_run && !already_done_ && free && *free < report.target_bytes)
    return fail(too_little_space(request_.target, report.target_bytes, *free));
  if (!already_done_ && !request_.dry_run) {
    CKPT_TRY(const Done done, carry_out());
    const RunReport& ran = done.run;
    report.read_bytes = ran.read_bytes;
    report.crc_checked = ran.crc_checked;
    report.hash_checked = done.hash_checked;
    report.resumed_bytes = done.resumed.bytes;
    if (!done.path.empty()) report.target = done.path;
    std::ranges::copy(done.protection.warnings, std::back_inserter(report.notes));
    report.crc_unread = ran.crc_unread;
    report.overflowed = ran.casts.overflowed;
    report.became_nan = ran.casts.became_nan;
    report.io_name = ran.io_name;
    report.direct = ran.direct;
    report.page_kind = ran.page_kind;
    report.peak_bytes = greatest_peak(session_.comm, ran.hugetlb_bytes);
  } else {
    report.peak_bytes = peak_resident_bytes();
  }
  report.times = phases_.times();
  report.seconds = phases_.seconds();
  return report;
}

Result<ConvertReport> Conversion::run() {
  auto chosen = open();
  if (chosen) chosen = select();
  CKPT_CHECK(agree_on_choice(std::move(chosen)));
  CKPT_CHECK(lay_out());
  return finish();
}

}  // namespace ckpt
