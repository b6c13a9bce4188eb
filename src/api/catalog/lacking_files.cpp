#include "api/catalog/lacking_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "convert/foreign_names.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 8> kData{".pt",          ".pth",    ".bin",  ".pkl",
                                                ".safetensors", ".distcp", ".ckpt", ".h5"};

bool holds_data(const DirEntry& entry) {
  if (entry.name.starts_with('.')) return false;
  if (entry.kind == FileInfo::Kind::directory) return true;
  return std::ranges::any_of(kData, [&](std::string_view suffix) { return entry.name.ends_with(suffix); });
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
    if (holds_data(entry) && !is_empty_file(io, join_path(path, entry.name))) forms.insert(form_of(entry.name));
  for (const DirEntry& entry : *had)
    if (holds_data(entry) && !forms.contains(form_of(entry.name)) && !is_empty_file(io, join_path(before, entry.name)))
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
