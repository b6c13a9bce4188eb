#include "format/hash.hpp"

#include <isa-l/crc.h>

#include <cstring>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // renames XXH3_* to the variants that pick AVX2 or AVX-512 at run time
#else
#include <xxhash.h>
#endif

namespace ckpt {
namespace {

Hash128 canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Hash128 out;
  std::memcpy(out.bytes.data(), bytes.digest, out.bytes.size());
  return out;
}

}  // namespace

std::string Hash128::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<Hash128> Hash128::from_hex(std::string_view digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Hash128 out;
  if (digits.size() != 2 * out.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < out.bytes.size(); ++i) {
    const std::size_t high = kDigits.find(digits[2 * i]);
    const std::size_t low = kDigits.find(digits[2 * i + 1]);
    if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
    out.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return out;
}

Hash128 hash128(std::span<const std::byte> data) {
  return canonical(XXH3_128bits(data.data(), data.size()));
}

Hash128 hash128(std::string_view text) {
  return hash128(std::as_bytes(std::span(text)));
}

Hasher::Hasher() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hasher::~Hasher() {
  XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}

void Hasher::update(std::span<const std::byte> data) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data.data(), data.size());
}

void Hasher::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

void Hasher::update_u64(std::uint64_t value) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  update(std::span<const std::byte>(bytes));
}

void Hasher::update_u32(std::uint32_t value) {
  std::array<std::byte, 4> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  update(std::span<const std::byte>(bytes));
}

Hash128 Hasher::digest() const {
  return canonical(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

std::uint64_t hash64(std::string_view text) {
  return XXH64(text.data(), text.size(), 0);
}

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> data) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

namespace {

// Polynomials over GF(2) modulo that of ISO CRC-32, bit-reversed: the coefficient of x^0 is the highest bit.
constexpr std::uint32_t kCrcPolynomial = 0xedb88320;
constexpr std::uint32_t kCrcOne = 0x80000000;

std::uint32_t crc_multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kCrcOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kCrcPolynomial : b >> 1;
  }
  return product;
}

}  // namespace

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  // The following bytes shift the first piece's remainder by x^(8 * bytes), squared together from x^8.
  std::uint32_t shift = kCrcOne;
  std::uint32_t power = kCrcOne >> 8;
  for (std::uint64_t left = second_bytes; left != 0; left >>= 1) {
    if ((left & 1) != 0) shift = crc_multiply(shift, power);
    power = crc_multiply(power, power);
  }
  return crc_multiply(shift, first) ^ second;
}

}  // namespace ckpt
