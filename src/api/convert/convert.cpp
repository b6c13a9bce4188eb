#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/convert/check.hpp"
#include "api/convert/conversion_hooks.hpp"
#include "api/convert/pool.hpp"
#include "api/convert/resume.hpp"
#include "api/convert/select.hpp"
#include "api/convert/source_check.hpp"
#include "api/convert/source_hashes.hpp"
#include "api/convert/step_counters.hpp"
#include "api/convert/target.hpp"
#include "api/convert/target_extras.hpp"
#include "api/verbs.hpp"
#include "convert/apply_rules.hpp"
#include "convert/format.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/run.hpp"
#include "format/checked.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other between phases; a dead rank ends the launch much earlier.
constexpr auto kPhasePatience = std::chrono::minutes(10);
// How long they wait for each other when all is done.
constexpr auto kFarewellPatience = std::chrono::seconds(10);
// Changes whenever the bytes of a target change for equal source and parameters.
constexpr std::string_view kConversionVersion = "ckpt.convert.1";

Deadline phase_deadline() {
  return std::chrono::steady_clock::now() + kPhasePatience;
}

/// One id for equal source bytes and equal parameters.
///
/// source  identity of the source's map
std::string conversion_id(const ConvertRequest& request, const Format& target, const Hash128& source) {
  Hasher hasher;
  const auto add = [&](std::string_view text) {
    hasher.update_u64(text.size());
    hasher.update(text);
  };
  add(kConversionVersion);
  add(target.name);
  hasher.update(std::as_bytes(std::span(source.bytes)));
  hasher.update_u64(request.only.size());
  for (const std::string& only : request.only) add(only);
  hasher.update_u64(static_cast<std::uint64_t>(request.weights));
  hasher.update_u64(request.dtype ? 1 + static_cast<std::uint64_t>(*request.dtype) : 0);
  hasher.update_u64(request.shard_bytes);
  add(request.strip_prefix);
  add(request.add_prefix);
  if (const std::string options = options_text(request.options); !options.empty()) add(options);
  if (!request.extras) add("no-extras");
  if (request.hooks != nullptr) {
    for (const std::string& parameter : request.hooks->parameters) add(parameter);
  }
  return hasher.digest().hex();
}

/// Everything known before the first byte moves; equal on all ranks.
struct Prepared {
  std::unique_ptr<Source> source;  // the plan points into its map
  const Format* target = nullptr;
  std::string id;                       // equal on all ranks
  std::shared_ptr<RankLayout> ranks{};  // null if the slices of model-parallel ranks are joined
  Selection selection;
  std::vector<WantedExtra> extras{};
  Skeleton skeleton;
  std::unique_ptr<Plan> plan;
  RunOptions options;
  bool already_done = false;
  std::string path{};  // on rank 0, for a checkpoint in a run: where it already is
  std::vector<OldFile> replaced{};
  const ConversionHooks::InRun* in_run = nullptr;
  bool cuts = false;
};

/// --verify full of an existing target: the findings of `ckpt verify`; "" if there are none. A format without checksums
/// is compared with the source, which should have the same values under the same names.
Result<std::string> find_damage(Session& session, const ConvertRequest& request, const Prepared& prepared,
                                const std::string& target) {
  if (!prepared.target->reader) return std::string();
  const auto alone = Comm::solo();
  Session own{.io = session.io,
              .comm = *alone,
              .memory_bytes = session.memory_bytes,
              .threads = session.threads,
              .stop = session.stop,
              .progress = session.progress};
  const bool is_plain = request.hooks == nullptr && request.from.empty() && request.only.empty() && !request.dtype &&
                        request.strip_prefix.empty() && request.add_prefix.empty() && !request.salvage &&
                        request.weights == WeightsFrom::automatic && session.rules == nullptr;
  const bool compares = is_plain && prepared.target->hashes == nullptr;
  CKPT_TRY(const VerifyReport report, verify(own, {.path = target,
                                                   .from = std::string(prepared.target->name),
                                                   .against = compares ? request.source : std::string()}));
  if (!report.damage.empty()) return report.damage.front().file + ": " + report.damage.front().text;
  for (const auto& difference : report.different) {
    if (difference.reason == "values") return difference.name + ": its values are not those of the source";
  }
  return std::string();
}

/// Whether an existing target, the result of this conversion, counts as done.
Result<bool> is_done(Session& session, const ConvertRequest& request, const Prepared& prepared) {
  if (request.verify != VerifyLevel::full || request.dry_run) return true;
  const std::string target = prepared.path.empty() ? request.target : prepared.path;
  CKPT_TRY(const std::string damage, find_damage(session, request, prepared, target));
  if (damage.empty()) return true;
  const bool in_run = prepared.in_run != nullptr;
  if (request.overwrite && !in_run) return false;
  return fail(
      {.code = Errc::checksum,
       .message = fmt::format("{}: already converted, but damaged since: {}", target, damage),
       .file = target,
       .hint = in_run ? "'ckpt repair " + target + "' shows what can be repaired" : "--overwrite converts it again"});
}

Result<bool> already_there(Session& session, const ConvertRequest& request, Prepared& prepared) {
  if (prepared.in_run != nullptr) {
    CKPT_TRY(const auto found, prepared.in_run->find(prepared.id));
    prepared.path = found.value_or("");
    return found ? is_done(session, request, prepared) : false;
  }
  const auto info = session.io.stat(request.target);
  if (!info) {
    if (info.error().code == Errc::not_found) return false;
    return fail(info.error());
  }
  CKPT_CHECK(check_apart(session.io, request, prepared.source->root));
  std::string id;
  if (info->kind == FileInfo::Kind::other) {
    // No checkpoint: a pipe would never end.
  } else if (prepared.target->writer && prepared.target->writer->stored_id != nullptr) {
    if (auto stored = prepared.target->writer->stored_id(session.io, request.target)) id = *stored;
  } else if (auto existing = open_source(session.io, request.target, prepared.target->name,
                                         {.metadata_limit = session.memory_bytes})) {
    id = existing->map.id;
  }
  if (id == prepared.id) return is_done(session, request, prepared);
  if (request.overwrite) return false;
  Error error{.code = Errc::target_exists, .message = request.target + ": already exists"};
  error.file = request.target;
  error.hint = "use --overwrite to replace it, unless it is in use";
  return fail(std::move(error));
}

/// Damage in training state does not prevent converting the weights.
bool is_weights_alone(const ConvertRequest& request) {
  return request.only.size() == 1 && request.only.front() == "weights";
}

/// The converted tensors, and their names.
Result<Prepared> choose(Session& session, const ConvertRequest& request) {
  const ConversionHooks none;
  const ConversionHooks& hooks = request.hooks != nullptr ? *request.hooks : none;
  Prepared out;
  out.in_run = hooks.in_run ? &*hooks.in_run : nullptr;
  out.cuts = hooks.cut != nullptr;
  CKPT_TRY(out.target, hooks.choose_target ? hooks.choose_target() : choose_target(request));
  CKPT_CHECK(check_options(request, *out.target));
  const bool takes_extras = request.extras && !out.cuts && out.target->extras() != KeepsExtras::no;
  if (!takes_extras && !request.assets.empty())
    return fail({.code = Errc::usage,
                 .message = fmt::format("--assets: {} has no room for them", out.target->name),
                 .hint = "--to safetensors with a directory as target, or the universal format"});
  if (out.target->writer && out.target->writer->keeps_model_ranks) out.ranks = std::make_shared<RankLayout>();
  CKPT_TRY(Source source, open_source(session.io, request.source, request.from,
                                      {.metadata_limit = session.memory_bytes,
                                       .rules = session.rules,
                                       .salvage = request.salvage,
                                       .stop = session.stop,
                                       .look_beside = true,
                                       .state_beside = !is_weights_alone(request),
                                       .extras = takes_extras,
                                       .ranks_apart = out.ranks,
                                       .assets = takes_extras ? request.assets : std::string()}));
  out.source = std::make_unique<Source>(std::move(source));
  Map& map = out.source->map;
  for (const Finding& finding : map.findings) {
    if (finding.severity != Severity::incomplete || request.salvage) continue;
    Error error{.code = Errc::incomplete, .message = request.source + ": " + finding.text};
    error.file = finding.file;
    error.tensor = finding.tensor;
    return fail(std::move(error));
  }
  CKPT_CHECK(refuse_flat_parameters(map, out.source->root));
  if (out.in_run == nullptr) {
    CKPT_CHECK(check_name_length(join_path(request.target, "")));
    CKPT_CHECK(check_parent(session.io, request.target));
  }
  if (map.tensors.empty())
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: no tensors found (read as {})", request.source, map.format),
                 .file = request.source,
                 .hint = "'ckpt inspect " + request.source + "' shows the format; a wrong --from finds no tensors"});
  out.id = conversion_id(request, *out.target, identity(map));
  if (hooks.check) CKPT_CHECK(hooks.check(map));
  CKPT_TRY(out.selection, select(map, request));
  if (hooks.cut) CKPT_CHECK(hooks.cut(map, out.selection));
  if (takes_extras) {
    CKPT_TRY(out.extras, choose_extras(*out.source->io, *out.source, request, *out.target));
  }
  return out;
}

/// Whether it exists; other things next to it are noted.
Result<bool> look_at_target(Session& session, const ConvertRequest& request, Prepared& prepared) {
  CKPT_TRY(const bool there, already_there(session, request, prepared));
  const std::string target = join_path(request.target, "");
  if (!there && request.overwrite && prepared.in_run == nullptr && session.io.stat(target)) {
    CKPT_TRY(prepared.replaced, account_for(session.io, target, [&](const std::string& path) {
               return own_files(session, *prepared.source, *prepared.target, path);
             }));
  }
  // In a run leftovers are swept, and a new run has no directory yet.
  if (prepared.in_run != nullptr && (!request.dry_run || !session.io.stat(parent_path(request.target)))) return there;
  CKPT_TRY(const auto found, find_left_overs(session.io, request.target, prepared.id, request.dry_run));
  prepared.selection.notes.insert(prepared.selection.notes.end(), found.begin(), found.end());
  return there;
}

/// Collective: only rank 0 checks the target, and its source counts. On a shared file system ranks may see a changing
/// target or source differently, and must take the same path.
Result<> settle_view(Session& session, const ConvertRequest& request, Prepared& prepared) {
  Comm& comm = session.comm;
  Result<bool> there = false;
  if (comm.is_root()) there = look_at_target(session, request, prepared);
  CKPT_CHECK(agree(comm, phase_deadline(), there ? Result<>{} : Result<>(fail(there.error()))));
  std::string of_root = prepared.id + (*there ? "+" : "-");
  CKPT_CHECK(comm.broadcast(of_root, phase_deadline()));
  prepared.already_done = of_root.ends_with('+');
  Result<> same;
  if (!of_root.starts_with(prepared.id)) {
    Error error{.code = Errc::changed,
                .message = request.source + ": this rank sees different files than rank 0, or a different size or time",
                .file = request.source};
    error.hint =
        "all ranks must read the same files; if the source is still being written, try again when it is complete";
    same = fail(std::move(error));
  }
  return agree(comm, phase_deadline(), std::move(same));
}

/// The plan that makes the target.
Result<> lay_out(Session& session, const ConvertRequest& request, Prepared& out) {
  Map& map = out.source->map;
  std::vector<std::uint32_t> used;
  for (const Selected& selected : out.selection.tensors) used.push_back(selected.tensor);
  for (const WantedExtra& extra : out.extras) used.push_back(extra.tensor);
  if (auto covered = check_coverage(map, used); !covered)
    return fail(with_file(std::move(covered).error(), out.source->root));
  std::unordered_map<std::uint32_t, double> steps;
  if (out.target->writer && out.target->writer->reads_steps) {
    CKPT_TRY(steps, read_step_counters(*out.source, out.selection.tensors));
  }
  const bool apart = out.ranks != nullptr && !out.ranks->ranks.empty();
  const WriteRequest write{.source = &map,
                           .ranks = apart ? out.ranks : nullptr,
                           .tensors = out.selection.tensors,
                           .aliases = out.selection.aliases,
                           .objects = out.selection.objects,
                           .extras = out.extras,
                           .shard_bytes = request.shard_bytes,
                           .only_weights = request.only == std::vector<std::string>{"weights"},
                           .options = request.options,
                           .target = request.target,
                           .id = out.id,
                           .source_format = map.format,
                           .scalars = std::move(steps),
                           .stop = session.stop};
  CKPT_TRY(out.skeleton, out.cuts ? out.target->parts_writer->lay_out(write) : out.target->writer->lay_out(write));
  add_beside(map, *out.target, out.extras, out.skeleton);
  if (!out.skeleton.directory) out.extras.clear();
  if (request.hooks != nullptr && request.hooks->laid_out) request.hooks->laid_out(out.selection, out.skeleton);
  if (!out.skeleton.directory) CKPT_CHECK(check_outside(session.io, request, out.source->root));
  if (!out.skeleton.directory && request.shard_bytes != 0)
    out.selection.notes.push_back({.text = "--shard-size has no effect on a single file"});
  map.files.insert(map.files.end(), out.skeleton.extra_files.begin(), out.skeleton.extra_files.end());
  CKPT_TRY(Plan plan, Plan::make(map, std::move(out.skeleton.files)));
  out.plan = std::make_unique<Plan>(std::move(plan));
  CKPT_TRY(out.options, run_options(session, *out.plan));
  out.options.source_root = out.source->root;
  out.options.check_crc = request.verify != VerifyLevel::none;
  return {};
}

/// Collective: everything known before the first byte moves.
Result<Prepared> prepare(Session& session, const ConvertRequest& request) {
  auto chosen = choose(session, request);
  CKPT_CHECK(agree(session.comm, phase_deadline(), chosen ? Result<>{} : Result<>(fail(chosen.error()))));
  Prepared out = *std::move(chosen);
  CKPT_CHECK(settle_view(session, request, out));
  if (out.already_done) return out;
  auto laid_out = lay_out(session, request, out);
  if (!laid_out) laid_out = fail(out.source->explained(std::move(laid_out).error()));
  CKPT_CHECK(agree(session.comm, phase_deadline(), std::move(laid_out)));
  return out;
}

/// --verify full: the written bytes, read again and compared with the hashes from memory.
Result<> check_target(Session& session, const Plan& plan, const std::string& root, const std::vector<Hash128>& leaves) {
  Written written = as_written(plan);
  CKPT_TRY(const LeafCheck check,
           check_leaves(session, session.comm, written.map, root, std::move(written.files), leaves, "verify target"));
  if (check.damage.empty()) return {};
  Error error{.code = Errc::checksum,
              .message = check.damage.front().file + ": reading it back: " + check.damage.front().text};
  error.file = check.damage.front().file;
  return fail(std::move(error));
}

/// --verify full: replicas equal, masters that round to the stored 16-bit weights. Rank 0 alone.
Result<> check_claims(Session& session, const Prepared& prepared) {
  if (!session.comm.is_root()) return {};
  const Source& source = *prepared.source;
  CKPT_TRY(const SourceCheck check,
           check_source(session, source.map, source.root, {.everything = false}, "verify masters and replicas"));
  if (check.damage.empty()) return {};
  const Finding& first = check.damage.front();
  Error error{.code = Errc::corrupt, .message = first.file + ": " + first.text};
  error.file = first.file;
  error.offset = first.offset;
  error.tensor = first.tensor;
  error.hint = "'ckpt verify " + source.root + "' lists all damage";
  return fail(std::move(error));
}

/// Whether the target's format drops something that was requested, apart from things that it never holds.
bool drops_requested(const Skeleton& skeleton) {
  return std::ranges::any_of(skeleton.dropped,
                             [](const Finding& finding) { return finding.skipped != Skipped::nothing; });
}

ConvertReport describe(const Session& session, const ConvertRequest& request, const Prepared& prepared) {
  ConvertReport report;
  const Map& map = prepared.source->map;
  report.source_format = map.format;
  report.source_variant = map.variant;
  report.source_chosen = map.chosen;
  report.target_format = prepared.target->name;
  report.target = prepared.path.empty() ? request.target : prepared.path;
  report.id = prepared.id;
  report.already_done = prepared.already_done;
  report.dry_run = request.dry_run;
  report.tensor_count = prepared.selection.tensors.size();
  report.memory_bound = session.memory_bytes;
  report.verified = request.verify;
  report.notes = map.findings;
  report.notes.insert(report.notes.end(), prepared.selection.notes.begin(), prepared.selection.notes.end());
  tell_extras(*prepared.source, prepared.extras, report.notes);
  report.partial = prepared.selection.partial || skips_requested(map, request, *prepared.target);
  for (const OldFile& file : prepared.replaced) report.replaced.emplace_back(file.path, file.bytes);
  if (prepared.plan == nullptr) return report;
  report.notes.insert(report.notes.end(), prepared.skeleton.dropped.begin(), prepared.skeleton.dropped.end());
  report.partial = report.partial || (!request.allow_skipped && drops_requested(prepared.skeleton));
  report.source_bytes = prepared.plan->totals().source_bytes;
  report.target_bytes = prepared.plan->totals().target_bytes;
  report.planned_memory = resident_bytes() + prepared.options.pool_bytes;
  for (const TargetFile& file : prepared.plan->targets()) report.files.emplace_back(file.path, file.bytes);
  return report;
}

/// Rank 0's report has the totals of all ranks.
Result<> sum_on_root(Comm& comm, RunReport& report) {
  std::array<std::uint64_t*, 6> counts{&report.read_bytes, &report.written_bytes,    &report.crc_checked,
                                       &report.crc_unread, &report.casts.overflowed, &report.casts.became_nan};
  std::string mine;
  for (const std::uint64_t* count : counts) mine += std::to_string(*count) + " ";
  CKPT_TRY(const std::vector<std::string> all, comm.gather(mine, phase_deadline()));
  if (!comm.is_root()) return {};
  for (std::uint64_t* count : counts) *count = 0;
  for (const std::string& told : all) {
    std::string_view rest = told;
    for (std::uint64_t* count : counts) {
      *count += take_number<std::uint64_t>(rest).value_or(0);
      rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
    }
  }
  return {};
}

/// Results between plan and report.
struct Done {
  RunReport run;
  Resumed resumed;
  std::uint64_t hash_checked = 0;
  std::string path{};  // on rank 0, of a checkpoint in a run
};

/// Looked at between the phases; while bytes move the run does.
Result<> not_stopped(const Session& session) {
  if (!session.is_stopped()) return {};
  return fail(Errc::interrupted, "stopped");
}

/// Between step 1 and the end of the commit; the publication is rank 0's, null elsewhere.
Result<> fill_and_publish(Session& session, const ConvertRequest& request, Prepared& prepared, Publication* publication,
                          Done& done) {
  Comm& comm = session.comm;
  std::string root = publication != nullptr ? publication->root() : std::string();
  CKPT_CHECK(comm.broadcast(root, phase_deadline()));
  std::string record = publication != nullptr ? publication->record() : std::string();
  CKPT_CHECK(comm.broadcast(record, phase_deadline()));
  CrcLedger crcs;
  LateLedger late(prepared.plan->targets());
  CKPT_TRY(done.resumed, take_up(session, *prepared.plan,
                                 {.publication = publication,
                                  .target_root = root,
                                  .source_root = prepared.options.source_root,
                                  .crcs = prepared.options.check_crc ? &crcs : nullptr,
                                  .late = &late}));

  prepared.options.target_root = root;
  prepared.options.record = record;
  prepared.options.record_every = session.record_every;
  prepared.options.reader = done.resumed.reader;
  prepared.options.crcs = &crcs;
  if (session.progress) {
    prepared.options.progress = [&](std::uint64_t done_bytes, std::uint64_t total) {
      session.progress({"read+convert", done_bytes, total});
    };
  }
  std::optional<SourceHashes> hashes;
  if (request.verify != VerifyLevel::none && !prepared.source->map.hashes.leaves.empty()) {
    hashes.emplace(session, *prepared.source, prepared.options);
    prepared.options.leaves = &hashes->ledger();
  }
  prepared.options.late = &late;
  auto ran = run(*prepared.plan, session.io, comm, prepared.options);
  prepared.options.leaves = nullptr;
  prepared.options.late = nullptr;
  if (!ran) return fail(hashes ? hashes->explained(std::move(ran).error()) : std::move(ran).error());
  done.run = *std::move(ran);
  if (hashes) {
    Selection with_extras = prepared.selection;
    for (const WantedExtra& extra : prepared.extras)
      with_extras.tensors.push_back({.tensor = extra.tensor, .name = extra.path, .dtype = Dtype::u8});
    CKPT_TRY(done.hash_checked, hashes->finish(with_extras));
  }
  done.run.read_bytes += done.resumed.read_bytes;
  done.run.crc_checked += done.resumed.crc_checked;
  CKPT_CHECK(sum_on_root(comm, done.run));
  if (comm.is_root()) done.resumed.add_to(done.run);
  if (prepared.options.check_crc) {
    Result<> padding;
    if (comm.is_root()) padding = read_padding(session, *prepared.plan, prepared.options, done.run);
    CKPT_CHECK(agree(comm, phase_deadline(), std::move(padding)));
  }
  const std::vector<Hash128>& leaves = done.run.leaves;

  if (request.verify == VerifyLevel::full) {
    auto checked = check_target(session, *prepared.plan, root, leaves);
    if (checked) checked = check_claims(session, prepared);
    CKPT_CHECK(agree(comm, phase_deadline(), std::move(checked)));
  }
  // The last look before the commit, at every file, those that no byte was taken from too.
  CKPT_CHECK(agree(comm, phase_deadline(), prepared.source->check_unchanged()));
  Result<> committed;
  if (publication != nullptr) {
    committed = [&]() -> Result<> {
      CKPT_CHECK(not_stopped(session));
      std::vector<SmallFile> small;
      if (prepared.skeleton.finish) {
        CKPT_TRY(small, prepared.skeleton.finish(leaves));
      }
      if (prepared.in_run != nullptr) {
        CKPT_TRY(done.path, prepared.in_run->publish(*publication, std::move(small)));
        return {};
      }
      return publication->commit(small);
    }();
  }
  return agree(comm, phase_deadline(), std::move(committed));
}

/// Steps 1 to 6 of the commit, with the run between them.
Result<Done> carry_out(Session& session, const ConvertRequest& request, Prepared& prepared) {
  Comm& comm = session.comm;
  Done done;
  std::optional<Hash128> resumable;
  if (!prepared.cuts) resumable = resume_hash(*prepared.plan, prepared.options.check_crc);
  std::unique_ptr<Publication> publication;
  Result<> begun;
  if (comm.is_root()) begun = not_stopped(session);
  if (begun && comm.is_root() && prepared.in_run != nullptr) begun = prepared.in_run->make_directory();
  if (begun && comm.is_root()) {
    auto opened = Publication::begin(
        session.io,
        {.target = request.target,
         .id = prepared.id,
         .directory = prepared.skeleton.directory,
         .overwrite = request.overwrite,
         .own_files =
             [&](const std::string& path) { return own_files(session, *prepared.source, *prepared.target, path); },
         .small_names = prepared.skeleton.small_names,
         .named_later = prepared.in_run != nullptr,
         .resumable = resumable,
         .readers = prepared.source->files->readers(prepared.source->map, prepared.source->root),
         .restart = request.restart},
        prepared.plan->targets());
    if (opened) {
      publication = std::move(*opened);
    } else {
      begun = fail(std::move(opened).error());
    }
  }
  CKPT_CHECK(agree(comm, phase_deadline(), std::move(begun)));
  auto filled = fill_and_publish(session, request, prepared, publication.get(), done);
  if (!filled) return fail(leave_for_next(publication.get(), std::move(filled).error()));
  return done;
}

/// The greatest peak of all ranks; `beside`: this rank's memory that is not counted as resident. The target is
/// published by now, so losing a rank here only makes the peak unknown.
std::uint64_t greatest_peak(Comm& comm, std::uint64_t beside) {
  std::array<std::uint64_t, 1> peak{peak_resident_bytes() + beside};
  if (comm.ranks() == 1) return peak[0];
  const std::uint64_t own = peak[0];
  return comm.max(peak, std::chrono::steady_clock::now() + kFarewellPatience) ? peak[0] : own;
}

}  // namespace

Result<ConvertReport> convert(Session& session, const ConvertRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(Prepared prepared, prepare(session, request));
  ConvertReport report = describe(session, request, prepared);
  const auto free = session.io.free_bytes(parent_path(request.target));
  if (free) report.free_bytes_after = *free > report.target_bytes ? *free - report.target_bytes : 0;
  if (session.planned) session.planned(report);
  if (prepared.already_done && !request.dry_run) {
    Result<> settled;
    if (session.comm.is_root()) settled = settle_published(session.io, request.target, prepared.id);
    CKPT_CHECK(agree(session.comm, phase_deadline(), std::move(settled)));
  }
  if (request.dry_run && !prepared.already_done && free && *free < report.target_bytes)
    return fail(too_little_space(request.target, report.target_bytes, *free));
  if (!prepared.already_done && !request.dry_run) {
    CKPT_TRY(const Done done, carry_out(session, request, prepared));
    const RunReport& ran = done.run;
    report.read_bytes = ran.read_bytes;
    report.crc_checked = ran.crc_checked;
    report.hash_checked = done.hash_checked;
    report.resumed_bytes = done.resumed.bytes;
    if (!done.path.empty()) report.target = done.path;
    report.crc_unread = ran.crc_unread;
    report.overflowed = ran.casts.overflowed;
    report.became_nan = ran.casts.became_nan;
    report.io_name = ran.io_name;
    report.direct = ran.direct;
    report.page_kind = ran.page_kind;
    report.peak_bytes = greatest_peak(session.comm, ran.hugetlb_bytes);
  } else {
    report.peak_bytes = peak_resident_bytes();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ckpt
