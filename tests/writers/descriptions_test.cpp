#include "writers/descriptions.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckpt::test {
namespace {

const Tensor kTensor{.name = "w", .dtype = Dtype::f32, .shape = {4, 6}};

std::string told(const Chunk& chunk, const Tensor& tensor = kTensor) {
  const std::vector<Piece> pieces = {{.described = tensor, .chunk = chunk}};
  return descriptions_text(pieces);
}

Chunk rows(std::uint64_t begin, std::uint64_t count) {
  return {.box = {.offset = {begin, 0}, .size = {count, 6}}};
}

Chunk flat(std::uint64_t begin, std::uint64_t end) {
  return {.box = Box::whole({4, 6}), .flat = Extent{begin, end}};
}

std::string refused(const std::vector<std::string>& texts, const Model& model = {}) {
  const auto merged = merge_descriptions(model, texts);
  if (merged) return "taken";
  EXPECT_EQ(merged.error().code, Errc::usage);
  return merged.error().message;
}

TEST(Descriptions, PartsOfAnyKindThatCoverATensorMakeOneOfIt) {
  const std::vector<std::vector<std::string>> covers = {
      {told(rows(0, 4))},
      {told(rows(2, 2)), told(rows(0, 2))},
      {told(rows(0, 2)) + told(rows(2, 2)), ""},
      {told(rows(0, 4)), told(rows(0, 4))},  // replicas
      {told(flat(0, 7)), told(flat(7, 24))},
      {told(rows(0, 1)), told(flat(6, 24))},
      {told(rows(0, 4)), told(flat(5, 5))},
  };
  for (const auto& texts : covers) {
    const auto merged = merge_descriptions({}, texts);
    ASSERT_TRUE(merged) << merged.error().message;
    ASSERT_EQ(merged->tensors.size(), 1u);
    EXPECT_EQ(merged->tensors.front().shape, kTensor.shape);
  }
}

TEST(Descriptions, AHoleAndAnOverlapAreRefusedWithTheTensor) {
  EXPECT_EQ(refused({told(rows(0, 2)), told(rows(3, 1))}),
            "w: 6 of 24 elements are in no file, according to the ranks' descriptions");
  EXPECT_EQ(refused({told(flat(0, 7)), told(flat(8, 24))}),
            "w: elements 7..7 are in no file, according to the ranks' descriptions");
  EXPECT_EQ(refused({told(rows(0, 3)), told(rows(2, 2))}),
            "w: the box at [2, 0] of size [1, 6] is in two files, according to the ranks' descriptions");
}

TEST(Descriptions, WhatDoesNotFitTheTensorIsRefused) {
  EXPECT_EQ(refused({told(rows(3, 2))}), "w: a part lies outside of the tensor");
  EXPECT_EQ(refused({told(rows(~0ULL, 2))}), "w: a part lies outside of the tensor");
  EXPECT_EQ(refused({told({.box = {.offset = {0}, .size = {4}}})}), "w: a part lies outside of the tensor");
  EXPECT_EQ(refused({told(flat(0, 25))}), "w: a flat range passes the end of its box");
  EXPECT_EQ(refused({told(flat(9, 8))}), "w: a flat range passes the end of its box");
  const Tensor huge{.name = "w", .dtype = Dtype::f32, .shape = {1ULL << 40, 1ULL << 40}};
  EXPECT_EQ(refused({told({.box = Box::whole(huge.shape)}, huge)}), "w: its size overflows 64 bits");
}

TEST(Descriptions, APartThatSharesAByteWithAnotherIsRefused) {
  const Tensor odd{.name = "w", .dtype = Dtype::f4, .shape = {4, 3}};
  const auto part = [&](Shape offset, Shape size) { return told({.box = {std::move(offset), std::move(size)}}, odd); };
  const std::string reason = "w: elements that share a byte would go to two places";
  EXPECT_EQ(refused({part({0, 0}, {1, 3}), part({1, 0}, {3, 3})}), reason);
  EXPECT_EQ(refused({part({0, 0}, {4, 2}), part({0, 2}, {4, 1})}), reason) << "whole bytes in sum, but not row by row";
  EXPECT_EQ(refused({told({.box = Box::whole(odd.shape), .flat = Extent{0, 5}}, odd),
                     told({.box = Box::whole(odd.shape), .flat = Extent{5, 12}}, odd)}),
            reason);
  EXPECT_EQ(refused({part({0, 0}, {2, 3}), part({2, 0}, {2, 3})}), "taken");
}

TEST(Descriptions, ATensorThatTwoRanksDescribeDifferentlyOrThatTheModelHasIsRefused) {
  Tensor other = kTensor;
  other.dtype = Dtype::bf16;
  EXPECT_EQ(refused({told(rows(0, 2)), told(rows(2, 2), other)}), "w: ranks describe it differently");
  const auto model = Model::make({{.kind = universal::Layout::Kind::mesh}}, {{.tensor = kTensor}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(refused({told(rows(0, 4))}, *model), "w: already in the model; add it without a description");
}

TEST(Descriptions, ATextThatIsCutShortIsRefused) {
  const std::string text = told(flat(0, 24));
  for (std::size_t bytes = 1; bytes < text.size(); ++bytes) {
    const auto merged = merge_descriptions({}, std::vector<std::string>{text.substr(0, bytes)});
    ASSERT_FALSE(merged) << bytes;
    EXPECT_EQ(merged.error().code, Errc::internal);
  }
}

}  // namespace
}  // namespace ckpt::test
