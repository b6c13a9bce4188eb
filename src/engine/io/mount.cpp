#include "engine/io/mount.hpp"

#include <algorithm>
#include <sstream>

namespace ckpt {
namespace {

/// Blanks, tabs, line breaks and backslashes are written as \ and three octal digits.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 3);
    const bool escape = text[i] == '\\' && digits.size() == 3 &&
                        std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '7'; });
    if (!escape) {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0')));
    i += 3;
  }
  return out;
}

void append_options(const std::string& list, std::vector<std::string>& out) {
  std::istringstream options(list);
  for (std::string option; std::getline(options, option, ',');) out.push_back(unescaped(option));
}

bool lies_below(std::string_view path, std::string_view point) {
  if (point == "/") return path.starts_with('/');
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

}  // namespace

bool Mount::has(std::string_view option) const {
  return std::ranges::any_of(options, [&](const std::string& one) {
    return one.starts_with(option) && (one.size() == option.size() || one[option.size()] == '=');
  });
}

std::string Mount::value_of(std::string_view option) const {
  for (const std::string& one : options) {
    if (one.starts_with(option) && one.size() > option.size() && one[option.size()] == '=') {
      return one.substr(option.size() + 1);
    }
  }
  return {};
}

std::vector<Mount> parse_mounts(std::string_view mountinfo) {
  std::vector<Mount> out;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
    std::istringstream words(line);
    std::string id, parent, root, point, options, word;
    Mount mount;
    if (!(words >> id >> parent >> mount.device >> root >> point >> options)) continue;
    while (words >> word && word != "-") {
    }
    std::string source, super_options;
    if (word != "-" || !(words >> mount.type >> source)) continue;
    words >> super_options;
    mount.point = unescaped(point);
    mount.source = unescaped(source);
    append_options(options, mount.options);
    append_options(super_options, mount.options);
    out.push_back(std::move(mount));
  }
  return out;
}

std::optional<Mount> mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    if (!lies_below(path, mount.point)) continue;
    if (best == nullptr || mount.point.size() >= best->point.size()) best = &mount;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace ckpt
