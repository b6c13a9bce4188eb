#include "data.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// In [-1, 1), from the 24 high bits, so exact in a float.
float unit(std::uint64_t x) {
  return static_cast<float>(mix(x) >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

}  // namespace

std::uint64_t Random::next() {
  state += 0x9e3779b97f4a7c15U;
  return mix(state);
}

void Position::advance(std::uint64_t samples) {
  consumed += samples;
  epoch += consumed / kSamples;
  consumed %= kSamples;
}

Sample sample(const Position& position, std::uint64_t index, std::uint64_t augmentation, std::size_t width) {
  Position at = position;
  at.advance(index);
  // The permutation of an epoch: an odd factor modulo a power of two visits every sample once.
  const std::uint64_t factor = mix(kSeed + at.epoch) | 1;
  const std::uint64_t number = at.consumed * factor % kSamples;
  Sample out{std::vector<float>(width), std::vector<float>(width)};
  for (std::size_t k = 0; k < width; ++k) {
    const float clean = unit((number << 20) + k);
    out.input[k] = clean + 0.01F * unit(augmentation + (index << 20) + k);
    out.target[(k + 1) % width] = 0.5F * clean;
  }
  return out;
}

std::string to_text(const Position& position, std::uint64_t global_batch, int dp_size) {
  std::array<char, 256> text{};
  const int length = std::snprintf(text.data(), text.size(),
                                   "{\"data_ledger\": 1, \"epoch\": %-9" PRIu64 ", \"consumed\": %-9" PRIu64
                                   ", \"seed\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"global_batch\": %-9" PRIu64
                                   ", \"world\": %-9d, \"order\": \"global\"}",
                                   position.epoch, position.consumed, kSeed, kSamples, global_batch, dp_size);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string to_text(const Random& random) {
  std::array<char, 256> text{};
  const int length = std::snprintf(text.data(), text.size(),
                                   "{\"rng_stream\": 1, \"stream\": \"augment\", \"coords\": {}, \"algorithm\": "
                                   "\"splitmix64\", \"state\": \"%016" PRIx64 "\"}",
                                   random.state);
  return {text.data(), static_cast<std::size_t>(length)};
}

bool from_text(const std::string& text, Position& position) {
  return std::sscanf(text.c_str(), "{\"data_ledger\": 1, \"epoch\": %" SCNu64 " , \"consumed\": %" SCNu64,
                     &position.epoch, &position.consumed) == 2;
}

bool from_text(const std::string& text, Random& random) {
  const std::size_t state = text.find("\"state\": \"");
  return state != std::string::npos && std::sscanf(text.c_str() + state, "\"state\": \"%16" SCNx64, &random.state) == 1;
}
