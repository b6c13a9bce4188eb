#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/c/c_handles.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/ledger.hpp"
#include "format/universal/rng_streams.hpp"

struct ckpt_position {
  ckpt::ledger::Ledger ledger{};
};

namespace ckpt::c {
namespace {

/// A blob of the loaded checkpoint; nothing if it has none.
Result<std::optional<std::string>> loaded_blob(const Checkpoint& checkpoint, Io& io, const std::string& name,
                                               std::uint64_t most_bytes) {
  const Tensor* found = checkpoint.find(name);
  if (found == nullptr) return std::nullopt;
  if (found->dtype != Dtype::u8 || found->shape.size() != 1 || found->shape[0] > most_bytes)
    return fail(Errc::corrupt,
                fmt::format("{}: {}: not a blob of at most {} bytes", checkpoint.path(), name, most_bytes));
  std::string out(static_cast<std::size_t>(found->shape[0]), '\0');
  if (out.empty()) return out;
  CKPT_TRY(const auto pool, BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = 2}));
  const NamedRead read{.name = name, .out = reinterpret_cast<std::byte*>(out.data()), .bytes = out.size()};
  CKPT_CHECK(checkpoint.read(std::span(&read, 1), io, *pool, {.whole_leaves = true}));
  return out;
}

struct Loaded {
  std::unique_ptr<Io> io{};
  std::unique_ptr<Checkpoint> checkpoint{};  // last: its lease is one of the Io's
};

Result<Loaded> loaded_by(ckpt_run* run) {
  CKPT_CHECK(need(run, "the run"));
  CKPT_CHECK(run->owner.check());
  Loaded out;
  CKPT_TRY(out.io, run->opened->run->io().new_instance());
  CKPT_TRY(out.checkpoint, run->opened->run->loaded_checkpoint(*out.io));
  return out;
}

/// "dp=3,tp=0"
Result<std::map<std::string, std::uint64_t>> coordinates_of(const char* given) {
  std::map<std::string, std::uint64_t> out;
  const std::string_view text = given == nullptr ? "" : given;
  const auto refused = [&] { return fail(Errc::usage, fmt::format("stream: '{}' is not AXIS=N,AXIS=N", text)); };
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) return refused();
    const auto value = parse_number<std::uint64_t>(pair.substr(equals + 1));
    if (!value || !out.emplace(pair.substr(0, equals), *value).second) return refused();
  }
  return out;
}

struct Wanted {
  ckpt_stream given{};
  rng::Identity identity{};
};

Result<Wanted> wanted_stream(const ckpt_stream* stream) {
  Wanted out;
  CKPT_TRY(out.given, read_sized(stream, offsetof(ckpt_stream, bytes) + sizeof(uint64_t), "the stream"));
  CKPT_CHECK(need(out.given.name, "the stream's name"));
  CKPT_CHECK(need(out.given.algorithm, "the stream's algorithm"));
  if (out.given.bytes != 0) CKPT_CHECK(need(out.given.state, "the stream's state"));
  out.identity.stream = out.given.name;
  CKPT_TRY(out.identity.coords, coordinates_of(out.given.coordinates));
  return out;
}

int add_own_blob(ckpt_save* save, const std::string& name, std::string bytes) {
  const std::string& mine = save->blobs.emplace_back(std::move(bytes));
  return ckpt_add_blob(save, name.c_str(), mine.data(), mine.size());
}

}  // namespace
}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::guarded;
using ckpt::c::need;

int ckpt_position_begin(const ckpt_epoch* epoch, ckpt_position** position) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(const ckpt_epoch given,
             ckpt::c::read_sized(epoch, offsetof(ckpt_epoch, shard_count) + sizeof(uint64_t), "the epoch"));
    CKPT_CHECK(need(position, "the output pointer for the position"));
    auto made = std::make_unique<ckpt_position>();
    if (given.shards == nullptr) {
      CKPT_TRY(made->ledger,
               ckpt::ledger::begin_global(given.epoch, given.seed, given.samples, given.global_batch, given.world));
    } else {
      std::vector<ckpt::ledger::Shard> shards;
      for (std::uint64_t i = 0; i < given.shard_count; ++i) {
        CKPT_CHECK(need(given.shards[i].name, "a shard's name"));
        shards.push_back({.name = given.shards[i].name, .samples = given.shards[i].samples});
      }
      CKPT_TRY(made->ledger, ckpt::ledger::begin_sharded(given.epoch, given.seed, std::move(shards), given.global_batch,
                                                         given.world));
    }
    *position = made.release();
    return {};
  });
}

void ckpt_position_free(ckpt_position* position) {
  delete position;
}

int ckpt_position_share(const ckpt_position* position, uint64_t rank, uint64_t step, ckpt_range* ranges,
                        uint64_t* count) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(position, "the position"));
    CKPT_CHECK(need(count, "the output pointer for the count"));
    if (*count != 0) CKPT_CHECK(need(ranges, "the output pointer for the ranges"));
    if (rank >= position->ledger.world)
      return ckpt::fail(ckpt::Errc::usage, fmt::format("position: rank {} of {}", rank, position->ledger.world));
    const auto share = ckpt::ledger::share_of(position->ledger, rank, step);
    for (std::size_t i = 0; i < share.size() && i < *count; ++i)
      ranges[i] = {share[i].shard, share[i].begin, share[i].end};
    *count = share.size();
    return {};
  });
}

int ckpt_position_advance(ckpt_position* position, uint64_t steps) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(position, "the position"));
    position->ledger = ckpt::ledger::advance(std::move(position->ledger), steps);
    return {};
  });
}

int ckpt_position_get(const ckpt_position* position, ckpt_position_state* state) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(position, "the position"));
    CKPT_CHECK(need(state, "the output pointer for the state"));
    CKPT_CHECK(ckpt::c::check_sized(state, offsetof(ckpt_position_state, steps_left) + sizeof(uint64_t), "the state"));
    const ckpt::ledger::Ledger& now = position->ledger;
    const ckpt_position_state all{.size = state->size,
                                  .epoch = now.epoch,
                                  .seed = now.seed,
                                  .samples = now.samples,
                                  .consumed = now.consumed,
                                  .global_batch = now.global_batch,
                                  .world = now.world,
                                  .steps_left = ckpt::ledger::steps_left(now)};
    std::memcpy(state, &all, std::min<std::size_t>(state->size, sizeof all));
    return {};
  });
}

int ckpt_add_position(ckpt_save* save, const ckpt_position* position) {
  if (save == nullptr || position == nullptr)
    return guarded([&]() -> Result<> { return need(nullptr, save == nullptr ? "the save" : "the position"); });
  return ckpt::c::add_own_blob(save, std::string(ckpt::ledger::kLedgerBlob), ckpt::ledger::build(position->ledger));
}

int ckpt_restore_position(ckpt_run* run, uint64_t world, ckpt_position** position) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(position, "the output pointer for the position"));
    CKPT_TRY(const ckpt::c::Loaded loaded, ckpt::c::loaded_by(run));
    const std::string name(ckpt::ledger::kLedgerBlob);
    CKPT_TRY(const auto text,
             ckpt::c::loaded_blob(*loaded.checkpoint, *loaded.io, name, ckpt::ledger::kMaxLedgerBytes));
    if (!text)
      return ckpt::fail(ckpt::Errc::not_found, loaded.checkpoint->path() + ": no position in the data is stored");
    auto made = std::make_unique<ckpt_position>();
    CKPT_TRY(made->ledger, ckpt::ledger::parse(*text));
    CKPT_TRY(made->ledger, ckpt::ledger::remap(made->ledger, world));
    *position = made.release();
    return {};
  });
}

int ckpt_add_stream(ckpt_save* save, const ckpt_stream* stream) {
  std::string name;
  std::string text;
  const int code = guarded([&]() -> Result<> {
    CKPT_CHECK(need(save, "the save"));
    CKPT_TRY(const auto wanted, ckpt::c::wanted_stream(stream));
    if (wanted.given.bytes > ckpt::rng::kMaxStateBytes)
      return ckpt::fail(ckpt::Errc::usage, fmt::format("stream: a state of {} bytes", wanted.given.bytes));
    CKPT_TRY(text, ckpt::rng::build({.identity = wanted.identity,
                                     .algorithm = wanted.given.algorithm,
                                     .state = std::string(static_cast<const char*>(wanted.given.state),
                                                          static_cast<std::size_t>(wanted.given.bytes))}));
    name = ckpt::rng::blob_name(wanted.identity);
    return {};
  });
  return code != 0 ? code : ckpt::c::add_own_blob(save, name, std::move(text));
}

int ckpt_restore_stream(ckpt_run* run, const ckpt_stream* stream, uint64_t seed, uint64_t* bytes, int* restored) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(bytes, "the output pointer for the size"));
    CKPT_CHECK(need(restored, "the output pointer for the answer"));
    CKPT_TRY(const auto wanted, ckpt::c::wanted_stream(stream));
    CKPT_TRY(const ckpt::c::Loaded loaded, ckpt::c::loaded_by(run));
    const std::uint64_t most = 2 * ckpt::rng::kMaxStateBytes + 16 * ckpt::rng::kMaxNameBytes;  // hexadecimal, and names
    CKPT_TRY(const auto text,
             ckpt::c::loaded_blob(*loaded.checkpoint, *loaded.io, ckpt::rng::blob_name(wanted.identity), most));
    std::vector<ckpt::rng::Stream> stored;
    if (text) {
      CKPT_TRY(ckpt::rng::Stream found, ckpt::rng::parse(*text));
      stored.push_back(std::move(found));
    }
    const ckpt::rng::Wanted asked{.identity = wanted.identity, .algorithm = wanted.given.algorithm};
    const auto source = ckpt::rng::resolve(stored, std::span(&asked, 1), seed, loaded.checkpoint->step()).front();
    std::string state;
    if (source.stored) {
      state = stored[*source.stored].state;
    } else {
      state.assign(source.seed.bytes.begin(), source.seed.bytes.end());
    }
    if (wanted.given.bytes < state.size())
      return ckpt::fail(ckpt::Errc::usage, fmt::format("stream: {}: its state has {} bytes, not {}", wanted.given.name,
                                                       state.size(), wanted.given.bytes));
    if (!state.empty()) std::memcpy(wanted.given.state, state.data(), state.size());
    *bytes = state.size();
    *restored = source.stored ? 1 : 0;
    return {};
  });
}
