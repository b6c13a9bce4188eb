#include "api/target.hpp"

#include <string>
#include <string_view>

namespace ckpt {
namespace {

std::string writable_formats() {
  std::string names;
  for (const Format& format : formats()) {
    if (format.lay_out != nullptr) names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

}  // namespace

Result<const Format*> choose_target(const ConvertRequest& request) {
  if (!request.to.empty()) {
    const Format* format = find_format(request.to);
    if (format != nullptr && format->lay_out != nullptr) return format;
    return fail({.code = Errc::usage,
                 .message = request.target + ": convert: --to '" + request.to + "' cannot be written",
                 .hint = "--to is one of " + writable_formats()});
  }
  const std::string target = join_path(request.target, "");
  for (const Format& format : formats()) {
    if (format.lay_out != nullptr && !format.suffix.empty() && target.ends_with(format.suffix)) return &format;
  }
  for (const Format& format : formats()) {
    for (const std::string_view suffix : format.other_suffixes) {
      if (!target.ends_with(suffix)) continue;
      return fail(
          {.code = Errc::unsupported,
           .message = request.target + ": convert: the suffix " + std::string(suffix) + " means " +
                      std::string(format.summary) + ", and nothing else is written under it unasked",
           .hint = "--to FORMAT    writes under this name all the same; FORMAT is one of " + writable_formats()});
    }
  }
  return find_format("ckpt");
}

Result<> check_parent(Io& io, const std::string& target) {
  const std::string parent = parent_path(join_path(target, ""));
  const auto info = io.stat(parent);
  if (!info && info.error().code == Errc::not_found)
    return fail({.code = Errc::not_found,
                 .message = target + ": convert: there is no directory " + parent + " to write it in",
                 .file = parent});
  if (!info) return fail(info.error());
  if (info->kind != FileInfo::Kind::directory)
    return fail({.code = Errc::usage,
                 .message = target + ": convert: " + parent + " is not a directory",
                 .file = parent,
                 .hint = "name a target in a directory that is there"});
  return {};
}

Result<> check_outside(Io& io, const ConvertRequest& request, const std::string& source_root) {
  CKPT_TRY(const FileInfo source, io.stat(source_root));
  CKPT_TRY(const FileInfo parent, io.stat(parent_path(join_path(request.target, ""))));
  if (source.kind != FileInfo::Kind::directory || source.device != parent.device || source.inode != parent.inode)
    return {};
  return fail(
      {.code = Errc::usage,
       .message = request.target + ": convert: a file among those of the source would change what the source is",
       .file = request.target,
       .hint = "name a target in another directory"});
}

Result<> check_apart(Io& io, const ConvertRequest& request, const std::string& source_root) {
  CKPT_TRY(const FileInfo source, io.stat(source_root));
  const auto target = io.stat(request.target);
  if (!target || source.device != target->device || source.inode != target->inode) return {};
  return fail({.code = Errc::usage,
               .message = request.target + ": convert: the target is the source itself",
               .file = request.target,
               .hint = "name another target; the source can be removed when that is verified"});
}

Error said_by(std::string_view verb, Error error) {
  constexpr std::string_view kConvert = ": convert: ";
  if (const auto at = error.message.find(kConvert); at != std::string::npos)
    error.message.replace(at, kConvert.size(), ": " + std::string(verb) + ": ");
  return error;
}

Error too_little_space(const std::string& target, std::uint64_t needed, std::uint64_t free) {
  return {
      .code = Errc::no_space,
      .message = target + ": convert: " + std::to_string(needed) + " bytes needed, " + std::to_string(free) + " free",
      .file = target,
      .hint = "free some space, or choose a target on another file system"};
}

}  // namespace ckpt
