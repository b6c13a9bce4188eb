#include "helper/confine.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "helper/h5_file.hpp"
#include "support/temp_dir.hpp"

/// The helper's own ends with a message.
void stop(const std::string& reason, Verdict verdict) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::_Exit(100 + static_cast<int>(verdict));
}

namespace ckpt {
namespace {

constexpr Limits kLimits{.memory_bytes = std::uint64_t{1} << 30, .file_bytes = 4096};

/// Runs `tried` in a process that is confined; whether it succeeded there.
bool succeeds_confined(const std::function<bool()>& tried) {
  const pid_t child = ::fork();
  if (child == 0) {
    limit_resources(kLimits);
    confine();
    ::_exit(tried() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << "status " << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Confine : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__) && !defined(__aarch64__)
    GTEST_SKIP() << "no system call filter for this processor";
#endif
    held_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(held_, 0);
    ASSERT_EQ(::write(held_, "0123456789", 10), 10);
  }
  void TearDown() override {
    ::close(held_);
  }

  const TempDir directory_;
  const std::string file_ = directory_.path() + "/file";
  int held_ = -1;
};

TEST_F(Confine, WhatIsOpenIsReadAndWritten) {
  EXPECT_TRUE(succeeds_confined([&] {
    char byte = 0;
    return ::pread(held_, &byte, 1, 3) == 1 && byte == '3' && ::pwrite(held_, "x", 1, 3) == 1;
  }));
}

TEST_F(Confine, MemoryIsAllocated) {
  EXPECT_TRUE(succeeds_confined([] {
    void* const block = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != MAP_FAILED;
  }));
}

TEST_F(Confine, NoOtherFileIsOpenedMadeRenamedOrRemoved) {
  const std::string other = directory_.path() + "/other";
  EXPECT_FALSE(succeeds_confined([&] { return ::open(file_.c_str(), O_RDONLY | O_CLOEXEC) >= 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::open(other.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::mkdir(other.c_str(), 0700) == 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::rename(file_.c_str(), other.c_str()) == 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::link(file_.c_str(), other.c_str()) == 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::unlink(file_.c_str()) == 0; }));
  EXPECT_EQ(::access(file_.c_str(), F_OK), 0);
  EXPECT_NE(::access(other.c_str(), F_OK), 0);
}

TEST_F(Confine, NoProgramIsStartedAndNoSocketMade) {
  EXPECT_FALSE(succeeds_confined([] {
    char program[] = "/bin/true";
    char* const words[] = {program, nullptr};
    ::execv(program, words);
    return false;  // a program that started would have ended with 0
  }));
  EXPECT_FALSE(succeeds_confined([] { return ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0; }));
  EXPECT_FALSE(succeeds_confined([] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }));
  EXPECT_FALSE(succeeds_confined([] { return ::kill(::getppid(), 0) == 0; }));
}

TEST_F(Confine, NoMemoryBecomesCode) {
  EXPECT_FALSE(succeeds_confined(
      [] { return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; }));
  EXPECT_FALSE(succeeds_confined([] {
    void* const block = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED || ::mprotect(block, 4096, PROT_READ | PROT_EXEC) == 0;
  }));
}

TEST_F(Confine, AFileGrowsToItsLimitOnly) {
  EXPECT_TRUE(succeeds_confined([&] { return ::ftruncate(held_, 4096) == 0; }));
  EXPECT_FALSE(succeeds_confined([&] { return ::ftruncate(held_, 4097) == 0; }));
}

TEST_F(Confine, AFileThatIsOpenIsNotOpenedAgain) {
  EXPECT_FALSE(succeeds_confined(
      [&] { return ::open(("/proc/self/fd/" + std::to_string(held_)).c_str(), O_RDWR | O_CLOEXEC) >= 0; }));
}

}  // namespace
}  // namespace ckpt
