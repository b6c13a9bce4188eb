#include "api/catalog/named_checkpoint.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "api/catalog/newest_checkpoint.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_place.hpp"
#include "api/prune_policies.hpp"
#include "catalog/index/names.hpp"
#include "catalog/index/run_lineage.hpp"
#include "catalog/policy_toml.hpp"
#include "catalog/scan/lacks_files.hpp"
#include "engine/io/real_path.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr auto kPatience = std::chrono::minutes(1);  // of the other ranks, while rank 0 reads a store

Deadline soon() {
  return std::chrono::steady_clock::now() + kPatience;
}

/// For the user: which it is of its run, where there are newer ones.
Result<std::string> latest_note(FoundByName& found) {
  CKPT_TRY(const auto entries, select_entries(found.catalog.database(), {.run = found.entry.checkpoint.run}));
  const std::string newer = newer_unusable(entries, found.entry);
  if (newer.empty()) return newer;
  return fmt::format("using {}; {}", catalog::ShortNames(entries).of(found.entry), newer);
}

/// A name of which the run is given by its path, such as runs/llama@5000 beside the store.
struct NameByPath {
  std::string store;
  std::string name;
};
std::optional<NameByPath> name_by_path(Io& io, const std::string& word) {
  const std::size_t at = catalog::looks_like_name(word) ? catalog::find_separator(word) : std::string::npos;
  if (at == std::string::npos || at == 0 || io.stat(word) || !io.stat(word.substr(0, at))) return std::nullopt;
  StorePlace place = store_place(io, word.substr(0, at));
  if (place.run.empty()) return std::nullopt;
  return NameByPath{.store = std::move(place.store), .name = place.run + word.substr(at)};
}

bool is_same_place(const std::string& a, const std::string& b) {
  const auto first = real_path(a);
  return first && first == real_path(b);
}

/// A name is looked up in the store that is given, else in the one that encloses the current directory, else, or where only a
/// path is written so, in that of its run. In a given store its run may be written as a path, too.
NamedCheckpoint in_its_store(Io& io, const NamedCheckpoint& named) {
  const bool is_path = named.word.starts_with('/') || named.word.starts_with("./") || named.word.starts_with("../");
  if (!named.store_given && !is_path && io.stat(join_path(named.store, kStoreDirectory))) return named;
  auto by_path = name_by_path(io, named.word);
  if (!by_path || (named.store_given && !is_same_place(named.store, by_path->store))) return named;
  NamedCheckpoint out = named;
  out.store = std::move(by_path->store);
  out.word = std::move(by_path->name);
  out.store_given = true;
  return out;
}

}  // namespace

std::string newer_unusable(std::span<const catalog::Entry> entries, const catalog::Entry& used) {
  const catalog::ShortNames labels(entries);
  NameList newer;
  for (const catalog::Entry& entry : entries)
    if (entry.checkpoint.state < catalog::State::committed && committed_before(used.checkpoint, entry.checkpoint))
      newer.add(fmt::format("{} ({})", labels.of(entry), catalog::listed_state(entry)));
  return newer.count() == 0 ? std::string() : "newer, but not usable: " + newer.text();
}

std::vector<catalog::Policy> policies_in(Io& io, const std::string& store) {
  const auto text = read_small_file(io, join_path(store, kPolicyFile), kMostPolicyBytes);
  if (!text) return {};
  auto policies = catalog::parse_policies(*text, std::string(kPolicyFile));
  return policies ? *std::move(policies) : std::vector<catalog::Policy>();
}

std::optional<catalog::BestMetric> best_metric_of(const std::vector<catalog::Policy>& policies,
                                                  const std::string& run) {
  const catalog::Policy* policy = catalog::policy_of(policies, run);
  if (policy == nullptr) return std::nullopt;
  for (const catalog::Rule& rule : policy->keep)
    if (rule.kind == catalog::Rule::Kind::best)
      return catalog::BestMetric{.metric = rule.metric, .higher = rule.better == catalog::Rule::Better::higher};
  return std::nullopt;
}

Result<catalog::Entry> find_in_catalog(Io& io, catalog::Catalog& catalog, const std::string& name) {
  const catalog::Naming naming{
      .best = [&](const std::string& run) { return best_metric_of(policies_in(io, catalog.store()), run); },
      .births = [&](const std::string& run) { return catalog::births_of_run(io, catalog, run); }};
  auto entry = catalog::find_checkpoint(catalog.database(), name, naming);
  const std::size_t at = catalog::find_separator(name);
  const std::size_t run_bytes = at != std::string::npos ? at : name.rfind('/');
  const std::string run = run_bytes == std::string::npos ? std::string() : name.substr(0, run_bytes);
  const bool is_of_only_run = at == 0;
  if (is_of_only_run || (!entry && entry.error().code == Errc::not_found))
    CKPT_CHECK(check_seen(catalog.refreshed().unread, std::span(&run, run.empty() ? 0U : 1U)));
  return entry;
}

Result<std::optional<FoundByName>> find_by_name(Io& io, const NamedCheckpoint& asked) {
  if (!catalog::looks_like_name(asked.word)) return std::nullopt;
  const auto there = io.stat(asked.word);
  if (there || there.error().code != Errc::not_found) return std::nullopt;
  const NamedCheckpoint named = in_its_store(io, asked);
  // A query creates no index in a directory that is not a store.
  if (!named.store_given && !io.stat(join_path(named.store, kStoreDirectory)))
    return fail({.code = Errc::not_found,
                 .message = named.word + ": no such file or directory",
                 .file = named.word,
                 .hint = "for a checkpoint of a store, add --store DIR"});
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, named.store, catalog::Trust::notes, named.now));
  auto entry = find_in_catalog(io, catalog, named.word);
  if (entry) return FoundByName{.catalog = std::move(catalog), .entry = *std::move(entry)};
  Error error = std::move(entry).error();
  if (error.code == Errc::not_found) error.message += fmt::format(" (in {}; not a path either)", named.store);
  return fail(std::move(error));
}

namespace {

/// The word, or RUN or RUN/DIRECTORY in the store, as its other outputs have it.
std::string path_in_store(Io& io, const NamedCheckpoint& named) {
  const std::string in_store = join_path(named.store, named.word);
  const bool is_relative = !named.word.empty() && named.word.front() != '/';
  if (!is_relative || io.stat(named.word)) return named.word;
  if (!named.store_given && !io.stat(join_path(named.store, kStoreDirectory))) return named.word;
  const auto there = io.stat(in_store);
  return there || there.error().code != Errc::not_found ? in_store : named.word;
}

}  // namespace

Result<std::string> find_path(Io& io, const NamedCheckpoint& named) {
  CKPT_TRY(const auto found, find_by_name(io, named));
  return found ? found->path() : path_in_store(io, named);
}

Result<std::string> find_path(Session& session, const NamedCheckpoint& named) {
  if (session.comm.ranks() == 1 || !catalog::looks_like_name(named.word)) return find_path(session.io, named);
  Result<std::string> path = std::string();
  if (session.comm.is_root()) path = find_path(session.io, named);
  CKPT_CHECK(agree(session.comm, soon(), path ? Result<>{} : Result<>(fail(path.error()))));
  CKPT_CHECK(session.comm.broadcast(*path, soon()));
  return path;
}

namespace {

Result<> same_store(const std::optional<std::string>& before, const std::string& found, const std::string& word) {
  if (!before || *before == found) return {};
  return fail(Errc::usage,
              fmt::format("{}: in another store than the names before it: {}, not {}", word, found, *before));
}

}  // namespace

Result<NamesInStore> names_in_store(Io& io, const std::string& store, bool store_given,
                                    std::vector<std::string> words) {
  NamesInStore out{.store = store, .names = std::move(words)};
  const auto here = real_path(store);
  if (!here) return out;  // the command reports it
  std::optional<std::string> root;
  if (store_given) root = *here;
  for (std::string& word : out.names) {
    if (auto by_path = name_by_path(io, word)) {
      const std::string found = real_path(by_path->store).value_or(by_path->store);
      if (!store_given && found != *here) {
        CKPT_CHECK(same_store(root, found, word));
        root = found;
      }
      if (!store_given || found == *here) {
        word = std::move(by_path->name);
        continue;
      }
    }
    std::string path = join_path(word, "");
    if (base_name(path) == "." || base_name(path) == "..") path = real_path(path).value_or(path);
    const auto run = word.empty() || !io.stat(path) ? std::nullopt : real_path(parent_path(path));
    if (!run) continue;
    std::string found = root.value_or("");
    if (!store_given) {
      CKPT_TRY(found, store_above(io, *run));
      if (found.empty() && parent_path(*run) == *here) found = *here;
    }
    if (found.empty())
      return fail({.code = Errc::usage,
                   .message = word + ": in no store",
                   .file = word,
                   .hint = fmt::format("name the directory of runs: --store {}", parent_path(parent_path(path)))});
    CKPT_CHECK(same_store(root, found, word));
    root = found;
    const std::string whole = join_path(*run, base_name(path));
    const std::string below = found == "/" ? found : found + "/";
    if (whole.starts_with(below)) {
      word = whole.substr(below.size());
    } else if (!io.stat(join_path(store, word))) {
      return fail(Errc::usage, fmt::format("{}: not in the store {}", word, store));
    }
  }
  if (root && *root != *here) out.store = *root;
  return out;
}

Result<FoundSource> find_source(Session& session, const NamedCheckpoint& named) {
  const auto find = [&]() -> Result<FoundSource> {
    CKPT_TRY(auto found, find_by_name(session.io, named));
    if (found) {  // it is this one, whatever else lies in its directory
      FoundSource out{.path = found->path()};
      if (!named.word.ends_with("@latest")) return out;
      CKPT_TRY(out.note, latest_note(*found));
      return out;
    }
    std::string path = path_in_store(session.io, named);
    if (named.exact) return FoundSource{.path = std::move(path)};
    return newest_at(session.io, path, named.now);
  };
  if (session.comm.ranks() == 1) return find();
  Result<FoundSource> source = FoundSource{};
  if (session.comm.is_root()) source = find();
  CKPT_CHECK(agree(session.comm, soon(), source ? Result<>{} : Result<>(fail(source.error()))));
  CKPT_CHECK(session.comm.broadcast(source->path, soon()));
  CKPT_CHECK(session.comm.broadcast(source->note, soon()));
  return source;
}

}  // namespace ckpt
