#include "api/catalog/store_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "catalog/index/names.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/scan.hpp"
#include "convert/foreign_names.hpp"
#include "engine/store/holds_store.hpp"
#include "engine/store/partial_name.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostDirectories = 4000;
constexpr std::size_t kMostMarked = 200;  // checkpoints whose marks are read for tags

struct NamedStep {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::string name{};
};

class Walk {
 public:
  explicit Walk(Io& io, std::string store) : io_(io), store_(std::move(store)) {}

  void look(const std::string& run, unsigned depth) {
    const auto entries = io_.list(run.empty() ? store_ : join_path(store_, run));
    if (!entries) return;
    std::vector<NamedStep> checkpoints;
    for (const DirEntry& entry : *entries) {
      if (entry.name.starts_with('.') || is_in_partial(entry.name)) continue;
      if (entry.kind == FileInfo::Kind::file) {
        if (const auto step = names_.step_in(entry)) checkpoints.push_back({.step = *step, .name = entry.name});
        continue;
      }
      if (entry.kind != FileInfo::Kind::directory) continue;
      if (++seen_ > kMostDirectories) break;
      if (const auto own = CheckpointName::parse(entry.name))
        checkpoints.push_back({.generation = own->generation, .step = own->step, .name = entry.name});
      else if (const auto step = names_.step_in(entry.name))
        checkpoints.push_back({.step = *step, .name = entry.name});
      else if (depth < catalog::kDeepestRun)
        look(run.empty() ? entry.name : join_path(run, entry.name), depth + 1);
    }
    if (!checkpoints.empty()) add_run(run.empty() ? "." : run, std::move(checkpoints));
  }

  StoreNames take() {
    out_.tags.assign(tags_.begin(), tags_.end());
    std::ranges::sort(out_.runs);
    return std::move(out_);
  }

 private:
  void add_run(const std::string& run, std::vector<NamedStep> checkpoints) {
    std::ranges::sort(checkpoints, [](const NamedStep& a, const NamedStep& b) {
      return std::pair(a.generation, a.step) > std::pair(b.generation, b.step);
    });
    out_.runs.push_back(run);
    out_.checkpoints.push_back(run + "@latest");
    std::set<std::uint64_t> steps;
    for (const NamedStep& one : checkpoints) {
      if (steps.insert(one.step).second) out_.checkpoints.push_back(run + "@" + std::to_string(one.step));
      if (++marked_ > kMostMarked) continue;
      const std::string path = join_path(join_path(store_, run), one.name);
      for (const catalog::Mark& mark : catalog::read_marks(io_, catalog::marks_path(path)).marks)
        if (mark.kind == catalog::Mark::Kind::tag) tags_.insert(mark.name);
    }
  }

  Io& io_;
  std::string store_;
  ForeignNames names_ = foreign_names();
  std::size_t seen_ = 0;
  std::size_t marked_ = 0;
  std::set<std::string> tags_{};
  StoreNames out_{};
};

}  // namespace

StoreNames store_names(Io& io, const std::string& store) {
  Walk walk(io, store);
  walk.look("", 0);
  return walk.take();
}

std::optional<std::string> hint_of_runs_below(Io& io, const std::string& store, const std::string& name,
                                              std::span<const std::string> runs) {
  const std::string above = name + '/';
  if (std::ranges::none_of(runs, [&](const std::string& run) { return run.starts_with(above); })) return std::nullopt;
  const std::string path = join_path(store, name);
  return holds_store(io, path).value_or(false) ? fmt::format("write: --store {}", path)
                                               : fmt::format("'{}/*' are its runs", name);
}

std::string directory_of_step(Io& io, const std::string& store, const std::string& name) {
  const std::size_t at = catalog::find_separator(name);
  if (at == std::string::npos) return {};
  const auto wanted = parse_number<std::uint64_t>(std::string_view(name).substr(at + 1));
  const std::string run = join_path(store, name.substr(0, at));
  const auto entries = io.list(run);
  if (!wanted || !entries) return {};
  const ForeignNames names = foreign_names();
  std::optional<NamedStep> newest;
  for (const DirEntry& entry : *entries) {
    const auto own = CheckpointName::parse(entry.name);
    const auto step = own ? std::optional(own->step) : names.step_in(entry);
    const std::uint64_t generation = own ? own->generation : 0;
    if (step == wanted && (!newest || generation > newest->generation))
      newest = NamedStep{.generation = generation, .step = *step, .name = entry.name};
  }
  return newest ? join_path(run, newest->name) : std::string();
}

}  // namespace ckpt
