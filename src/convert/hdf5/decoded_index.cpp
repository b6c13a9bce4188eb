#include "convert/hdf5/decoded_index.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "convert/hdf5/helper.hpp"
#include "convert/hdf5/wire.hpp"
#include "format/checked.hpp"
#include "format/text/error_context.hpp"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kBatchBytes = std::uint64_t{16} << 20;  // of small datasets: a start of the helper pays for it
constexpr std::uint64_t kAlignment = 64;                        // of a dataset: a multiple of any element's size
// The helper ends itself by the time that it works (helper/confine.hpp); this is for a disk that never answers.
constexpr std::uint64_t kBytesPerSecond = 1'000'000;
constexpr std::uint64_t kLeastSeconds = 600;

}  // namespace

DecodedIndex::DecodedIndex(Range range, std::vector<Place> places, std::optional<ScratchFile> scratch,
                           std::uint32_t scratch_file, Decoding decoding)
    : range_(std::move(range)),
      places_(std::move(places)),
      scratch_(std::move(scratch)),
      scratch_file_(scratch_file),
      decoding_(decoding),
      of_tensor_(places_.size()) {}

Result<DecodedIndex> DecodedIndex::make(Range range, std::vector<Place> places, std::optional<ScratchFile> scratch,
                                        std::uint32_t scratch_file, Decoding decoding) {
  DecodedIndex out(std::move(range), std::move(places), std::move(scratch), scratch_file, decoding);
  CKPT_CHECK(out.cut_windows());
  return out;
}

Result<> DecodedIndex::cut_windows() {
  std::uint64_t end = 0;
  std::uint64_t batch_bytes = kBatchBytes;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (place.offset || place.bytes == 0) continue;
    const std::uint64_t row_bytes = place.bytes / place.rows;
    const std::uint64_t chunks = kWindowBytes / std::max<std::uint64_t>(1, row_bytes) / place.chunk_rows;
    const std::uint64_t rows = std::min(place.rows, std::max<std::uint64_t>(1, chunks) * place.chunk_rows);
    of_tensor_[i] = {.first = windows_.size(), .window_bytes = rows * row_bytes, .scratch_offset = end};
    for (std::uint64_t row = 0; row < place.rows; row += rows) {
      const Window& window = windows_.emplace_back(
          Window{.tensor = static_cast<std::uint32_t>(i), .rows = {row, std::min(place.rows, row + rows)}});
      batch_bytes += bytes_of(window);
      if (batch_bytes < kBatchBytes) continue;
      batches_.push_back(windows_.size() - 1);
      batch_bytes = bytes_of(window);
    }
    CKPT_TRY(end, checked_add(end, place.bytes));
    CKPT_TRY(end, checked_add(end, kAlignment - end % kAlignment));
  }
  scratch_bytes_ = end;
  decoded_.resize(batches_.size());
  return {};
}

std::vector<std::string> Range::words() const {
  std::vector<std::string> out{path};
  for (const std::uint64_t number : {offset, bytes, device, inode}) out.push_back(std::to_string(number));
  return out;
}

std::uint64_t DecodedIndex::bytes_of(const Window& window) const {
  const Place& place = places_[window.tensor];
  return place.bytes / place.rows * window.rows.size();
}

Result<> DecodedIndex::decode(std::size_t batch) const {
  if (decoded_[batch]) return {};
  if (!scratch_) return fail(Errc::internal, range_.path + ": decode: no temporary file");
  const std::size_t begin = batches_[batch];
  const std::size_t end = batch + 1 < batches_.size() ? batches_[batch + 1] : windows_.size();
  std::uint64_t bytes = 0;
  for (std::size_t w = begin; w < end; ++w) bytes += bytes_of(windows_[w]);
  Wire request;
  request.number(bytes, 8);
  request.number(end - begin, 4);
  for (std::size_t w = begin; w < end; ++w) {
    const Window& window = windows_[w];
    const Place& place = places_[window.tensor];
    request.text(place.path);
    request.number(place.address, 8);
    request.number(window.rows.begin, 8);
    request.number(window.rows.end, 8);
    request.number(of_tensor_[window.tensor].scratch_offset + place.bytes / place.rows * window.rows.begin, 8);
  }
  std::vector<std::string> words{"decode"};
  for (std::string& word : range_.words()) words.push_back(std::move(word));
  words.push_back(scratch_->path_for_helper());
  words.push_back(std::to_string(scratch_bytes_));
  auto done = run_h5(decoding_.memory_bytes, std::move(words), request.bytes(),
                     {.time = std::chrono::seconds(kLeastSeconds + bytes / kBytesPerSecond), .stop = decoding_.stop});
  if (!done) return fail(with_file(with_context(std::move(done).error(), range_.path + ": decode"), range_.path));
  decoded_[batch] = true;
  return {};
}

Result<> DecodedIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Place& place = places_[tensor];
  if (place.bytes == 0 || elements.size() == 0) return {};
  PlacedChunk chunk{.chunk = {.box = Box::whole(place.shape)},
                    .where = {.dtype = place.dtype, .big_endian = place.big_endian}};
  if (place.offset) {
    chunk.where.offset = *place.offset;
    chunk.where.crc = range_.crc;
    return visit(chunk);
  }
  const Windows& windows = of_tensor_[tensor];
  const std::uint64_t bits = dtype_bits(place.dtype);
  const std::uint64_t last_byte = std::min((elements.end * bits + 7) / 8, place.bytes) - 1;
  const std::size_t first = windows.first + static_cast<std::size_t>(elements.begin * bits / 8 / windows.window_bytes);
  const std::size_t last = windows.first + static_cast<std::size_t>(last_byte / windows.window_bytes);
  const auto batch_of = [&](std::size_t window) {
    return static_cast<std::size_t>(std::upper_bound(batches_.begin(), batches_.end(), window) - batches_.begin()) - 1;
  };
  for (std::size_t batch = batch_of(first); batch <= batch_of(last); ++batch) CKPT_CHECK(decode(batch));
  chunk.where.offset = windows.scratch_offset;
  chunk.where.file = scratch_file_;
  chunk.where.big_endian = false;
  return visit(chunk);
}

Result<> DecodedIndex::regions(std::size_t tensor, Extent, const RegionVisitor& visit) const {
  if (places_[tensor].bytes == 0) return {};
  return visit({.box = Box::whole(places_[tensor].shape)});
}

}  // namespace ckpt::hdf5
