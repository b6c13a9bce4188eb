// Measures the parsers of metadata on one file: pickle::parse, and if the file is DCP's `.metadata`, all of
// parse_metadata. Prints the seconds of each, the best of three, and the peak memory as JSON.
//
//   bench_metadata FILE
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/process/memory.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace {

template <class Work>
double best_of_three(Work work) {
  double best = 1e9;
  for (int run = 0; run < 3; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_metadata FILE\n");
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary | std::ios::ate);
  if (!in) {
    fmt::print(stderr, "{}: cannot be read\n", argv[1]);
    return 1;
  }
  std::string text(static_cast<std::size_t>(in.tellg()), '\0');
  in.seekg(0).read(text.data(), static_cast<std::streamsize>(text.size()));
  const auto bytes = std::as_bytes(std::span(text));
  std::string failed;
  const double pickle_s = best_of_three([&] {
    if (const auto graph = ckpt::pickle::parse(bytes); !graph) failed = graph.error().message;
  });
  std::size_t entries = 0;
  std::size_t items = 0;
  const double parse_s = best_of_three([&] {
    const auto metadata = ckpt::dcp::parse_metadata(bytes);
    if (!metadata) {
      failed = metadata.error().message;
    } else {
      entries = metadata->entries.size();
      items = metadata->item_file.size();
    }
  });
  if (!failed.empty()) {
    fmt::print(stderr, "{}: {}\n", argv[1], failed);
    return 1;
  }
  fmt::print(R"({{"bytes":{},"entries":{},"items":{},"pickle_s":{:.3f},"parse_s":{:.3f},"peak_bytes":{}}})"
             "\n",
             text.size(), entries, items, pickle_s, parse_s, ckpt::peak_resident_bytes());
  return 0;
}
