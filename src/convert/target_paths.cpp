#include "convert/target_paths.hpp"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "format/text/file_name.hpp"

namespace ckpt {
namespace {

Error cannot_be_file(const std::string& target, std::string_view path, std::string_view reason) {
  return {.code = Errc::unsupported,
          .message = fmt::format("{}: no file can be named '{}': {}", target, path, reason),
          .hint = "--map FILE    renames tensors; --only selects other tensors"};
}

/// The names between the slashes of a path; the folders above it are added.
Result<> check_parts(const std::string& target, std::string_view path, std::unordered_set<std::string_view>& folders) {
  for (std::size_t begin = 0;;) {
    const std::size_t slash = path.find('/', begin);
    const std::string_view reason = why_no_file_name(path.substr(begin, slash - begin));
    if (!reason.empty()) return fail(cannot_be_file(target, path, reason));
    if (slash == std::string_view::npos) return {};
    folders.insert(path.substr(0, slash));
    begin = slash + 1;
  }
}

}  // namespace

Result<> check_target_paths(const Skeleton& skeleton, const std::string& target) {
  if (!skeleton.directory) return {};
  std::unordered_set<std::string_view> paths;
  std::unordered_set<std::string_view> folders;
  const auto add = [&](const std::string& path) -> Result<> {
    CKPT_CHECK(check_parts(target, path, folders));
    if (!paths.insert(path).second) return fail(cannot_be_file(target, path, "another file has that name"));
    return {};
  };
  for (const TargetFile& file : skeleton.files) CKPT_CHECK(add(file.path));
  for (const std::string& name : skeleton.small_names) CKPT_CHECK(add(name));
  for (const std::string_view path : paths) {
    if (folders.contains(path)) return fail(cannot_be_file(target, path, "a folder has that name"));
  }
  return {};
}

}  // namespace ckpt
