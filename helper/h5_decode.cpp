#include "helper/h5_decode.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "helper/confine.hpp"
#include "helper/h5_filters.hpp"
#include "helper/h5_type.hpp"

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 20;

void write_at(int file, const char* bytes, std::uint64_t count, std::uint64_t offset) {
  while (count > 0) {
    const ssize_t written = ::pwrite(file, bytes, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) stop(std::string("temporary file for decoded data: ") + std::strerror(errno), verdict_of(errno));
    bytes += written;
    count -= static_cast<std::uint64_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
}

/// Puts the bytes of each element into the other order.
void swap_bytes(std::vector<unsigned char>& bytes, std::size_t width) {
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
}

/// One dataset, read block by block; a block consists of whole chunks.
class Decoder {
 public:
  Decoder(hid_t file, const Rows& rows, int target) : path_(rows.dataset), target_(target) {
    dataset_ = H5Oopen_by_addr(file, rows.address);
    if (dataset_ < 0 || H5Iget_type(dataset_) != H5I_DATASET) stop_at(path_, "the dataset cannot be opened");
    const hid_t stored = H5Dget_type(dataset_);
    const Type element = stored < 0 ? Type{} : type_of(stored);
    if (element.code == kNoType) stop(path_ + ": cannot be decoded");
    type_ = little_endian(stored);
    space_ = H5Dget_space(dataset_);
    rank_ = H5Sget_simple_extent_ndims(space_);
    if (type_ < 0 || rank_ < 0 || rank_ > H5S_MAX_RANK) stop(path_ + ": cannot be decoded");
    if (rank_ > 0) H5Sget_simple_extent_dims(space_, sizes_, nullptr);
    unit_ = H5Tget_size(type_);
    const bool pairs = H5Tget_class(type_) == H5T_COMPOUND;
    swapped_bytes_ = element.big_endian ? unit_ / (pairs ? 2 : 1) : 0;
    H5Tclose(stored);
    take_layout();
    choose_block();
    check_memory();
  }
  ~Decoder() {
    H5Sclose(space_);
    H5Tclose(type_);
    H5Dclose(dataset_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  void run(const Rows& rows) {
    if (rank_ == 0) return read_scalar(rows.offset);
    if (rows.begin > rows.end || rows.end > sizes_[0]) stop(path_ + ": the requested rows do not exist");
    hsize_t start[H5S_MAX_RANK] = {rows.begin};
    while (start[0] < rows.end) {
      write_block(start, rows);
      int d = rank_ - 1;
      for (; d > 0 && (start[d] += block_[d]) >= sizes_[d]; --d) start[d] = 0;
      if (d == 0) start[0] += block_[0];
    }
  }

 private:
  void take_layout() {
    const hid_t create = H5Dget_create_plist(dataset_);
    std::fill(std::begin(chunk_), std::end(chunk_), 1);
    if (rank_ > 0 && H5Pget_layout(create) == H5D_CHUNKED) {
      if (H5Pget_chunk(create, rank_, chunk_) != rank_) stop_at(path_, "the chunks cannot be read");
      filters_.emplace(create, path_);
      fill_.resize(unit_);
      H5D_fill_value_t state = H5D_FILL_VALUE_UNDEFINED;
      const bool known = H5Pfill_value_defined(create, &state) >= 0 &&
                         (state == H5D_FILL_VALUE_UNDEFINED || H5Pget_fill_value(create, type_, fill_.data()) >= 0);
      if (!known) stop_at(path_, "the fill value cannot be read");
    }
    H5Pclose(create);
    chunk_bytes_ = unit_;
    for (int d = 0; d < rank_; ++d) {
      if (chunk_[d] == 0 || __builtin_mul_overflow(chunk_bytes_, chunk_[d], &chunk_bytes_))
        stop(path_ + ": a chunk's size overflows 64 bits");
    }
  }

  /// From a chunk on, as many as kBlockBytes hold, along the last dimension first.
  void choose_block() {
    std::uint64_t bytes = unit_;
    for (int d = 0; d < rank_; ++d) {
      block_[d] = std::max<hsize_t>(1, std::min(chunk_[d], sizes_[d]));
      bytes *= block_[d];  // at most a chunk's
    }
    for (int d = rank_ - 1; d >= 0; --d) {
      const std::uint64_t rest = bytes / block_[d];
      const hsize_t more = kBlockBytes / rest / block_[d] * block_[d];
      block_[d] = std::min(sizes_[d], std::max(block_[d], more));
      if (block_[d] < sizes_[d]) break;
      bytes = rest * block_[d];
    }
  }

  /// Stored chunk, decoded chunk and its block are in memory at once, with sizes known before allocation.
  void check_memory() const {
    std::uint64_t needed = unit_;
    for (int d = 0; d < rank_; ++d) needed *= block_[d];  // at most a chunk's, or kBlockBytes
    if (filters_) needed += 2 * (chunk_bytes_ + chunk_bytes_ / 8 + 1024);
    if (needed > usable_memory())
      stop_without_memory(path_ + ": HDF5: a chunk of " + std::to_string(chunk_bytes_) + " bytes cannot be decoded");
  }

  void read_scalar(std::uint64_t offset) {
    bytes_.resize(unit_);
    if (H5Dread(dataset_, type_, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes_.data()) < 0) fail_at(0);
    write_at(target_, bytes_.data(), bytes_.size(), offset);
  }

  /// The chunk whose first element is at `origin`, little-endian, all of it; one that was never written too.
  void read_chunk(const hsize_t* origin) {
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t stored = 0;
    if (H5Dget_chunk_info_by_coord(dataset_, origin, &skipped, &address, &stored) < 0) fail_at(origin[0]);
    if (address == HADDR_UNDEF) {
      chunk_data_.clear();
      while (chunk_data_.size() < chunk_bytes_) chunk_data_.insert(chunk_data_.end(), fill_.begin(), fill_.end());
      return;
    }
    // The limit of expansion: lzf a byte per 32, deflate five per 65,535, a checksum four.
    if (stored > chunk_bytes_ + chunk_bytes_ / 8 + 1024) fail_at(origin[0]);
    chunk_data_.resize(stored);
    std::uint32_t mask = 0;
    if (H5Dread_chunk(dataset_, H5P_DEFAULT, origin, &mask, chunk_data_.data()) < 0 ||
        !filters_->undo(chunk_data_, mask, chunk_bytes_))
      fail_at(origin[0]);
    if (swapped_bytes_ > 1) swap_bytes(chunk_data_, swapped_bytes_);
  }

  /// The chunks of a block, into bytes_: `start` and `extent` of the block in the dataset.
  void read_chunks(const hsize_t* start, const hsize_t* extent) {
    hsize_t origin[H5S_MAX_RANK];
    std::copy_n(start, rank_, origin);
    for (;;) {
      read_chunk(origin);
      hsize_t part[H5S_MAX_RANK];
      for (int d = 0; d < rank_; ++d) part[d] = std::min(chunk_[d], start[d] + extent[d] - origin[d]);
      hsize_t at[H5S_MAX_RANK] = {};
      for (bool more = true; more;) {
        std::uint64_t from = 0;
        std::uint64_t to = 0;
        for (int d = 0; d < rank_; ++d) {
          from = from * chunk_[d] + at[d];
          to = to * extent[d] + origin[d] - start[d] + at[d];
        }
        std::memcpy(bytes_.data() + to * unit_, chunk_data_.data() + from * unit_, part[rank_ - 1] * unit_);
        int d = rank_ - 2;
        for (; d >= 0 && ++at[d] == part[d]; --d) at[d] = 0;
        more = d >= 0;
      }
      int d = rank_ - 1;
      for (; d >= 0 && (origin[d] += chunk_[d]) >= start[d] + extent[d]; --d) origin[d] = start[d];
      if (d < 0) return;
    }
  }

  void write_block(const hsize_t* start, const Rows& rows) {
    hsize_t extent[H5S_MAX_RANK];
    std::uint64_t count = 1;
    for (int d = 0; d < rank_; ++d) {
      extent[d] = std::min(block_[d], (d == 0 ? rows.end : sizes_[d]) - start[d]);
      count *= extent[d];
    }
    bytes_.resize(count * unit_);
    if (filters_) {
      read_chunks(start, extent);
    } else {
      const hid_t memory = H5Screate_simple(rank_, extent, nullptr);
      if (H5Sselect_hyperslab(space_, H5S_SELECT_SET, start, nullptr, extent, nullptr) < 0 ||
          H5Dread(dataset_, type_, memory, space_, H5P_DEFAULT, bytes_.data()) < 0)
        fail_at(start[0]);
      H5Sclose(memory);
    }

    int outer = rank_;  // below it the block is one run of the dataset's bytes
    std::uint64_t run = unit_;
    while (outer > 0) {
      run *= extent[--outer];
      if (extent[outer] != sizes_[outer]) break;
    }
    hsize_t at[H5S_MAX_RANK] = {};
    for (std::uint64_t done = 0; done < bytes_.size(); done += run) {
      std::uint64_t element = 0;
      for (int d = 0; d < rank_; ++d) {
        element = element * (d == 0 ? 1 : sizes_[d]) + start[d] + at[d] - (d == 0 ? rows.begin : 0);
      }
      write_at(target_, bytes_.data() + done, run, rows.offset + element * unit_);
      for (int d = outer - 1; d >= 0 && ++at[d] == extent[d]; --d) at[d] = 0;
    }
  }

  [[noreturn]] void fail_at(std::uint64_t row) const {
    stop_at(path_, "rows from " + std::to_string(row) + " on cannot be decoded: a damaged chunk");
  }

  std::string path_;
  int target_;
  hid_t dataset_ = -1;
  hid_t type_ = -1;
  hid_t space_ = -1;
  int rank_ = 0;
  hsize_t sizes_[H5S_MAX_RANK] = {};
  hsize_t chunk_[H5S_MAX_RANK] = {};  // 1 each if there are none
  hsize_t block_[H5S_MAX_RANK] = {};
  std::uint64_t unit_ = 1;
  std::uint64_t chunk_bytes_ = 0;
  std::size_t swapped_bytes_ = 0;   // of a number whose bytes are in big-endian order
  std::optional<Filters> filters_;  // of chunks, also if they have none
  std::vector<unsigned char> fill_;
  std::vector<unsigned char> chunk_data_;
  std::vector<char> bytes_;
};

}  // namespace

int decode(const Range& range, const std::vector<Rows>& wanted, int target) {
  const hid_t file = open_range(range);
  for (const Rows& rows : wanted) Decoder(file, rows, target).run(rows);
  return 0;
}
