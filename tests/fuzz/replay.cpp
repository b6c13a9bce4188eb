// Runs a fuzz target over files: each input as it stands, then cut short and with bytes changed, in ways fixed by a
// seed.
//
//   TARGET_replay CORPUS_DIRECTORY [DIRECTORY...]
//
// CKPT_DAMAGE_TRIALS: changes of each small input, in place of 256.
//
// Exit 0: every input was survived. 1: no input was found. A crash, an uncaught exception or an allocation beyond the
// address space limit ends the program; the input at work is named on stderr first.
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kSmallInput = 64 * 1024;  // larger ones get fewer changes, so that a replay stays under seconds

std::string at_work;  // what the terminate handler names

void feed(const std::string& name, const std::vector<std::uint8_t>& bytes) {
  at_work = name;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void feed_damaged(const std::string& name, const std::vector<std::uint8_t>& bytes) {
  if (bytes.empty()) return;
  const char* given = std::getenv("CKPT_DAMAGE_TRIALS");
  const unsigned long small = given == nullptr ? 256 : std::strtoul(given, nullptr, 10);
  const unsigned long count = bytes.size() <= kSmallInput ? small : 16;
  std::mt19937_64 random(bytes.size());
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  for (unsigned long n = 0; n < count; ++n) {
    std::vector<std::uint8_t> damaged = bytes;
    if (n % 4 == 0) {
      damaged.resize(below(bytes.size()));
    } else {
      // Small numbers, all ones and single bits are what lengths, offsets and opcodes are hurt by.
      const std::size_t at = below(damaged.size());
      const std::size_t end = std::min(damaged.size(), at + (n % 4 == 1 ? 1 : 8));
      for (std::size_t i = at; i < end; ++i) {
        damaged[i] = n % 4 == 3 ? std::uint8_t{0xff} : static_cast<std::uint8_t>(damaged[i] ^ (1u << below(8)));
      }
    }
    feed(name + " damaged " + std::to_string(n), damaged);
  }
}

std::vector<std::filesystem::path> files_under(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::is_directory(directory)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.path().filename() != ".gitkeep") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

int main(int argc, char** argv) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer reserves terabytes of addresses
  constexpr rlim_t kAddressSpace = rlim_t{2} << 30;
  const rlimit limit{kAddressSpace, kAddressSpace};
  setrlimit(RLIMIT_AS, &limit);
#endif
  std::set_terminate([] {
    std::fprintf(stderr, "input: %s\n", at_work.c_str());
    std::abort();
  });
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& path : files_under(argv[i])) {
      std::fprintf(stderr, "%s\n", path.c_str());
      std::ifstream stream(path, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
      const std::vector<std::uint8_t> bytes(text.begin(), text.end());
      feed(path, bytes);
      feed_damaged(path, bytes);
      ++count;
    }
  }
  std::printf("%zu inputs\n", count);
  return count > 0 ? 0 : 1;
}
