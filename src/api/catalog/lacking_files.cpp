#include "api/catalog/lacking_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "convert/foreign_names.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 8> kData{".pt",          ".pth",    ".bin",  ".pkl",
                                                ".safetensors", ".distcp", ".ckpt", ".h5"};

constexpr std::array<std::string_view, 12> kRemarks{".json", ".jsonl", ".txt", ".log",  ".csv", ".tsv",
                                                    ".md",   ".yaml",  ".yml", ".html", ".png", ".svg"};
constexpr std::size_t kMostRemarks = 1000;

bool ends_with_one_of(const std::string& name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

/// Whether it holds nothing but logs and remarks, as evaluations leave them. One that cannot be listed may hold data.
bool holds_remarks_alone(Io& io, const std::string& directory) {
  std::vector<std::string> folders{directory};
  for (std::size_t seen = 0; !folders.empty();) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    const auto entries = io.list(folder);
    if (!entries) return false;
    for (const DirEntry& entry : *entries) {
      if (++seen > kMostRemarks) return false;
      if (entry.kind == FileInfo::Kind::directory)
        folders.push_back(join_path(folder, entry.name));
      else if (!ends_with_one_of(entry.name, kRemarks) && entry.name.find("tfevents") == std::string::npos)
        return false;
    }
  }
  return true;
}

bool holds_data(Io& io, const std::string& path, const DirEntry& entry) {
  if (entry.name.starts_with('.')) return false;
  if (entry.kind == FileInfo::Kind::directory) return !holds_remarks_alone(io, join_path(path, entry.name));
  return ends_with_one_of(entry.name, kData);
}

bool is_empty_file(Io& io, const std::string& path) {
  const auto info = io.stat(path);
  return info && info->kind == FileInfo::Kind::file && info->bytes == 0;
}

}  // namespace

std::string form_of(const std::string& name) {
  std::string out;
  std::ranges::copy_if(name, std::back_inserter(out), [](char c) { return c < '0' || c > '9'; });
  return out;
}

std::vector<std::string> lacking_files(Io& io, const std::string& path, const std::string& before) {
  const auto has = io.list(path);
  const auto had = io.list(before);
  std::vector<std::string> out;
  if (!has || !had) return out;
  std::set<std::string> forms;
  for (const DirEntry& entry : *has)
    if (holds_data(io, path, entry) && !is_empty_file(io, join_path(path, entry.name)))
      forms.insert(form_of(entry.name));
  for (const DirEntry& entry : *had)
    if (holds_data(io, before, entry) && !forms.contains(form_of(entry.name)) &&
        !is_empty_file(io, join_path(before, entry.name)))
      out.push_back(entry.name);
  return out;
}

std::string lacks_text(Io& io, const std::string& path) {
  const ForeignNames names = foreign_names();
  const std::string own = base_name(path);
  const auto step = names.step_in(own);
  const auto siblings = io.list(parent_path(path));
  if (!step || !siblings) return {};
  std::optional<std::pair<std::uint64_t, std::string>> before;
  for (const DirEntry& entry : *siblings) {
    const auto other = names.step_in(entry.name);
    if (entry.kind != FileInfo::Kind::directory || !other || *other >= *step || form_of(entry.name) != form_of(own))
      continue;
    if (!before || before->first < *other) before.emplace(*other, entry.name);
  }
  if (!before) return {};
  const auto lacking = lacking_files(io, path, join_path(parent_path(path), before->second));
  return lacking.empty() ? std::string() : fmt::format("it lacks {}, which {} has", name_list(lacking), before->second);
}

}  // namespace ckpt
