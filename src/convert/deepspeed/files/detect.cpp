#include "convert/deepspeed/files/detect.hpp"

#include <algorithm>

#include "convert/deepspeed/files/files.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::uint64_t kLatestBytes = 4096;
constexpr std::size_t kMaxTags = 256;  // directories that are looked into
constexpr std::size_t kTagsShown = 8;

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  const auto first = std::find_if_not(text.begin(), text.end(), blank);
  text.erase(text.begin(), first);
  return text;
}

bool has_file(const std::vector<DirEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirEntry& entry) { return entry.name == name && entry.kind == FileInfo::Kind::file; });
}

bool has_directory(const std::vector<DirEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const DirEntry& entry) {
    return entry.name == name && entry.kind == FileInfo::Kind::directory;
  });
}

/// Sub-directories that hold files of a tag, in the order of their names.
Result<std::vector<std::string>> find_tags(Io& io, const std::string& root, const std::vector<DirEntry>& entries) {
  std::vector<std::string> tags;
  std::size_t looked = 0;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::directory || entry.name.front() == '.') continue;
    if (++looked > kMaxTags) break;
    CKPT_TRY(const auto inner, io.list(join_path(root, entry.name)));
    if (looks_like_tag(without_writer_suffix(inner).entries)) tags.push_back(entry.name);
  }
  return tags;
}

/// `latest` leads to no tag, for the reason in `what`.
Result<Tag> no_tag(Io& io, const std::string& root, const std::vector<DirEntry>& entries, const std::string& what) {
  CKPT_TRY(const auto tags, find_tags(io, root, entries));
  const std::string here = tags.empty() ? "no tag is here" : "tags here: " + name_list(tags, kTagsShown);
  return fail({.code = Errc::incomplete,
               .message = "latest: " + what + "; " + here,
               .file = "latest",
               .hint = tags.empty() ? "" : "name a tag directory, such as " + join_path(root, tags.back())});
}

Result<Tag> followed(Io& io, const std::string& root, std::vector<DirEntry> entries) {
  CKPT_TRY(std::string text, read_small_file(io, join_path(root, "latest"), kLatestBytes));
  const std::string name = trimmed(std::move(text));
  // DeepSpeed truncates the file before it writes it.
  if (name.empty()) return no_tag(io, root, entries, "the file is empty");
  if (!stays_inside(name)) {
    return fail({.code = Errc::refused, .message = "latest: its tag leads out of the directory", .file = "latest"});
  }
  const std::string directory = join_path(root, name);
  const auto info = io.stat(directory);
  if (info && info->kind == FileInfo::Kind::directory) {
    CKPT_TRY(auto inner, io.list(directory));
    CKPT_TRY(auto others, find_tags(io, root, entries));
    std::erase(others, name);
    return Tag{.directory = name,
               .chosen = "tag " + name + " from 'latest'",
               .entries = std::move(inner),
               .others = std::move(others)};
  }
  if (!info && info.error().code != Errc::not_found) return fail(info.error());
  return no_tag(io, root, entries, "names the tag " + name + ", which is missing");
}

}  // namespace

Result<std::optional<Match>> detect(const Place& place) {
  using Answer = std::optional<Match>;
  if (!place.directory) return Answer{};
  if (looks_like_tag(without_writer_suffix(place.entries).entries)) {
    const auto count = std::count_if(place.entries.begin(), place.entries.end(), [](const DirEntry& entry) {
      return entry.name.find("_states.pt") != std::string::npos;
    });
    return Answer(Match{"", std::to_string(count) + " *_states.pt"});
  }
  if (has_directory(place.entries, "zero") && !has_file(place.entries, "latest")) return Answer{};
  CKPT_TRY(const auto tags, find_tags(place.io, place.root, place.entries));
  const bool latest = has_file(place.entries, "latest");
  if (!tags.empty()) {
    return Answer(Match{"", "tags " + name_list(tags, kTagsShown) + (latest ? " and 'latest'" : "")});
  }
  if (!latest) return Answer{};
  CKPT_TRY(const std::string head, place.head("latest", kLatestBytes));
  // A save directory that lost its tags is still recognised by `latest` with DeepSpeed's kind of tag.
  if (trimmed(head).rfind("global_step", 0) != 0) return Answer{};
  return Answer(Match{"", "'latest' names " + trimmed(head)});
}

std::string path_in(const Tag& tag, const std::string& name) {
  const std::string stored = name.ends_with("states.pt") ? name + tag.suffix : name;
  return tag.directory.empty() ? stored : join_path(tag.directory, stored);
}

namespace {

Result<Tag> find_directory(Io& io, const std::string& root) {
  CKPT_TRY(auto entries, io.list(root));
  if (looks_like_tag(without_writer_suffix(entries).entries)) return Tag{.entries = std::move(entries)};
  if (has_file(entries, "latest")) return followed(io, root, std::move(entries));
  CKPT_TRY(const auto tags, find_tags(io, root, entries));
  if (tags.empty()) {
    return fail(
        {.code = Errc::unsupported, .message = root + ": no DeepSpeed model or optimizer states here", .file = root});
  }
  if (tags.size() > 1) {
    return fail({.code = Errc::ambiguous,
                 .message = root + ": several tags and no 'latest': " + name_list(tags, kTagsShown),
                 .file = root,
                 .hint = "name the tag directory, such as " + join_path(root, tags.back())});
  }
  CKPT_TRY(auto inner, io.list(join_path(root, tags.front())));
  return Tag{.directory = tags.front(),
             .chosen = "tag " + tags.front() + ", the only one",
             .entries = std::move(inner),
             .others = {}};
}

}  // namespace

Result<Tag> find_tag(Io& io, const std::string& root) {
  CKPT_TRY(Tag tag, find_directory(io, root));
  WriterNames names = without_writer_suffix(tag.entries);
  if (!names.shared.empty()) {
    return fail({.code = Errc::unsupported,
                 .message = names.shared +
                            ": a part of a file that several FastPersist writers shared: DeepSpeed has no reader for "
                            "such parts, and nothing in them says how they were divided: not readable",
                 .file = tag.directory.empty() ? names.shared : join_path(tag.directory, names.shared),
                 .hint = "save again without checkpoint.writer.data_parallel"});
  }
  tag.entries = std::move(names.entries);
  tag.suffix = std::move(names.suffix);
  return tag;
}

}  // namespace ckpt::deepspeed
