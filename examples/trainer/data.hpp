#pragma once

// Synthetic data, and its checkpointed state: the position in the data and the random stream.
#include <cstddef>
#include <cstdint>
#include <vector>

inline constexpr std::uint64_t kSamples = 4096;  // of an epoch
inline constexpr std::uint64_t kSeed = 20240229;

/// SplitMix64: a stream of numbers whose state is one number.
struct Random {
  std::uint64_t state = kSeed;
  std::uint64_t next();
};

/// The position in the data. It counts global batches, so it is the same on any number of ranks. An incomplete batch at
/// the end of an epoch is skipped.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t consumed = 0;  ///< samples of this epoch, by all ranks together

  void advance(std::uint64_t batch_samples);
};

/// Sample `index` of the global batch that begins at `position`: inputs in [-1, 1), with a little noise by
/// `augmentation`, and the expected outputs. Both are `width` long.
struct Sample {
  std::vector<float> input, target;
};
Sample sample(const Position& position, std::uint64_t index, std::uint64_t augmentation, std::size_t width);
