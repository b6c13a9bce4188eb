#include "engine/io/replace_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/io/forwarding_io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<Io> threads_io() {
  return *open_io(IoKind::threads, 4);
}

TEST(ReplaceFile, WritersOfOneFileTakeTurnsAndReadersSeeOneOfTheirTexts) {
  const TempDir directory;
  const std::string path = directory.path() + "/file";
  constexpr std::size_t kWriters = 4;
  constexpr int kTimes = 50;
  std::vector<std::string> errors(kWriters);
  std::vector<std::thread> writers;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const auto io = threads_io();
      const std::string text(5000, "abcd"[writer]);
      for (int i = 0; i < kTimes; ++i) {
        if (auto replaced = replace_shared_file(*io, path, text); !replaced) errors[writer] = replaced.error().message;
        const std::string now = text_of(path);
        if (now.size() != text.size() || now.find_first_not_of(now[0]) != std::string::npos)
          errors[writer] = "a mixed or partial text";
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(errors, std::vector<std::string>(kWriters));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << "a temporary file stays";
}

TEST(ReplaceFile, WhereThereAreNoLocksItIsReplacedAllTheSame) {
  class WithoutLocks final : public ForwardingIo {
   public:
    using ForwardingIo::ForwardingIo;
    Result<std::unique_ptr<Io>> new_instance() const override { return inner().new_instance(); }
    Result<std::unique_ptr<HeldLock>> lock(const std::string&, LockMode) override {
      return fail(Errc::unsupported, "no locks here");
    }
  };
  const TempDir directory;
  const auto inner = threads_io();
  WithoutLocks io(*inner);
  ASSERT_TRUE(replace_shared_file(io, directory.path() + "/file", "text"));
  EXPECT_EQ(text_of(directory.path() + "/file"), "text");
}

}  // namespace
}  // namespace ckpt
