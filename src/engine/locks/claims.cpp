#include "engine/locks/claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "engine/io/replace_file.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/hash.hpp"

namespace ckpt {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kMostCounterBytes = 64;
constexpr std::uint64_t kMostSeenBytes = std::uint64_t{16} << 20;
constexpr std::uint32_t kMostOfOneProcess = 10'000;
constexpr unsigned kDeepest = 8;  // STORE/.ckpt/trash/, and a run four directories deep
constexpr std::string_view kReady = "ready";
constexpr std::string_view kPartialSeen = "partial-";
constexpr auto kForget = std::chrono::hours(24 * 7);
constexpr std::string_view kSeenTitle = "ckpt.seen/1";

std::string counter_text(std::uint64_t counter) {
  return fmt::format("{:020}\n", counter);
}

Result<> write_counter(Io& io, const std::string& path, OpenOptions::Mode mode, std::uint64_t counter) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = mode}));
  const std::string text = counter_text(counter);
  auto written = io.write_at(file, 0, std::as_bytes(std::span(text)));
  if (written) written = io.sync(file);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

/// When the value of a claim was first seen; "" is the key of the directory.
struct Seen {
  std::uint64_t what = 0;
  nanoseconds since{};
  bool operator==(const Seen&) const = default;
};
using AllSeen = std::map<std::string, Seen>;

std::string seen_path(const std::string& directory, const Host& host) {
  const std::string clock = host.clock_id();
  return clock.empty() ? clock : join_path(directory, "seen-" + clock);
}

/// An unreadable entry was not seen. A time in the future belongs to another clock.
AllSeen read_seen(Io& io, const std::string& path, nanoseconds now) {
  AllSeen out;
  if (path.empty()) return out;
  const auto text = read_small_file(io, path, kMostSeenBytes);
  if (!text) return out;
  std::istringstream lines(*text);
  std::string line;
  if (!std::getline(lines, line) || line != kSeenTitle) return out;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Seen seen;
    std::int64_t since = 0;
    std::string name;
    if (!(words >> seen.what >> since)) continue;
    words >> name;
    seen.since = nanoseconds(since);
    if (since >= 0 && seen.since <= now) out.insert_or_assign(name, seen);
  }
  return out;
}

std::string seen_text(const AllSeen& all) {
  std::string out = std::string(kSeenTitle) + "\n";
  for (const auto& [name, seen] : all) out += fmt::format("{} {} {}\n", seen.what, seen.since.count(), name);
  return out;
}

/// A change of one's own: after it no listing is from memory.
Result<> touch_directory(Io& io, const std::string& directory) {
  const ProcessId self = io.host().self();
  const std::string path = join_path(directory, fmt::format("look-{}-{}-{}", self.boot, self.pid_namespace, self.pid));
  auto file = io.open(path, {.mode = OpenOptions::Mode::write_new});
  if (file) {
    CKPT_CHECK(io.close(*file));
  } else if (file.error().code != Errc::target_exists) {
    return fail(std::move(file).error());
  }
  auto gone = io.unlink(path);
  if (!gone && gone.error().code != Errc::not_found) return gone;
  return {};
}

/// The content of a claim, only to be compared; nothing if it no longer exists. `readable`: false if it cannot be read.
std::optional<std::uint64_t> said_by(Io& io, const std::string& path, bool& readable) {
  const auto text = read_small_file(io, path, kMostCounterBytes);
  readable = true;
  if (text) return hash64(*text);
  if (text.error().code == Errc::not_found) return std::nullopt;
  readable = text.error().code == Errc::corrupt;  // too long, or shorter than it was: no claim is
  return 0;
}

/// A network's attributes may be from memory, but of a file that is opened the server is asked.
Result<FileInfo> info_now(Io& io, const std::string& path) {
  const auto file = io.open(path, {.mode = OpenOptions::Mode::read});
  if (!file) return io.stat(path);  // a directory, or not ours to read
  auto info = io.info(*file);
  static_cast<void>(io.close(*file));
  return info;
}

/// Hash of the names, sizes and times of a file, or of a tree.
Result<std::uint64_t> look_of(Io& io, const std::string& path) {
  Hasher hasher;
  std::vector<std::string> pending{path};
  while (!pending.empty()) {
    const std::string at = std::move(pending.back());
    pending.pop_back();
    CKPT_TRY(const FileInfo info, info_now(io, at));
    hasher.update(at);
    hasher.update_u64(info.bytes);
    hasher.update_u64(static_cast<std::uint64_t>(info.mtime_ns));
    if (info.kind != FileInfo::Kind::directory) continue;
    CKPT_TRY(const auto entries, io.list(at));
    for (const DirEntry& entry : entries) {
      hasher.update(entry.name);
      if (!entry.is_link) pending.push_back(join_path(at, entry.name));
    }
  }
  return hash64(hasher.digest().hex());
}

/// Judges every claim by what was seen before; updates `seen`.
Result<Claims> judge(Io& io, const std::string& directory, AllSeen& seen) {
  CKPT_TRY(const auto entries, io.list(directory));
  const nanoseconds now = io.host().monotonic();
  const bool remembers = !io.host().clock_id().empty();
  Claims out;
  AllSeen next;
  for (const auto& [name, kept] : seen) {
    if (name.starts_with(kPartialSeen) && now - kept.since < kForget) next.emplace(name, kept);
  }
  const auto watched = [&](const std::string& name, std::uint64_t what) {
    const auto before = seen.find(name);
    const Seen kept = before != seen.end() && before->second.what == what ? before->second : Seen{what, now};
    next.insert_or_assign(name, kept);
    return remembers ? now - kept.since : nanoseconds(0);
  };
  for (const DirEntry& entry : entries) {
    if (entry.name == kReady) out.ready = true;
    auto name = ClaimName::parse(entry.name);
    if (!name || entry.is_link || entry.kind != FileInfo::Kind::file) continue;
    FoundClaim claim{.path = join_path(directory, entry.name), .name = *std::move(name)};
    if (const auto running = io.host().is_running(claim.name.maker)) {
      claim.state = *running ? FoundClaim::State::lives : FoundClaim::State::dead;
      out.found.push_back(std::move(claim));
      continue;
    }
    bool readable = true;
    const auto said = said_by(io, claim.path, readable);
    if (!said) continue;
    if (readable) {
      claim.watched = watched(entry.name, *said);
      const bool silent = claim.watched > nanoseconds(0);
      if (silent) claim.state = FoundClaim::State::silent;
      if (claim.watched >= kClaimSilence) claim.state = FoundClaim::State::dead;
    }
    out.found.push_back(std::move(claim));
  }
  if (!out.ready) out.ready = watched("", 0) >= kClaimSilence;
  seen = std::move(next);
  return out;
}

}  // namespace

namespace {

std::string store_of(const std::string& claim) {
  return parent_path(parent_path(parent_path(claim)));
}

}  // namespace

std::string claims_path(std::string_view store) {
  return join_path(join_path(store, kStoreDirectory), kClaimsDirectory);
}

std::vector<std::string> stores_above(Io& io, const std::string& path) {
  std::vector<std::string> out;
  std::string at = parent_path(path);
  for (unsigned depth = 0; depth < kDeepest; ++depth) {
    const auto info = io.stat(join_path(at, kStoreDirectory));
    if (info && info->kind == FileInfo::Kind::directory) out.push_back(at);
    if (parent_path(at) == at) break;
    at = parent_path(at);
  }
  return out;
}

std::string place_key(std::string_view store, std::string_view path) {
  std::string_view below = path;
  if (below.starts_with(store)) below.remove_prefix(store.size());
  while (below.starts_with('/')) below.remove_prefix(1);
  Hasher hasher;
  hasher.update("ckpt.claim.place");
  hasher.update(below);
  return hasher.digest().hex();
}

std::string turn_key(std::string_view store) {
  return place_key(store, "the turn to delete");
}

Result<std::unique_ptr<ClaimFile>> ClaimFile::write(Io& io, const std::string& store, const std::string& key) {
  const std::string directory = claims_path(store);
  CKPT_TRY(const auto held, hold_store(io, store));
  CKPT_CHECK(make_directory(io, directory));
  ClaimName name{.key = key, .maker = io.host().self()};
  for (; name.number < kMostOfOneProcess; ++name.number) {
    std::string path = join_path(directory, name.text());
    auto written = write_counter(io, path, OpenOptions::Mode::write_new, 0);
    if (!written && written.error().code == Errc::target_exists) continue;  // another claim of this process
    if (written) written = io.sync_dir(directory);
    if (!written) {
      static_cast<void>(io.unlink(path));
      return fail(std::move(written).error());
    }
    std::unique_ptr<ClaimFile> out(new ClaimFile(io, std::move(path)));
    out->last_ = io.host().monotonic();
    io.add_heartbeat(*out);
    return out;
  }
  return fail(Errc::locked, directory + ": one process has too many");
}

ClaimFile::~ClaimFile() {
  io_.remove_heartbeat(*this);
  if (const auto held = hold_store(io_, store_of(path_))) static_cast<void>(io_.unlink(path_));
}

void ClaimFile::beat() {
  const nanoseconds now = io_.host().monotonic();
  if (now - last_ < kClaimBeat) return;
  last_ = now;
  ++counter_;
  const auto held = hold_store(io_, store_of(path_));
  if (!held) return;
  auto written = write_counter(io_, path_, OpenOptions::Mode::write_existing, counter_);
  if (!written && written.error().code == Errc::not_found)
    static_cast<void>(write_counter(io_, path_, OpenOptions::Mode::write_new, counter_));
}

const FoundClaim* Claims::holder(const std::vector<std::string>& keys, std::string_view but) const {
  const auto at = std::ranges::find_if(found, [&](const FoundClaim& claim) {
    return claim.state != FoundClaim::State::dead && claim.path != but &&
           std::ranges::find(keys, claim.name.key) != keys.end();
  });
  return at == found.end() ? nullptr : &*at;
}

Result<Claims> watch_claims(Io& io, const std::string& store, Dead dead) {
  const std::string directory = claims_path(store);
  CKPT_TRY(const auto held, hold_store(io, store));
  CKPT_CHECK(make_directory(io, directory));
  CKPT_CHECK(touch_directory(io, directory));
  const std::string memory = seen_path(directory, io.host());
  AllSeen seen = read_seen(io, memory, io.host().monotonic());
  const AllSeen before = seen;
  CKPT_TRY(Claims out, judge(io, directory, seen));
  for (const FoundClaim& claim : out.found) {
    if (claim.state != FoundClaim::State::dead || dead == Dead::left) continue;
    if (!io.unlink(claim.path)) continue;
    ++out.removed;
    seen.erase(claim.name.text());
  }
  const std::string ready = join_path(directory, kReady);
  if (out.ready && !io.stat(ready)) static_cast<void>(replace_file(io, ready, ""));
  // Forgotten, it only takes longer.
  if (!memory.empty() && seen != before) static_cast<void>(replace_file(io, memory, seen_text(seen)));
  return out;
}

Result<Claims> list_claims(Io& io, const std::string& store) {
  const std::string directory = claims_path(store);
  CKPT_TRY(const auto there, stat_if_present(io, directory));
  if (!there) return Claims{};
  AllSeen seen = read_seen(io, seen_path(directory, io.host()), io.host().monotonic());
  return judge(io, directory, seen);
}

Result<nanoseconds> watch_partial(Io& io, const std::string& store, const std::string& path) {
  const std::string directory = claims_path(store);
  CKPT_TRY(const auto held, hold_store(io, store));
  CKPT_CHECK(make_directory(io, directory));
  const std::string memory = seen_path(directory, io.host());
  if (memory.empty()) return nanoseconds(0);
  CKPT_TRY(const std::uint64_t what, look_of(io, path));
  const nanoseconds now = io.host().monotonic();
  AllSeen seen = read_seen(io, memory, now);
  Seen& mine = seen[std::string(kPartialSeen) + place_key(store, path)];
  if (mine.since != nanoseconds(0) && mine.what == what) return now - mine.since;
  mine = {.what = what, .since = now};
  CKPT_CHECK(replace_file(io, memory, seen_text(seen)));
  return nanoseconds(0);
}

}  // namespace ckpt
