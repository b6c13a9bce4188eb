// A whole convert on a disk that forgets what was not synced, and whose power goes at any operation: after it the
// target is the old one or the new one, and the new one where success was told.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

using Tree = std::map<std::string, std::string>;  // path -> bytes, of the target

struct Case {
  std::string name;
  std::string target;
  std::string to;
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

class ConvertPowerLoss : public testing::TestWithParam<Case> {
 protected:
  /// A disk with the source, and with `old` at the target.
  std::unique_ptr<MemoryDisk> make_disk(const Tree& old = {}) const {
    auto disk = std::make_unique<MemoryDisk>();
    const std::string root = golden_root("deepspeed/zero3_bf16_dp3_frozen");
    test::FileTree files = test::read_tree(root);  // in one order, for the disk's clock gives the times
    for (auto& [path, bytes] : files) disk->put("/source/" + path, std::move(bytes));
    disk->put("/d/other", "other");
    for (const auto& [path, bytes] : old) disk->put(path, bytes);
    return disk;
  }
  static Result<ConvertReport> convert_on(std::unique_ptr<Io> io, const std::string& prefix = {}) {
    const auto comm = Comm::solo();
    Session session{.io = *io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31};
    return convert(session, {.source = "/source",
                             .target = "/d/" + GetParam().target,
                             .to = GetParam().to,
                             .shard_bytes = 24 << 10,
                             .add_prefix = prefix,
                             .overwrite = true});
  }
  static Tree target_of(const MemoryDisk& disk) {
    Tree out;
    const std::string target = "/d/" + GetParam().target;
    for (const std::string& path : disk.tree()) {
      const bool inside = path == target || path.starts_with(target + "/");
      if (inside && !path.ends_with('/')) out[path] = disk.text(path);
    }
    return out;
  }
};

TEST_P(ConvertPowerLoss, AtAnyOperationLeavesOldOrNew) {
  const auto first = make_disk();
  ASSERT_TRUE(convert_on(first->io(), "old."));
  const Tree old = target_of(*first);
  const auto second = make_disk();
  const auto made = convert_on(second->io());
  ASSERT_TRUE(made) << made.error().message;
  const Tree fresh = target_of(*second);
  ASSERT_NE(old, fresh);

  const MemoryDisk::PowerLoss losses[] = {{}, {.name_operations = MemoryDisk::kAllNames}, {.block_seed = 1}};
  for (const bool existing : {false, true}) {
    for (MemoryDisk::PowerLoss loss : losses) {
      for (std::uint64_t n = 0;; ++n) {
        const auto disk = make_disk(existing ? old : Tree{});
        const auto faults = std::make_shared<FaultPlan>();
        faults->fail_from(n, Errc::io);
        const auto done = convert_on(make_fault_io(disk->io(), faults));
        if (loss.block_seed != 0) loss.block_seed = n + 1;
        disk->power_off(loss);
        const Tree now = target_of(*disk);
        SCOPED_TRACE("operation " + std::to_string(n) + ", " + faults->first_failed());
        ASSERT_TRUE(now == fresh || (!done && now == (existing ? old : Tree{}))) << "half";
        ASSERT_EQ(disk->text("/d/other"), "other");
        if (faults->first_failed().empty()) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ConvertPowerLoss,
                         testing::Values(Case{"OneFile", "m.safetensors", ""}, Case{"Shards", "m", "safetensors"},
                                         Case{"Universal", "m", "ckpt"}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace ckpt
