// Where the distributed optimizer of Megatron-LM keeps the state of weights.
#include <gtest/gtest.h>

#include <vector>

#include "convert/megatron/buffer_layout.hpp"

namespace ckpt::megatron {
namespace {

using Numbers = std::vector<std::uint64_t>;

Numbers joined(const BufferLayout& layout) {
  Numbers out;
  for (const BufferLayout::Place& place : layout.places) out.push_back(place.joined);
  return out;
}

TEST(MegatronBuffers, WeightsLieInReverseAtMultiplesOf64) {
  const std::vector<BufferedWeight> weights{{.elements = 100}, {.elements = 10}, {.elements = 65}};
  const BufferLayout layout = lay_out_buffer(weights, std::nullopt);
  EXPECT_EQ(joined(layout), (Numbers{192, 128, 0}));
  EXPECT_EQ(layout.buckets, (Numbers{292}));
  EXPECT_EQ(layout.elements, 292U);
}

TEST(MegatronBuffers, AFullBucketEndsWithItsLastWeight) {
  const std::vector<BufferedWeight> weights{{.elements = 100}, {.elements = 10}, {.elements = 65}};
  const BufferLayout layout = lay_out_buffer(weights, 60);
  EXPECT_EQ(layout.buckets, (Numbers{65, 164}));  // the second: 10, a gap of 54, 100
  EXPECT_EQ(joined(layout), (Numbers{129, 65, 0}));
  EXPECT_EQ(layout.places[0].bucket, 1U);
  EXPECT_EQ(layout.places[0].offset, 64U);
}

TEST(MegatronBuffers, AnEmbeddingOfTwoStagesHasABucketOfItsOwn) {
  const std::vector<BufferedWeight> weights{{.elements = 30, .is_shared = true}, {.elements = 10}};
  const BufferLayout layout = lay_out_buffer(weights, std::nullopt);
  EXPECT_EQ(layout.buckets, (Numbers{64, 30}));  // the gap before it belongs to the bucket that ends there
  EXPECT_EQ(joined(layout), (Numbers{64, 0}));
  const std::vector<BufferedWeight> last{{.elements = 10}, {.elements = 30, .is_shared = true}};
  EXPECT_EQ(lay_out_buffer(last, std::nullopt).buckets, (Numbers{30, 10}));
  EXPECT_TRUE(lay_out_buffer({}, std::nullopt).buckets.empty());
}

}  // namespace
}  // namespace ckpt::megatron
