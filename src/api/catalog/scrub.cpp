#include "api/catalog/scrub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_names.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/index/names.hpp"
#include "catalog/scan/lacks_files.hpp"
#include "catalog/scan/scan.hpp"
#include "convert/foreign_names.hpp"
#include "engine/io/real_path.hpp"
#include "engine/locks/lease.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/glob.hpp"
#include "format/text/nearest.hpp"
#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

using catalog::Entry;
using catalog::Mark;

constexpr std::size_t kMostText = 1000;

bool is_wanted(const ScrubRequest& request, const Entry& entry) {
  if (entry.checkpoint.link) return false;  // the target of a link is checked in its own place
  if (request.since && entry.checkpoint.created < *request.since) return false;
  return request.runs.empty() || std::ranges::any_of(request.runs, [&](const std::string& glob) {
           return matches_glob(entry.checkpoint.run, glob);
         });
}

/// A requested run that does not exist is an error, not an empty answer.
Result<> check_runs(Io& io, const ScrubRequest& request, const catalog::Catalog& catalog,
                    const std::vector<Entry>& entries) {
  std::vector<std::string> known;
  for (const Entry& entry : entries)
    if (known.empty() || known.back() != entry.checkpoint.run) known.push_back(entry.checkpoint.run);
  CKPT_CHECK(check_seen(catalog.refreshed().unread, request.runs, known));
  for (const std::string& glob : request.runs) {
    if (std::ranges::any_of(known, [&](const std::string& run) { return matches_glob(run, glob); })) continue;
    const auto near = nearest(glob, known);
    const auto below = hint_of_runs_below(io, request.store, glob, known);
    return fail({.code = Errc::not_found,
                 .message = fmt::format("{}: no checkpoint of a run '{}'", request.store, glob),
                 .file = request.store,
                 .hint = below  ? *below
                         : near ? fmt::format("did you mean '{}'?", *near)
                                : "'ckpt list' shows the checkpoints"});
  }
  return {};
}

/// A checkpoint that may be checked, and its place in the order.
struct Turn {
  Entry entry{};
  std::optional<catalog::Time> last{};
  std::uint64_t rank = 0;  ///< in its run, 0 = the newest
};

/// Never verified first, the newest of every run before the second newest of any, because a crash needs those. Then
/// least recently verified first. A time in the future, by a clock that was ahead, counts as never.
/// Single files come last: they hold no result.
bool comes_before(const Turn& a, const Turn& b) {
  if (a.entry.checkpoint.single_file != b.entry.checkpoint.single_file) return b.entry.checkpoint.single_file;
  if (a.last != b.last) return !a.last || (b.last && *a.last < *b.last);
  if (a.rank != b.rank) return a.rank < b.rank;
  return std::pair(a.entry.checkpoint.run, a.entry.name) < std::pair(b.entry.checkpoint.run, b.entry.name);
}

std::vector<Turn> turns_of(std::vector<Entry> entries, const ScrubRequest& request, catalog::Time now) {
  std::vector<Turn> out;
  std::map<std::string, std::uint64_t> ranks;
  for (Entry& entry : entries) {  // by run, the newest first
    if (!is_wanted(request, entry)) continue;
    Turn turn{.last = last_scrub(entry), .rank = ranks[entry.checkpoint.run]++};
    if (turn.last && *turn.last > now) turn.last.reset();
    turn.entry = std::move(entry);
    out.push_back(std::move(turn));
  }
  std::ranges::sort(out, comes_before);
  return out;
}

std::string mark_text(const std::string& text) {
  std::string out = text.substr(0, kMostText);
  while (!out.empty() && !is_utf8(out) && out.size() + 4 > kMostText) out.pop_back();  // cut inside a character
  if (is_utf8(out)) return out;
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

/// "leaf 3 of shards/x; 2 more"
std::string damage_text(const VerifyReport& report) {
  const Finding& first = report.damage.front();
  std::string out = first.text;
  if (!first.file.empty() && out.find(first.file) == std::string::npos) out = first.file + ": " + out;
  if (report.damage.size() > 1) out += fmt::format("; {} more", report.damage.size() - 1);
  return out;
}

/// A checkpoint may be moved, and is found by other paths: files are named from its directory.
std::string without_place(std::string text, const std::string& path) {
  for (const std::string& place : {join_path(path, "") + "/", join_path(path, "") + ": "})
    for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place, at))
      text.erase(at, place.size());
  return text;
}

ScrubVerdict verdict_of(Errc code) {
  switch (code) {
    case Errc::incomplete:
    case Errc::uncommitted:
      return ScrubVerdict::incomplete;
    case Errc::refused:
      return ScrubVerdict::damaged;
    case Errc::locked:
    case Errc::changed:
      return ScrubVerdict::busy;
    default:
      return ScrubVerdict::unread;
  }
}

class Scrubber {
 public:
  /// `verify`: how each is verified; without a path and a format, those of the catalog are taken.
  Scrubber(Session& session, const ScrubRequest& request, VerifyRequest verify)
      : session_(session), request_(request), verify_(std::move(verify)) {}

  /// errors  interrupted
  Result<ScrubItem> look(Turn turn) {
    ScrubItem out{.entry = std::move(turn.entry), .before = turn.last};
    out.path = out.entry.path(request_.store);
    // Held until the mark is durable, so that the checkpoint is not deleted in the meantime.
    const auto lease = Lease::take(session_.io, out.path, foreign_names());
    if (!lease) {
      explain(out, lease.error());
      return out;
    }
    VerifyRequest asked = verify_;
    asked.path = path_of(out);
    if (verify_.path.empty() && out.entry.foreign) asked.from = out.entry.format;
    auto report = verify(session_, asked);
    if (!report) {
      if (exit_code(report.error().code) >= exit_code(Errc::interrupted)) return fail(std::move(report).error());
      explain(out, report.error());
      return out;
    }
    out.verdict = report->damage.empty() ? ScrubVerdict::intact : ScrubVerdict::damaged;
    out.report = *std::move(report);
    const bool is_part = verify_.sample && out.verdict == ScrubVerdict::intact;
    // That one of another tool is intact is no reason to leave anything in its directory, unless marks are there.
    const bool is_guest = !verify_.path.empty() && out.entry.foreign && out.entry.marks_directory.inode == 0 &&
                          out.verdict == ScrubVerdict::intact;
    if (!verify_.quick && !is_part && !is_guest) record(out);
    return out;
  }

 private:
  /// By which its files are read: what the user gave, or its path in the store.
  const std::string& path_of(const ScrubItem& item) const { return verify_.path.empty() ? item.path : verify_.path; }

  void explain(ScrubItem& item, const Error& error) {
    item.verdict = verdict_of(error.code);
    item.error = error;
    const bool gone =
        error.code == Errc::not_found || error.code == Errc::changed || item.verdict == ScrubVerdict::incomplete;
    if (gone && !session_.io.stat(item.path)) item.verdict = ScrubVerdict::vanished;
    const bool is_bad = item.verdict == ScrubVerdict::incomplete || item.verdict == ScrubVerdict::damaged;
    if (!is_bad || verify_.quick || is_being_written(item.entry)) return;
    if (item.entry.checkpoint.is_virtual) return;  // files that it refers to may come back
    const bool lacks_files = item.verdict == ScrubVerdict::incomplete;
    write(item, {.kind = Mark::Kind::verified,
                 .text = (lacks_files ? std::string(catalog::kLacksFiles) : "") + error.message,
                 .owner = request_.by,
                 .at = request_.clock(),
                 .value = 0});
  }

  /// Another tool may still be writing: files that are missing now say nothing about the checkpoint.
  bool is_being_written(const Entry& entry) const {
    return entry.foreign && catalog::elapsed(entry.checkpoint.created, request_.clock()) < catalog::kForeignMinAge;
  }

  void record(ScrubItem& item) {
    const VerifyReport& report = *item.report;
    const bool all_compared = report.leaf_count + report.crc_checked > 0 && report.crc_unread == 0 &&
                              report.without_crc == 0 && report.referenced_files == 0;
    Mark mark{.kind = Mark::Kind::verified, .owner = request_.by, .at = request_.clock(), .value = 1};
    if (item.verdict == ScrubVerdict::damaged) {
      mark.value = 0;
      mark.text = damage_text(report);
    } else if (!all_compared) {
      mark.kind = Mark::Kind::note;
      mark.name = catalog::kScrubNote;
      mark.text = "not every byte has a checksum; checked: " + report.checked_by;
    } else {
      mark.text = report.checked_by;
    }
    write(item, std::move(mark));
  }

  void write(ScrubItem& item, Mark mark) {
    if (item.entry.checkpoint.single_file) return;  // it has no place for marks
    // The path that was read may be a link, and lead elsewhere by now.
    const auto read = session_.io.stat(path_of(item));
    const auto here = session_.io.stat(item.path);
    if (!read || !here || !read->is_same_file(*here)) {
      item.unrecorded_because = path_of(item) + ": another checkpoint has taken its place";
      return;
    }
    mark.text = mark_text(without_place(std::move(mark.text), path_of(item)));
    auto written = catalog::write_mark(session_.io, catalog::marks_path(item.path, item.entry.foreign), mark,
                                       catalog::Holding::lease, foreign_names());
    item.recorded = written.has_value();
    if (!written) item.unrecorded_because = written.error().message;
    const std::string word = fmt::format("verified {}", mark.at->time_since_epoch().count());
    drop_note(session_.io, catalog::run_path(request_.store, item.entry.checkpoint.run), item.entry.name, word);
  }

  Session& session_;
  const ScrubRequest& request_;
  const VerifyRequest verify_;
};

/// Reports progress as that of checkpoint `item` of `items`.
Session with_item(const Session& session, std::uint64_t item, std::uint64_t items, const std::string& label) {
  Session out = session;
  if (!session.progress) return out;
  out.progress = [&report = session.progress, item, items, label](Progress progress) {
    progress.item = item;
    progress.items = items;
    progress.name = label;
    report(progress);
  };
  return out;
}

/// The checkpoint at this path, if it is in a store or has marks already. Nothing of the store is read but its run.
struct InStore {
  std::string store;
  Entry entry;
};
std::optional<InStore> find_in_store(Io& io, const std::string& path) {
  const auto real = real_path(path);  // through links, and of "." in a checkpoint
  if (!real) return std::nullopt;
  InStore out{.store = parent_path(*real), .entry = {}};
  catalog::EntryPlace place{.run = ".", .name = base_name(*real)};
  const auto named = names_in_store(io, ".", false, {*real});
  if (named && io.stat(join_path(named->store, kStoreDirectory))) {
    out.store = named->store;
    const std::string& at = named->names.front();
    place.name = base_name(at);
    if (!parent_path(at).empty()) place.run = parent_path(at);
  } else if (!io.stat(catalog::marks_path(*real))) {
    return std::nullopt;
  }
  if (!CheckpointName::parse(place.name)) {
    const auto folder = catalog::list_folder(io, out.store, place.run, other_tools());
    if (!folder || !*folder) return std::nullopt;
    const auto found = std::ranges::find((*folder)->places, place.name, &catalog::EntryPlace::name);
    if (found == (*folder)->places.end()) return std::nullopt;
    place = *found;
  }
  auto entry = catalog::read_entry(io, out.store, place);
  if (!entry) return std::nullopt;
  out.entry = *std::move(entry);
  return out;
}

}  // namespace

const char* verdict_name(ScrubVerdict verdict) {
  switch (verdict) {
    case ScrubVerdict::intact:
      return "intact";
    case ScrubVerdict::damaged:
      return "damaged";
    case ScrubVerdict::incomplete:
      return "incomplete";
    case ScrubVerdict::unread:
      return "unread";
    case ScrubVerdict::busy:
      return "busy";
    case ScrubVerdict::vanished:
      return "vanished";
  }
  return "";
}

std::uint64_t ScrubReport::count(ScrubVerdict verdict) const {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(items, [&](const ScrubItem& item) { return item.verdict == verdict; }));
}

std::uint64_t ScrubReport::checked() const {
  return count(ScrubVerdict::intact) + count(ScrubVerdict::damaged) + count(ScrubVerdict::incomplete);
}

std::optional<catalog::Time> last_scrub(const Entry& entry) {
  std::optional<catalog::Time> out = entry.last(Mark::Kind::verified);
  for (const Mark& mark : entry.marks) {
    if (mark.kind == Mark::Kind::note && mark.name == catalog::kScrubNote && mark.at && (!out || *out < *mark.at))
      out = mark.at;
  }
  return out;
}

Result<VerifyReport> verify_recorded(Session& session, const VerifyRequest& request, const std::string& by,
                                     const std::function<catalog::Time()>& clock) {
  const bool counts = !request.quick && request.against.empty() && session.rules == nullptr;
  auto found = counts ? find_in_store(session.io, request.path) : std::nullopt;
  // Read as another format, it is another checkpoint.
  if (!found || (!request.from.empty() && request.from != found->entry.format)) return verify(session, request);
  const ScrubRequest scrubbed{.store = found->store, .by = by, .clock = clock};
  CKPT_TRY(ScrubItem item, Scrubber(session, scrubbed, request).look({.entry = std::move(found->entry)}));
  if (item.error) return fail(*std::move(item.error));
  VerifyReport report = *std::move(item.report);
  report.path = request.path;
  if (!item.unrecorded_because.empty())
    report.notes.push_back({.text = "the result is not recorded: " + item.unrecorded_because});
  return report;
}

Result<ScrubReport> scrub(Session& session, const ScrubRequest& request,
                          const std::function<void(const ScrubItem&)>& each) {
  const auto start = std::chrono::steady_clock::now();
  const catalog::Time now = request.clock();
  ScrubReport out;
  std::vector<Entry> entries;
  {
    CKPT_TRY(catalog::Catalog catalog, open_catalog(session.io, request.store, catalog::Trust::nothing_unseen, now));
    out.warnings = catalog.warnings();
    out.saw_all = unread_among(catalog.refreshed().unread, request.runs).empty();
    CKPT_TRY(entries, catalog::select_entries(catalog.database(), {}));
    CKPT_CHECK(check_runs(session.io, request, catalog, entries));
  }
  const catalog::ShortNames names(entries);
  std::vector<Turn> turns = turns_of(std::move(entries), request, now);
  out.total = turns.size();
  std::erase_if(turns, [&](const Turn& turn) {
    return request.max_age && turn.last && catalog::elapsed(*turn.last, now) <= *request.max_age;
  });
  out.due = turns.size();
  // Unreadable checkpoints do not count in the share; else they would come first at every run.
  auto left = static_cast<std::uint64_t>(std::ceil(request.share * static_cast<double>(out.total)));
  const std::uint64_t most = std::min<std::uint64_t>(left, turns.size());
  const VerifyRequest verify{.path = {}, .quick = request.quick, .finite = request.finite && !request.quick};
  for (Turn& turn : turns) {
    if (left == 0) break;
    std::string label = names.of(turn.entry);
    const std::uint64_t number = out.items.size() + 1;  // above `most` after some that could not be read
    Session one = with_item(session, number, std::max(most, number), label);
    CKPT_TRY(ScrubItem item, Scrubber(one, request, verify).look(std::move(turn)));
    item.label = std::move(label);
    if (item.report) {
      --left;
      out.bytes += item.report->bytes;
    }
    if (each) each(item);
    out.items.push_back(std::move(item));
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace ckpt
