#include "helper/h5_filters.hpp"

#include <isa-l.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "helper/h5_file.hpp"

namespace {

constexpr H5Z_filter_t kLzf = 32000;  // h5py's, in HDF5's registry of filters
constexpr std::size_t kSumBytes = 4;  // of fletcher32, behind the data

/// A zlib stream (RFC 1950) that ends within `in` and decodes to at most out.size() bytes; `out` is shrunk to them.
bool inflate(const Filters::Bytes& in, Filters::Bytes& out) {
  static const auto state = std::make_unique<inflate_state>();
  isal_inflate_init(state.get());
  state->crc_flag = ISAL_ZLIB;
  state->next_in = const_cast<unsigned char*>(in.data());  // ISA-L reads it only
  state->avail_in = static_cast<std::uint32_t>(in.size());
  state->next_out = out.data();
  state->avail_out = static_cast<std::uint32_t>(out.size());
  if (isal_inflate(state.get()) != ISAL_DECOMP_OK || state->block_state != ISAL_BLOCK_FINISH) return false;
  out.resize(out.size() - state->avail_out);
  return true;
}

/// LZF of liblzf: 000LLLLL + L + 1 literals, or LLLooooo oooooooo, a copy of L + 2 bytes from o + 1 back, with a
/// further length byte between where LLL is 7.
bool unpack_lzf(const Filters::Bytes& in, Filters::Bytes& out) {
  std::size_t read = 0;
  std::size_t written = 0;
  while (read < in.size()) {
    const unsigned control = in[read++];
    if (control < 32) {
      const std::size_t count = control + 1;
      if (count > in.size() - read || count > out.size() - written) return false;
      std::memcpy(out.data() + written, in.data() + read, count);
      read += count;
      written += count;
      continue;
    }
    std::size_t count = control >> 5;
    if (count == 7) {
      if (read == in.size()) return false;
      count += in[read++];
    }
    count += 2;
    if (read == in.size()) return false;
    const std::size_t back = ((control & 31u) << 8 | in[read++]) + 1;
    if (back > written || count > out.size() - written) return false;
    for (std::size_t i = 0; i < count; ++i, ++written) out[written] = out[written - back];  // they may overlap
  }
  out.resize(written);
  return true;
}

/// HDF5's: over 16-bit big-endian words, an odd last byte as the high one (H5checksum.c, H5_checksum_fletcher32).
std::uint32_t fletcher32(const unsigned char* data, std::size_t bytes) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  for (std::size_t at = 0; at < bytes; at += 2) {
    low += static_cast<std::uint32_t>(data[at] << 8) + (at + 1 < bytes ? data[at + 1] : 0u);
    high += low;
    if (at / 2 % 360 == 359) {  // before the sums overflow
      low = fold(low);
      high = fold(high);
    }
  }
  low = fold(fold(low));
  high = fold(fold(high));
  return high << 16 | low;
}

/// HDF5 before 1.6.3 stored the two bytes of each half exchanged; it still takes those.
bool drop_fletcher32(Filters::Bytes& bytes) {
  if (bytes.size() < kSumBytes) return false;
  const unsigned char* stored = bytes.data() + bytes.size() - kSumBytes;
  const std::uint32_t sum = static_cast<std::uint32_t>(stored[0]) | static_cast<std::uint32_t>(stored[1]) << 8 |
                            static_cast<std::uint32_t>(stored[2]) << 16 | static_cast<std::uint32_t>(stored[3]) << 24;
  bytes.resize(bytes.size() - kSumBytes);
  const std::uint32_t computed = fletcher32(bytes.data(), bytes.size());
  return computed == sum || computed == ((sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8);
}

void unshuffle(const Filters::Bytes& in, Filters::Bytes& out, std::size_t element_bytes) {
  const std::size_t elements = in.size() / element_bytes;
  out.resize(in.size());
  for (std::size_t byte = 0; byte < element_bytes; ++byte) {
    for (std::size_t i = 0; i < elements; ++i) out[i * element_bytes + byte] = in[byte * elements + i];
  }
  const std::size_t whole = elements * element_bytes;
  std::copy(in.begin() + static_cast<std::ptrdiff_t>(whole), in.end(),
            out.begin() + static_cast<std::ptrdiff_t>(whole));
}

}  // namespace

Filters::Filters(hid_t create, const std::string& path) {
  const int count = H5Pget_nfilters(create);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    unsigned values[8] = {};
    std::size_t value_count = 8;
    char name[64] = {};
    const H5Z_filter_t filter =
        H5Pget_filter2(create, static_cast<unsigned>(i), &flags, &value_count, values, sizeof name, name, nullptr);
    name[sizeof name - 1] = '\0';
    if (filter == H5Z_FILTER_SHUFFLE && value_count == 0) stop(path + ": a shuffle filter without its element size");
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32 &&
        filter != kLzf) {
      stop(path + ": stored by filter " + std::to_string(filter) +
               (name[0] == '\0' ? std::string() : " (" + std::string(name) + ")") +
               ", not by gzip, lzf, shuffle or fletcher32",
           Verdict::unsupported);
    }
    filters_.push_back({filter, std::max<std::size_t>(1, values[0])});
  }
}

bool Filters::undo_one(const Filter& filter, Bytes& bytes, std::size_t most_bytes) {
  if (filter.id == H5Z_FILTER_FLETCHER32) return drop_fletcher32(bytes);
  if (filter.id == H5Z_FILTER_SHUFFLE) {
    unshuffle(bytes, spare_, filter.element_bytes);
  } else {
    spare_.resize(most_bytes);
    if (filter.id == kLzf ? !unpack_lzf(bytes, spare_) : !inflate(bytes, spare_)) return false;
  }
  bytes.swap(spare_);
  return true;
}

bool Filters::undo(Bytes& bytes, std::uint32_t skipped, std::size_t chunk_bytes) {
  const std::size_t most_bytes = chunk_bytes + kSumBytes * filters_.size();
  for (std::size_t i = filters_.size(); i-- > 0;) {
    if (i < 32 && (skipped >> i & 1) != 0) continue;
    if (!undo_one(filters_[i], bytes, most_bytes)) return false;
  }
  return bytes.size() == chunk_bytes;
}
