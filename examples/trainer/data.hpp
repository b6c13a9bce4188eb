#pragma once

// Synthetic data, and what of its state belongs into a checkpoint: the position in the data and the random stream, in
// the text form of src/format/LEDGER.md, each of one length, so that a reader knows how much room it needs.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

inline constexpr std::uint64_t kSamples = 4096;  // of an epoch
inline constexpr std::uint64_t kSeed = 20240229;

/// SplitMix64: a stream of numbers whose state is one number.
struct Random {
  std::uint64_t state = kSeed;
  std::uint64_t next();
};

/// Where training stands in the data. The same on all ranks, whatever their number: it counts global batches.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t consumed = 0;  ///< samples of this epoch, by all ranks together

  void advance(std::uint64_t samples);
};

/// Sample `index` of the global batch that begins at `position`: inputs in [-1, 1), with a little noise by
/// `augmentation`, and what the network should make of them. Both are `width` long.
struct Sample {
  std::vector<float> input, target;
};
Sample sample(const Position& position, std::uint64_t index, std::uint64_t augmentation, std::size_t width);

/// The blobs `data/ledger` and `rng/augment`.
std::string to_text(const Position& position, std::uint64_t global_batch, int dp_size);
std::string to_text(const Random& random);
/// False where the text is not one of these.
bool from_text(const std::string& text, Position& position);
bool from_text(const std::string& text, Random& random);
