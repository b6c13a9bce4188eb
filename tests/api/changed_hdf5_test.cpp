// An HDF5 file whose data another process decodes, replaced meanwhile: that process opens it by its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

TEST(ChangedHdf5, IsConvertedAsItWasOrNotAtAll) {
  const std::string golden = golden_root("hdf5/chunked_filters") + "/file.h5";
  const TempDir directory(memory_temp_dir());
  const std::string source = directory.path() + "/file.h5";
  const std::string target = directory.path() + "/m.safetensors";
  std::size_t refused = 0;
  std::size_t done = 0;
  std::uint64_t operations = 1;
  for (std::uint64_t n = 0; n < operations; ++n) {
    fs::copy_file(golden, source, fs::copy_options::overwrite_existing);
    fs::remove(target);
    auto real = open_io(IoKind::threads, 4);
    ASSERT_TRUE(real);
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"open", "stat", "fstat"});
    const auto io = make_fault_io(std::move(*real), plan);
    plan->call_at(n, [&] {
      fs::copy_file(golden, source + ".new", fs::copy_options::overwrite_existing);
      fs::rename(source + ".new", source);
    });
    const auto comm = Comm::solo();
    Session session{.io = *io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 30};
    const auto converted = convert(session, {.source = source, .target = target});
    operations = std::max(operations, plan->operation_count());  // a refused one ends early
    if (converted) {
      ++done;
      continue;
    }
    ++refused;
    EXPECT_EQ(converted.error().code, Errc::changed) << "operation " << n << ": " << converted.error().message;
    EXPECT_FALSE(fs::exists(target)) << "operation " << n;
  }
  EXPECT_GT(refused, 4U);
  EXPECT_GT(done, 1U) << "before it was opened, and after the commit";
}

}  // namespace
}  // namespace ckpt
