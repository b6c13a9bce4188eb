#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/fault_io.hpp"

namespace ckpt {
namespace {

/// Opens the directory and asks for the place of every tensor.
Result<std::size_t> places(Io& io, const std::string& root) {
  CKPT_TRY(const Map map, dcp_format().reader->open(io, root, {}));
  std::size_t count = 0;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    CKPT_CHECK(map.index->chunks(i, {0, volume(map.tensors[i].shape)}, [&](const PlacedChunk&) -> Result<> {
      ++count;
      return {};
    }));
  }
  return count;
}

class DcpFault : public testing::TestWithParam<IoKind> {};

TEST_P(DcpFault, AnyFailingOperationIsAnErrorOrDoesNoHarm) {
  DcpFiles files;
  const dcp_build::View view{"ByteStorage", 50'000, 0, {50'000}, {1}};
  for (int i = 0; i < 40; ++i) {
    const std::string file = "__" + std::to_string(i % 3) + "_0.distcp";
    files.add({.fqn = "t" + std::to_string(i),
               .dtype = "uint8",
               .shape = {50'000},
               .chunks = {{{0}, {50'000}}},
               .records = {{Shape{0}, files.append(file, dcp_build::save_tensor(view, std::string(50'000, 'x')))}}});
  }
  files.add({.fqn = "step",
             .is_tensor = false,
             .records = {
                 {std::nullopt, files.append("__0_0.distcp", dcp_build::save_object(dcp_build::integer_pickle(1)))}}});
  files.write();

  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    auto inner = open_io(GetParam(), 4);
    if (!inner && GetParam() == IoKind::uring) GTEST_SKIP() << inner.error().message;
    ASSERT_TRUE(inner.has_value());
    auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::io);
    const auto io = make_fault_io(*std::move(inner), plan);
    const auto count = places(*io, files.root());
    if (count) {
      EXPECT_EQ(*count, 41u) << n;
    } else {
      EXPECT_EQ(count.error().code, Errc::io) << n << ": " << count.error().message;
      ++failed;
    }
    if (plan->first_failed().empty()) break;
  }
  EXPECT_GT(failed, 5u);  // at least the listing, .metadata and the data files
}

INSTANTIATE_TEST_SUITE_P(Engines, DcpFault, testing::Values(IoKind::threads, IoKind::uring),
                         [](const auto& test) { return test.param == IoKind::uring ? "uring" : "threads"; });

}  // namespace
}  // namespace ckpt
