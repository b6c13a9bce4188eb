#include "convert/other_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace ckpt {
namespace {

constexpr std::size_t kTextBytes = 512;  // of a file, to tell text from binary data

std::string lowered(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_text(std::string_view head) {
  return std::ranges::all_of(head, [](unsigned char c) { return c >= 0x20 || c == '\n' || c == '\r' || c == '\t'; });
}

/// An archive: what it is called, and the command that unpacks it.
struct Packed {
  std::string_view magic;
  std::string_view name;
  std::string_view command;
};
constexpr std::array<Packed, 6> kArchives{{{"\x1f\x8b", "a gzip archive", "gunzip -k"},
                                           {"\x28\xb5\x2f\xfd", "a zstd archive", "zstd -d"},
                                           {"\xfd\x37zXZ", "an xz archive", "xz -dk"},
                                           {"BZh", "a bzip2 archive", "bzip2 -dk"},
                                           {"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z x"},
                                           {"PK\3\4", "a zip archive", "unzip"}}};

constexpr std::string_view kNemo = ".nemo";

std::optional<OtherFile> archive(const Place& place) {
  const std::string name = base_name(place.root);
  for (const Packed& one : kArchives) {
    if (!place.first.starts_with(one.magic)) continue;
    if (name.ends_with(kNemo) && one.command == "gunzip -k") {  // by early releases
      const std::string folder = name.substr(0, name.size() - kNemo.size());
      return OtherFile{.what = "a compressed NeMo archive: only uncompressed ones are read in place",
                       .hint = fmt::format("unpack it first: mkdir {0} && tar -xf {1} -C {0}", folder, name)};
    }
    const bool is_tar = name.find(".tar.") != std::string::npos || name.ends_with(".tgz");
    return OtherFile{.what = fmt::format("{}, not a checkpoint", one.name),
                     .hint = fmt::format("unpack it first: {} {}", is_tar ? "tar -xf" : one.command, name),
                     .may_be_part = one.command == "unzip" && !name.ends_with(".zip")};  // DCP's files are zips
  }
  return std::nullopt;
}

}  // namespace

std::optional<OtherFile> other_file(const Place& place) {
  if (place.directory) return std::nullopt;
  const std::string_view head = std::string_view(place.first).substr(0, kTextBytes);
  const std::string name = base_name(place.root);
  if (head.starts_with("version https://git-lfs.github.com/spec/"))
    return OtherFile{.what = "a Git LFS pointer: the data was not downloaded",
                     .hint = "fetch the data: git lfs pull",
                     .code = Errc::incomplete};
  if (auto packed = archive(place)) return packed;
  const std::string text = lowered(head.substr(std::min(head.find_first_not_of(" \t\r\n"), head.size())));
  if (text.starts_with("<!doctype html") || text.starts_with("<html"))
    return OtherFile{.what = "a web page, not a checkpoint: the download failed",
                     .hint = "download the file itself, e.g. with hf download"};
  if (text.starts_with("<?xml"))
    return OtherFile{.what = "an XML document, not a checkpoint",
                     .hint = "it may be the error page of an object store: read it, and download the file again"};
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return OtherFile{.what = "a pickle that torch.save did not write; ckpt never executes pickles",
                     .hint = "load it in Python if you trust it, and save its tensors with safetensors or torch.save",
                     .may_be_part = !name.ends_with(".pkl") && !name.ends_with(".pickle")};
  if (name.ends_with(".msgpack"))
    return OtherFile{.what = "a MessagePack file (Flax)",
                     .hint = "load it in Python (flax.serialization) and save its arrays as safetensors"};
  if (text.starts_with("{") || text.starts_with("["))
    return OtherFile{.what = "a JSON file, not a checkpoint", .may_be_part = true};
  if (!head.empty() && is_text(head)) return OtherFile{.what = "a text file, not a checkpoint", .may_be_part = true};
  return std::nullopt;
}

}  // namespace ckpt
