#include "data.hpp"

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

void Position::advance(std::uint64_t batch_samples) {
  consumed += batch_samples;
  if (consumed + batch_samples <= kSamples) return;
  ++epoch;
  consumed = 0;
}

Sample sample(const Position& position, std::uint64_t index, std::uint64_t augmentation, std::size_t width) {
  // The permutation of an epoch: an odd factor modulo a power of two visits every sample once.
  const std::uint64_t factor = mix(kSeed + position.epoch) | 1;
  const std::uint64_t number = (position.consumed + index) * factor % kSamples;
  Sample out{std::vector<float>(width), std::vector<float>(width)};
  for (std::size_t k = 0; k < width; ++k) {
    const float clean = unit((number << 20) + k);
    out.input[k] = clean + 0.01F * unit(augmentation + (index << 20) + k);
    out.target[(k + 1) % width] = 0.5F * clean;
  }
  return out;
}
