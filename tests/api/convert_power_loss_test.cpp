// A whole convert on a disk that forgets what was not synced, and whose power goes at any operation: after it the
// target is the old one or the new one, and the new one where success was told.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "api/conversion_targets.hpp"
#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

using Tree = std::map<std::string, std::string>;  // path -> bytes, of the target

struct Case {
  ConversionTarget target;
  std::uint64_t stride = 1;  // between the operations at which the power goes
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.target.name;
}

class ConvertPowerLoss : public testing::TestWithParam<Case> {
 protected:
  /// A disk with the source, and with `old` at the target.
  std::unique_ptr<MemoryDisk> make_disk(const Tree& old = {}) const {
    auto disk = std::make_unique<MemoryDisk>();
    const std::string root = golden_root(GetParam().target.golden);
    test::FileTree files = test::read_tree(root);  // in one order, for the disk's clock gives the times
    for (auto& [path, bytes] : files) disk->put("/source/" + path, std::move(bytes));
    disk->put("/d/other", "other");
    for (const auto& [path, bytes] : old) disk->put(path, bytes);
    return disk;
  }
  static Result<ConvertReport> convert_on(std::unique_ptr<Io> io, bool changed = false) {
    const auto comm = Comm::solo();
    Session session{.io = *io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31};
    const ConversionTarget& target = GetParam().target;
    const ConvertRequest request{.source = "/source",
                                 .target = "/d/" + target.path,
                                 .to = target.to,
                                 .shard_bytes = target.shard_bytes,
                                 .options = target.options,
                                 .overwrite = true};
    return convert(session, changed ? target.changed(request) : request);
  }
  static Tree target_of(const MemoryDisk& disk) {
    Tree out;
    const std::string target = "/d/" + GetParam().target.path;
    for (const std::string& path : disk.tree()) {
      const bool inside = path == target || path.starts_with(target + "/");
      if (inside && !path.ends_with('/')) out[path] = disk.text(path);
    }
    return out;
  }
};

TEST_P(ConvertPowerLoss, AtAnyOperationLeavesOldOrNew) {
  const auto first = make_disk();
  ASSERT_TRUE(convert_on(first->io(), true));
  const Tree old = target_of(*first);
  const auto second = make_disk();
  const auto made = convert_on(second->io());
  ASSERT_TRUE(made) << made.error().message;
  const Tree fresh = target_of(*second);
  ASSERT_NE(old, fresh);

  const MemoryDisk::PowerLoss losses[] = {{}, {.name_operations = MemoryDisk::kAllNames}, {.block_seed = 1}};
  for (const bool existing : {false, true}) {
    for (MemoryDisk::PowerLoss loss : losses) {
      for (std::uint64_t n = 0;; n += GetParam().stride) {
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

std::vector<Case> cases() {
  const std::string zero3 = "deepspeed/zero3_bf16_dp3_frozen";
  std::vector<Case> out{
      {{.name = "OneFile", .path = "m.safetensors", .golden = zero3}},
      {{.name = "Shards", .path = "m", .to = "safetensors", .golden = zero3, .shard_bytes = 24 << 10}},
      {{.name = "Universal", .path = "m", .to = "ckpt", .golden = zero3}}};
  for (const ConversionTarget& target : foreign_targets()) out.push_back({target, fault_stride(target, 9)});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Targets, ConvertPowerLoss, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.target.name; });

}  // namespace
}  // namespace ckpt
