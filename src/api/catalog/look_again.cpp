#include "api/catalog/look_again.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "api/catalog/lacking_files.hpp"
#include "api/catalog/store_catalog.hpp"
#include "engine/io/exceptions_to_result.hpp"

namespace ckpt {
namespace {

using catalog::Entry;
using catalog::State;

constexpr std::size_t kLeastEach = 64;                           // a thread and its Io cost as much as several checks
constexpr std::uint64_t kLeastMemory = std::uint64_t{64} << 20;  // of a thread, for metadata

bool is_same_entry(const Entry& seen, const Entry& known) {
  const catalog::Checkpoint& a = seen.checkpoint;
  const catalog::Checkpoint& b = known.checkpoint;
  return a.id == b.id && a.state == b.state && a.tags == b.tags && same_metrics(a, b) && a.series == b.series &&
         a.series_from == b.series_from && a.series_after == b.series_after && a.created == b.created &&
         seen.revision == known.revision && seen.directory == known.directory;
}

RecheckedCheckpoint look_at(Session& session, const std::string& store, const Entry& known) {
  RecheckedCheckpoint out;
  const auto place = place_of(session.io, store, known);
  auto seen = place && *place ? catalog::read_entry(session.io, store, **place) : std::nullopt;
  out.is_same = seen && is_same_entry(*seen, known);
  if (!out.is_same) {
    out.reason = "changed since it was listed";
    out.now = std::move(seen);
    return out;
  }
  const std::string path = known.path(store);
  // Its name shows the format: no other is tried.
  const auto report = verify(session, {.path = path, .from = known.foreign ? "" : "ckpt", .quick = true});
  out.state = known.checkpoint.state;
  if (report && report->ok && known.foreign && !known.checkpoint.link) out.reason = lacks_text(session.io, path);
  if (!out.reason.empty()) out.state = State::uncommitted;  // perhaps its save never ended: that is no damage
  if (report && report->ok) return out;
  const bool mendable = report && !known.foreign && catalog::is_repairable(session.io, path);
  out.state = !report ? State::unreadable : mendable ? State::repairable : State::corrupt;
  out.reason = "damaged";
  if (!report) out.reason = report.error().message;
  if (report && !report->damage.empty()) out.reason = report->damage.front().text;
  return out;
}

}  // namespace

Result<std::optional<catalog::EntryPlace>> place_of(Io& io, const std::string& store, const Entry& entry) {
  const std::string& run = entry.checkpoint.run;
  if (!entry.foreign) return catalog::EntryPlace{.run = run, .name = entry.name};
  // Other files of the run refer to it.
  CKPT_TRY(const auto folder, catalog::list_folder(io, store, run, other_tools()));
  if (!folder) return std::nullopt;
  for (const catalog::EntryPlace& place : folder->places) {
    if (place.name == entry.name && place.foreign) return place;
  }
  return std::nullopt;
}

bool same_metrics(const catalog::Checkpoint& a, const catalog::Checkpoint& b) {
  return std::equal(a.metrics.begin(), a.metrics.end(), b.metrics.begin(), b.metrics.end(),
                    [](const auto& x, const auto& y) {
                      const bool no_numbers = std::isnan(x.second) && std::isnan(y.second);
                      return x.first == y.first && (x.second == y.second || no_numbers);
                    });
}

Result<std::vector<RecheckedCheckpoint>> look_again(Session& session, const std::string& store,
                                                    const std::vector<const Entry*>& known) {
  std::vector<RecheckedCheckpoint> out(known.size());
  std::atomic<std::size_t> next{0};
  const auto look = [&](Session& own) -> Result<> {
    for (std::size_t i = next++; i < known.size() && !own.is_stopped(); i = next++) {
      out[i].reason = "could not be checked";  // unless this ends
      out[i] = look_at(own, store, *known[i]);
    }
    return {};
  };
  const std::uint64_t threads = std::max<std::uint64_t>(
      std::min<std::uint64_t>({session.threads, known.size() / kLeastEach, session.memory_bytes / kLeastMemory}), 1);
  Session share = session;
  share.memory_bytes = session.memory_bytes / threads;
  // If a thread fails or cannot be started, the others do the rest.
  const auto help = [&] {
    static_cast<void>(exceptions_to_result([&]() -> Result<> {
      CKPT_TRY(const auto io, session.io.new_instance());
      const auto alone = Comm::solo();
      Session own{.io = *io, .comm = *alone, .memory_bytes = share.memory_bytes, .stop = session.stop};
      return look(own);
    }));
  };
  std::vector<std::jthread> helpers;
  static_cast<void>(exceptions_to_result([&]() -> Result<> {
    for (std::uint64_t n = 1; n < threads; ++n) helpers.emplace_back(help);
    return {};
  }));
  static_cast<void>(look(share));
  helpers.clear();
  // The check that was interrupted proves nothing.
  if (session.is_stopped()) return fail(Errc::interrupted, store + ": stopped");
  return out;
}

}  // namespace ckpt
