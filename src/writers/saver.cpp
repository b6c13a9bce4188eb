#include "writers/saver.hpp"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/io/exceptions_to_result.hpp"
#include "engine/run/run.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/replica_check.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

Hash128 random_id() {
  std::random_device device;  // the system's: ranks of two jobs may start in the same instant
  Hash128 id;
  for (std::uint8_t& byte : id.bytes) byte = static_cast<std::uint8_t>(device());
  return id;
}

std::string now_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return universal::utc_text(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

struct Saver::Begun {
  Description description{};
  std::shared_ptr<SaveJob> save{};
  std::vector<Piece> pieces{};
  Result<> outcome{};                       // the first failure of `add`
  std::unordered_set<std::string> given{};  // tensors of the model
};

Saver::Saver(Comm& comm, Options options)
    : comm_(comm),
      options_(std::move(options)),
      reports_(options_.log, options_.log_failure),
      rounds_(comm, options_.patience, round_actions()) {}

Saver::~Saver() {
  if (!commits_) return;  // opening has failed
  drop_begun();
  flusher_->finish();  // with one rank, this starts the commits
  if (!alone()) {
    commits_->give_up({.code = Errc::interrupted, .message = "the run was closed before all ranks had agreed"});
  }
  committer_->finish();
  if (alone()) poll();
  drains_->close();
}

void Saver::set_model(Model model) {
  model_ = std::move(model);
  table_.reset();
}

Result<> Saver::begin(Description description, const std::function<Result<>(Description&)>& prepare) {
  drop_begun();
  // A trainer that only saves calls nothing else.
  if (alone()) {
    poll();
  } else {
    CKPT_CHECK(commits_->in_flight().empty() ? finish_round() : rounds_.settle());
  }
  rounds_.drop_due();  // this is the save that was due
  const std::uint64_t step = description.step;
  auto save = std::make_shared<SaveJob>(comm_.is_root() ? random_id() : Hash128());
  save->step = step;
  const auto give_up = [&](Error error) -> Result<> {
    committer_->drop_unused(save);
    return fail(rounds_.lose(std::move(error)));
  };
  std::uint64_t words[2] = {step, ~step};
  if (auto sent = comm_.max(words, deadline()); !sent) return give_up(std::move(sent).error());
  if (words[0] != ~words[1]) {
    return give_up({.code = Errc::usage,
                    .message = fmt::format("the ranks disagree on the step: {} here, {} elsewhere", step,
                                           words[0] == step ? ~words[1] : words[0])});
  }
  if (step > CheckpointName::kGreatest) {
    return give_up(
        {.code = Errc::usage, .message = fmt::format("step {}: greater than {}", step, CheckpointName::kGreatest)});
  }
  // The committer may still be working on the previous save, and the disk may stall.
  std::function<Result<>()> work;
  if (prepare || comm_.is_root()) {
    work = [&]() -> Result<> {
      if (prepare) CKPT_CHECK(prepare(description));
      return comm_.is_root() ? committer_->begin(*save) : Result<>();
    };
  }
  auto begun = agree_after(comm_, options_.patience, work);
  if (!begun) return give_up(std::move(begun).error());
  std::string text = save->id().hex() + save->root;
  if (auto sent = comm_.broadcast(text, deadline()); !sent) return give_up(std::move(sent).error());
  constexpr std::size_t kIdDigits = 32;
  const auto sent_id = Hash128::from_hex(std::string_view(text).substr(0, kIdDigits));
  if (!sent_id) return give_up({.code = Errc::internal, .message = "rank 0 sent no id"});

  if (!comm_.is_root()) save = std::make_shared<SaveJob>(*sent_id);
  save->step = step;
  save->tiered = tiered();
  save->root = text.substr(kIdDigits);
  begun_ = std::make_unique<Begun>();
  begun_->description = std::move(description);
  begun_->save = save;
  if (!nodes_.several) return {};
  auto elsewhere = begin_elsewhere(*save);
  if (!elsewhere) drop_begun();
  return elsewhere;
}

/// The partials of the other nodes. Collective.
Result<> Saver::begin_elsewhere(SaveJob& save) {
  save.root = partial_path(join_path(home(), step_text(save.step)), save.id().hex());
  std::function<Result<>()> work;
  if (leads() && !comm_.is_root()) work = [&] { return committer_->begin(save); };
  auto begun = agree_after(comm_, options_.patience, work);
  return begun ? Result<>() : fail(rounds_.lose(std::move(begun).error()));
}

Result<> Saver::add(Piece piece) {
  if (!begun_) return fail(Errc::usage, "add: no save was begun");
  auto fits =
      exceptions_to_result([&] { return check_piece(piece, model_, static_cast<std::uint64_t>(comm_.rank())); });
  if (fits && !piece.described && !begun_->given.insert(piece.name).second) {
    fits = fail({.code = Errc::usage, .message = fmt::format("{}: added twice", piece.name), .tensor = piece.name});
  }
  if (!fits) {
    refuse(fits.error());
    return fits;
  }
  begun_->pieces.push_back(std::move(piece));
  return {};
}

void Saver::refuse(Error error) {
  if (begun_ && begun_->outcome) begun_->outcome = fail(std::move(error));
}

void Saver::describe(std::vector<std::pair<std::string, std::string>> user) {
  if (begun_) begun_->description.meta.user = std::move(user);
}

void Saver::drop_begun() {
  if (!begun_) return;
  committer_->drop_unused(begun_->save);
  begun_.reset();
}

Result<std::shared_ptr<PendingSave>> Saver::commit() {
  if (!begun_) return fail(Errc::usage, "no save was begun");
  const auto start = Clock::now();
  if (auto settled = finish_round(); !settled) {
    drop_begun();
    return fail(std::move(settled).error());
  }
  const std::shared_ptr<SaveJob> save = begun_->save;
  auto table =
      agree_on_table(comm_, deadline(), model_, begun_->pieces, std::move(begun_->outcome), table_, table_hash_);
  if (!table) {
    drop_begun();
    return fail(rounds_.lose(std::move(table).error()));
  }
  table_ = *table;
  const std::unique_ptr<Begun> begun = std::move(begun_);
  fill_manifest(*save, begun->description);

  auto prepared = exceptions_to_result([&]() -> Result<> {
    CKPT_TRY(save->files, lay_out_save(*table_, begun->pieces, save->id(), static_cast<std::uint32_t>(comm_.rank())));
    save->records = save->files->records;
    CKPT_TRY(Plan plan, Plan::make(save->files->source, std::move(save->files->targets)));
    save->plan = std::make_unique<Plan>(std::move(plan));
    save->staging = std::make_unique<Staging>(*save->plan, save->files->memory, *pool_);
    return {};
  });
  const std::chrono::duration<double> planned = Clock::now() - start;
  // Each leaf takes a buffer, however short it is: the number of bytes does not show whether the save fits.
  const std::uint64_t leaves = prepared ? save->plan->totals().leaves : 0;
  const std::uint64_t room = pool_->buffer_count();
  const bool fits = leaves <= room;
  auto waits = some_rank_waits(!fits || !commits_->in_flight().empty(), prepared, begun->pieces);
  if (!waits) {
    committer_->drop_unused(save);
    return fail(rounds_.lose(std::move(waits).error()));
  }
  commits_->add(save);
  save->planned(planned.count(), save->files->bytes);
  if (!fits) {
    reports_.log(fmt::format(
        "step {}: {} bytes to save in {} pieces, but staging memory holds {}: commit waits until {} are written",
        save->step, save->files->bytes, leaves, room, leaves - room));
  }
  if (!*waits) {
    flusher_->stage(save, !fits);
  } else if (auto staged = flusher_->stage_with_others(comm_, options_.patience, save, !fits); !staged) {
    return fail(rounds_.lose(std::move(staged).error()));
  }
  return save;
}

/// Whether staging may take longer than a copy on any rank; if one cannot save its part, or its replicas differ, all
/// fail. Collective.
Result<bool> Saver::some_rank_waits(bool here, const Result<>& prepared, std::span<const Piece> pieces) {
  if (alone()) return prepared.map([] { return false; });
  ReplicaCheck replicas(model_, *table_, pieces);
  if (replicas.is_needed()) {
    CKPT_CHECK(agree_after(comm_, options_.patience, [&]() -> Result<> {
      return prepared ? replicas.hash(*pool_, options_.copy_threads) : Result<>();
    }));
  }
  std::vector<std::uint64_t> words = replicas.words();
  words.insert(words.end(), {here ? 1U : 0U, prepared ? 0U : 1U});
  CKPT_CHECK(comm_.max(words, deadline()));
  const std::size_t own = words.size() - 2;
  if (words[own + 1] != 0) CKPT_CHECK(agree(comm_, deadline(), prepared));
  CKPT_CHECK(replicas.judge(comm_, deadline(), std::span(words).first(own)));
  return words[own] != 0;
}

void Saver::fill_manifest(SaveJob& save, const Description& description) const {
  universal::Manifest& manifest = save.manifest;
  manifest.id = save.id();
  manifest.created = now_text();
  manifest.generator = options_.generator;
  manifest.run = description.run;
  manifest.meta = description.meta;
  manifest.meta.step = description.step;
  manifest.meta.world_size = static_cast<std::uint64_t>(comm_.ranks());
  if (!comm_.is_root()) return;
  manifest.layouts = table_->layouts;
  manifest.tensors = table_->rows;
}

}  // namespace ckpt
