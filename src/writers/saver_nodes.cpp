// The part of the saver for several nodes, each with a local directory and a leader of its ranks.
//
// A save: every leader begins a partial on its node; when all ranks have written, rank 0 seals the checkpoint and all
// leaders publish the same manifest and hashes, each next to the files of its own ranks.
// A drain: 0 rank 0 (for an earlier job's checkpoint, the lowest leader that has it) begins the partial in the run
// directory; 1 every leader copies the files that it has; 2 the same rank publishes, if together they had all. The
// ranks agree between the steps, in their rounds.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/io/caught.hpp"
#include "engine/io/host.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/seal.hpp"
#include "writers/publish_save.hpp"
#include "writers/save_record.hpp"
#include "writers/saver.hpp"

namespace ckpt {
namespace {

constexpr unsigned kCopyStep = 1;
constexpr unsigned kLastStep = 2;

/// The texts one after another, each after its length.
std::string packed(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += fmt::format("{} ", text.size()) + text;
  return out;
}

Result<std::vector<std::string>> unpacked(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto bytes = take_number<std::uint64_t>(text);
    if (!bytes || text.empty() || *bytes > text.size() - 1)
      return fail(Errc::internal, "rank 0 told of the checkpoint in an unknown way");
    out.emplace_back(text.substr(1, *bytes));
    text.remove_prefix(1 + *bytes);
  }
  return out;
}

/// Whether the nodes together have copied every file: see drain_part. The drain's leader lists every file, even if its
/// node no longer has it.
Result<> none_lacking(const std::vector<std::string>& copied) {
  std::size_t files = 0;
  for (const std::string& part : copied) files = std::max(files, part.size());
  for (std::size_t i = 0; i < files; ++i) {
    const bool found = std::any_of(copied.begin(), copied.end(),
                                   [&](const std::string& part) { return i < part.size() && part[i] == '1'; });
    if (!found) return fail(Errc::incomplete, fmt::format("no node has file {} of {}", i, files));
  }
  return {};
}

}  // namespace

/// Ranks of one machine whose local directory is the same one are a node. Collective.
Result<> Saver::find_nodes(Io& io) {
  std::string place;
  const auto look_here = [&]() -> Result<> {
    CKPT_TRY(const auto own, io.fresh());
    CKPT_CHECK(make_directory(*own, options_.local_directory));
    CKPT_TRY(const FileInfo info, own->stat(options_.local_directory));
    place = fmt::format("{} {} {}", info.device, info.inode, host_name());
    return {};
  };
  CKPT_CHECK(agree_after(comm_, options_.patience, look_here));
  CKPT_TRY(const std::vector<std::string> places, comm_.gather(place, deadline()));
  std::vector<std::string> leaders;
  for (const std::string& each : places) {
    leaders.push_back(std::to_string(std::find(places.begin(), places.end(), each) - places.begin()));
  }
  std::string text = packed(leaders);
  CKPT_CHECK(comm_.broadcast(text, deadline()));
  CKPT_TRY(leaders, unpacked(text));
  if (leaders.size() != static_cast<std::size_t>(comm_.ranks())) return fail(Errc::internal, "not all ranks' nodes");
  several_nodes_ = std::any_of(leaders.begin(), leaders.end(), [](const std::string& leader) { return leader != "0"; });
  leader_ = parse_number<int>(leaders[static_cast<std::size_t>(comm_.rank())]).value_or(0);
  return {};
}

/// The partials of the other nodes. Collective.
Result<> Saver::begin_elsewhere(PendingSave& save) {
  save.root = partial_path(join_path(home(), step_text(save.step)), save.id().hex());
  std::function<Result<>()> work;
  if (leads() && !comm_.is_root()) work = [&] { return make_partial(save, save.step); };
  auto begun = agree_after(comm_, options_.patience, work);
  return begun ? Result<>() : fail(lose_peers(std::move(begun).error()));
}

/// Rank 0 seals the checkpoint that all have written; every leader publishes it. Collective.
Result<> Saver::spread(const std::shared_ptr<PendingSave>& save, const std::vector<std::string>& parts) {
  if (comm_.is_root()) {
    auto sealed = caught([&]() -> Result<std::string> {
      std::vector<RankRecord> ranks;
      for (const std::string& part : parts) {
        CKPT_TRY(RankRecord record, record_from_text(part));
        ranks.push_back(std::move(record));
      }
      MergedRecords merged = merge(ranks);
      universal::Manifest manifest = save->manifest;
      if (manifest.run) manifest.run->generation = 1;  // each leader fills in its own
      CKPT_TRY(universal::Seal seal,
               universal::seal(std::move(manifest), std::move(merged.files), std::move(merged.leaves)));
      return packed({std::move(seal.manifest), std::move(seal.sums), statistics_text(ranks)});
    });
    if (sealed) save->sealed = std::move(*sealed);
  }
  CKPT_CHECK(comm_.broadcast(save->sealed, deadline()));
  if (save->sealed.empty()) {
    settle(save, fail(Errc::internal, "rank 0 could not seal it"));
  } else if (leads()) {
    publish_later(save, {});
  } else {
    save->sealed.clear();
  }
  return {};
}

/// On a leader's committer.
Result<std::string> Saver::publish_sealed(Io& io, PendingSave& save) {
  CKPT_TRY(std::vector<std::string> texts, unpacked(save.sealed));
  if (texts.size() != 3) return fail(Errc::internal, "rank 0 told of the checkpoint in an unknown way");
  CKPT_TRY(universal::Manifest manifest, universal::parse_manifest(texts[0]));
  CKPT_TRY(universal::Sums sums, universal::parse_sums(std::as_bytes(std::span(texts[1]))));
  save.sealed.clear();
  return publish_save(io, *save.publication,
                      {.run_directory = home(),
                       .step = save.step,
                       .manifest = std::move(manifest),
                       .files = std::move(sums.files),
                       .leaves = std::move(sums.leaves),
                       .statistics = std::move(texts[2]),
                       .least_generation = drainer_->least_generation()});
}

/// This node's part of a checkpoint that another node could not publish.
void Saver::take_back(const std::shared_ptr<PendingSave>& save) {
  committer_->add([this, save](Io& io) {
    const auto name = find_committed(io, home(), save->step, save->id());
    if (name && *name) static_cast<void>(remove_published(io, join_path(home(), **name), save->id().hex()));
  });
}

/// A leader's part of a drain, on the drainer's thread: see drain_part.
Result<std::string> Saver::copy_part(Io& io, BufferPool& pool, const PendingSave& save, const DrainOptions& options,
                                     const std::atomic<bool>& stop) {
  CKPT_TRY(std::string copied, drain_part(io, pool, save.step, save.id(), options, stop));
  if (save.drain_job) copied.resize(save.drain_job->file_count(), '0');
  return copied;
}

/// Whether this rank has something to do in the current step of a drain.
bool Saver::takes_part(const PendingSave& save) const {
  return several_nodes_ && save.drain_step == kCopyStep ? leads() : comm_.rank() == save.drain_leader;
}

void Saver::start_step(const std::shared_ptr<PendingSave>& save) {
  save->begin_drain_step();
  if (!takes_part(*save)) return;
  const unsigned step = save->drain_step;
  drainer_->add_step(
      [save, step](Io& io, BufferPool& pool, const DrainOptions& options, const std::atomic<bool>& stop) {
        const auto start = std::chrono::steady_clock::now();
        auto done = caught([&]() -> Result<std::string> {
          if (step == kCopyStep) return copy_part(io, pool, *save, options, stop);
          if (step == kLastStep) return save->drain_job->publish(io);
          CKPT_TRY(save->drain_job, DrainInSteps::begin(io, save->step, save->id(), options));
          return std::string();
        });
        if (step == kLastStep) save->drain_job.reset();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        save->finish_draining(std::move(done), save->times().drain_s + seconds);
      });
}

/// All ranks have done a step of a drain well. False: it was the last. Collective.
Result<bool> Saver::next_step(const std::shared_ptr<PendingSave>& save) {
  if (save->drain_step == kLastStep) {
    if (drainer_) drainer_->add_retire();
    return false;
  }
  if (save->drain_step == kCopyStep) {
    std::string copied;
    if (leads()) {
      const std::lock_guard held(save->mutex_);
      copied = **save->drain_;
    }
    CKPT_TRY(const std::vector<std::string> all, comm_.gather(copied, deadline()));
    CKPT_CHECK(agree(comm_, deadline(), none_lacking(all)));
  }
  ++save->drain_step;
  start_step(save);
  return true;
}

/// Removes the partial in the run's directory, on the thread that alone touches it.
void Saver::drop_drain(const std::shared_ptr<PendingSave>& save) {
  if (!drainer_) return;
  drainer_->add_step(
      [save](Io&, BufferPool&, const DrainOptions&, const std::atomic<bool>&) { save->drain_job.reset(); });
}

}  // namespace ckpt
