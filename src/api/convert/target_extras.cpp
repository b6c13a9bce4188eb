#include "api/convert/target_extras.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "convert/extras.hpp"
#include "format/files/config_dtype.hpp"
#include "format/files/extra_names.hpp"
#include "format/files/written_beside.hpp"
#include "format/text/glob.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kConfig = "config.json";

constexpr std::size_t kExtrasShown = 12;

}  // namespace

Result<std::vector<WantedExtra>> choose_extras(Io& io, const Source& source, const ConvertRequest& request,
                                               const Format& target) {
  std::vector<WantedExtra> out;
  if (!request.extras || target.extras() == KeepsExtras::no) return out;
  const auto asks = [&](std::string_view what) { return std::ranges::find(request.only, what) != request.only.end(); };
  const bool everything = request.only.empty();
  for (const Extra& extra : source.map.extras) {
    const bool wanted = everything || (is_training_extra(extra.path) ? asks("optim") : asks("weights"));
    if (!wanted) continue;
    WantedExtra& one = out.emplace_back(WantedExtra{.path = extra.path, .tensor = extra.tensor});
    const std::uint64_t bytes = source.map.tensors[extra.tensor].shape.front();
    if (request.dtype && extra.path == kConfig && bytes <= kLargestConfig) {
      CKPT_TRY(const std::string text, read_extra(io, source.map, source.root, extra, kLargestConfig));
      auto edited = with_config_dtype(text, *request.dtype);
      if (edited && *edited != text) one.text = *std::move(edited);
    }
    if (target.extras() != KeepsExtras::beside) continue;
    if (one.text) {
      one.hash = hash128(*one.text).words()[0];
    } else {
      CKPT_TRY(const Hash128 hash, hash_extra(io, source.map, source.root, extra));
      one.hash = hash.words()[0];
    }
  }
  return out;
}

void add_beside(const Map& source, const Format& target, std::vector<WantedExtra>& extras, Skeleton& skeleton) {
  if (target.extras() != KeepsExtras::beside || !skeleton.directory) return;
  std::set<std::string> taken;
  for (const TargetFile& file : skeleton.files) taken.insert(file.path);
  for (const std::string& name : skeleton.small_names) taken.insert(name);
  std::vector<std::string> clashing;
  WrittenBeside written;
  for (const WantedExtra& extra : extras) {
    const bool is_own =
        std::ranges::any_of(target.own_names, [&](std::string_view own) { return matches_glob(extra.path, own); });
    if (is_own || !taken.insert(extra.path).second) {
      clashing.push_back(extra.path);
      continue;
    }
    TargetFile file{.path = extra.path};
    Placement placement{.tensor = extra.tensor, .dtype = Dtype::u8};
    if (extra.text) {
      placement.from = Placement::From::literal;
      placement.literal = *extra.text;
    }
    file.bytes = placement.bytes = extra.text ? extra.text->size() : source.tensors[extra.tensor].shape.front();
    if (file.bytes != 0) file.placements.push_back(std::move(placement));
    skeleton.files.push_back(std::move(file));
    written.emplace_back(extra.path, extra.hash);
  }
  if (!written.empty() && !target.writer->lists_extras) {
    Placement placement{.from = Placement::From::literal, .dtype = Dtype::u8};
    placement.literal = build_written_beside(written);
    placement.bytes = placement.literal.size();
    TargetFile list{.path = std::string(kBesideFile), .bytes = placement.bytes};
    list.placements.push_back(std::move(placement));
    skeleton.files.push_back(std::move(list));
  }
  if (clashing.empty()) return;
  std::erase_if(extras,
                [&](const WantedExtra& extra) { return std::ranges::find(clashing, extra.path) != clashing.end(); });
  skeleton.dropped.push_back(
      {.severity = Severity::warning,
       .text = fmt::format("not copied: {}: the target already has {} of that name", name_list(clashing, kExtrasShown),
                           clashing.size() == 1 ? "a file" : "files"),
       .skipped = Skipped::data});
}

Result<Skeleton> lay_out_state_beside(WriteRequest& request, const Format& target) {
  Skeleton out;
  if (!target.writer || !target.writer->state_beside) return out;
  for (const Format& format : formats()) {
    if (!format.writer || format.writer->lay_out_beside == nullptr) continue;
    CKPT_TRY(Skeleton more, format.writer->lay_out_beside(request));
    std::ranges::move(more.files, std::back_inserter(out.files));
    std::ranges::move(more.dropped, std::back_inserter(out.dropped));
  }
  return out;
}

void report_extras(const Source& source, const std::vector<WantedExtra>& taken, std::vector<Finding>& notes) {
  std::vector<std::string> with;
  std::vector<std::string> edited;
  std::set<std::string_view> known;
  for (const WantedExtra& extra : taken) {
    known.insert(extra.path);
    with.push_back(extra.path);
    if (extra.text) edited.push_back(extra.path);
  }
  if (!with.empty()) notes.push_back({.text = "with the model: " + name_list(with, kExtrasShown)});
  if (!edited.empty()) notes.push_back({.text = "dtype changed in " + name_list(edited, kExtrasShown)});
  std::vector<std::string> without = source.settings;
  for (const Extra& extra : source.map.extras) {
    if (!known.contains(extra.path)) without.push_back(extra.path);
  }
  std::erase_if(without, [](const std::string& name) { return is_checkpoint_script(name); });
  std::ranges::sort(without);
  if (!without.empty())
    notes.push_back({.text = "not copied: " + name_list(without, kExtrasShown) +
                             " (copy them next to the target if a program needs them)"});
}

}  // namespace ckpt
