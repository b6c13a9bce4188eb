// Checkpoints that many writers wrote, in any layouts, read back bit for bit and verify.
#include <gtest/gtest.h>
// rapidcheck's GoogleTest extra needs the line above.
#include <rapidcheck/gtest.h>

#include <numeric>
#include <random>
#include <string>

#include "convert/formats.hpp"
#include "support/golden.hpp"
#include "support/mesh_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

RC_GTEST_PROP(UniversalMesh, WhatManyWritersWroteReadsBackBitForBit, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const test::MeshCheckpoint checkpoint = test::random_mesh_checkpoint(random);
  const TempDir dir;
  const std::string root = dir.path() + "/x";
  test::write_mesh_checkpoint(checkpoint, root);
  RC_ASSERT(!testing::Test::HasFatalFailure());
  const auto io = open_io(IoKind::threads).value();
  const auto map = universal_format().reader->open(*io, root, {});
  if (!map) RC_FAIL(map.error().message);
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  if (!covered) RC_FAIL(covered.error().message);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const Gathered gathered = gather(*map, root, i);
    RC_ASSERT(gathered.complete && gathered.once);
    const bool same = gathered.bytes == checkpoint.bytes[i];  // not RC_ASSERT(a == b), which would print them
    RC_ASSERT(same);
  }
  const auto stored = universal_format().hashes(*io, root);
  if (!stored) RC_FAIL(stored.error().message);
  if (!stored->findings.empty()) RC_FAIL(stored->findings[0].text);
}

}  // namespace
}  // namespace ckpt
