#include "convert/dcp/compressed_item.hpp"

#include <cstddef>
#include <span>
#include <utility>

#include "engine/run/decompress.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::size_t kBlockBytes = kEndsBytes / 3;  // the head, the last block and the one before it

}  // namespace

Result<std::optional<Codec>> codec_of(const std::vector<std::string>& transforms) {
  if (transforms.empty()) return std::optional<Codec>();
  if (transforms.size() == 1 && transforms.front() == "stream.zstd/1") return std::optional(Codec::zstd);
  std::string names;
  for (const std::string& name : transforms) names += (names.empty() ? "" : ", ") + name;
  return fail(Error{.code = Errc::unsupported,
                    .message = "items with the extensions " + names + "; only stream.zstd/1 is supported",
                    .hint = "load it with torch.distributed.checkpoint.load and save it again without extensions"});
}

Result<std::uint64_t> decode_ends(RangeReader& reader, std::uint32_t file, const Compressed& compressed,
                                  HeldRanges& held) {
  CKPT_TRY(Decompressor decompressor, Decompressor::make(compressed, reader.path(file)));
  std::vector<std::byte> head(kBlockBytes);
  std::vector<std::byte> before;
  std::vector<std::byte> last;
  CKPT_TRY(const FileHandle handle, reader.handle(file));
  CKPT_TRY(std::size_t got, decompressor.read(reader.io(), handle, head));
  head.resize(got);
  while (got == kBlockBytes) {
    std::swap(before, last);
    last.resize(kBlockBytes);
    CKPT_TRY(got, decompressor.read(reader.io(), handle, last));
    last.resize(got);
  }
  const std::uint64_t bytes = decompressor.position();
  before.insert(before.end(), last.begin(), last.end());
  if (bytes == head.size() + before.size()) {
    head.insert(head.end(), before.begin(), before.end());
  } else {
    const std::uint64_t begin = bytes - before.size();
    held.keep(file, begin, std::move(before));
  }
  held.keep(file, 0, std::move(head));
  return bytes;
}

Result<OpenedItem> open_decoded(ItemOpener& opener, const HeldRanges& held, std::uint32_t file, std::uint64_t bytes) {
  std::optional<Extent> missing;
  CKPT_TRY(auto opened, opener.open(held, file, {0, bytes}, missing));
  if (opened) return *std::move(opened);
  const std::string& path = held.path(file);
  return fail(Error{.code = Errc::corrupt,
                    .message = path + ": a decompressed item whose directory or pickle is not at its ends",
                    .file = path});
}

}  // namespace ckpt::dcp
