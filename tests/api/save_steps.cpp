// A trainer for tests that kill it: saves small steps, and tells after each that it is durable; or loads the newest and
// compares every value.
//
//   save_steps save RUN FROM TO IO [LOCAL]      prints "durable STEP" a line, and "drained STEP" where it is told to
//                                               save to the directory LOCAL first
//   save_steps load RUN IO [LOCAL]              prints the step; 0 where there is none
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "ckpt/ckpt.hpp"

namespace {

constexpr std::size_t kElements = 3000;

std::vector<float> values(std::uint64_t step) {
  std::vector<float> out(kElements);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(step) * 10000.0F + static_cast<float>(i);
  return out;
}

int failed(const ckpt::Error& error) {
  std::fprintf(stderr, "%s\n", error.json.c_str());
  return error.code;
}

int save(ckpt::Run& run, std::uint64_t from, std::uint64_t to, bool in_tiers) {
  auto model = ckpt::Model::on({{"dp", 1}});
  if (!model) return failed(model.error());
  const ckpt::Tensor slot{
      .name = "optimizer.w", .shape = {kElements}, .role = "slot", .parameter = "w", .slot = "exp_avg"};
  for (const auto& done : {model->tensor({.name = "w", .shape = {kElements}}, {}), model->tensor(slot, {})}) {
    if (!done) return failed(done.error());
  }
  if (auto done = run.set_model(*model); !done) return failed(done.error());
  for (std::uint64_t step = from; step <= to; ++step) {
    const std::vector<float> now = values(step);
    auto begun = run.begin(step);
    if (!begun) return failed(begun.error());
    if (auto done = begun->add("w", now); !done) return failed(done.error());
    if (auto done = begun->add("optimizer.w", now); !done) return failed(done.error());
    auto pending = begun->commit();
    if (!pending) return failed(pending.error());
    if (auto done = pending->wait(std::chrono::minutes(1)); !done) return failed(done.error());
    std::printf("durable %llu\n", static_cast<unsigned long long>(step));
    std::fflush(stdout);
    if (!in_tiers) continue;
    if (auto done = pending->wait_drained(std::chrono::minutes(1)); !done) return failed(done.error());
    std::printf("drained %llu\n", static_cast<unsigned long long>(step));
    std::fflush(stdout);
  }
  return 0;
}

int load(ckpt::Run& run) {
  std::vector<float> weight(kElements);
  std::vector<float> slot(kElements);
  const ckpt::Read reads[] = {{.name = "w", .out = std::as_writable_bytes(std::span(weight))},
                              {.name = "optimizer.w", .out = std::as_writable_bytes(std::span(slot))}};
  const auto report = run.load(reads);
  constexpr int kNotFound = 10;
  if (!report && report.error().code != kNotFound) return failed(report.error());
  const std::uint64_t step = report ? report->step : 0;
  if (report && (weight != values(step) || slot != values(step))) {
    std::fprintf(stderr, "step %llu has other values\n", static_cast<unsigned long long>(step));
    return 1;
  }
  std::printf("%llu\n", static_cast<unsigned long long>(step));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool saves = !words.empty() && words[0] == "save";
  const bool loads = !words.empty() && words[0] == "load";
  const std::size_t io = saves ? 4 : 2;
  if (!(saves || loads) || words.size() < io + 1 || words.size() > io + 2) return 2;
  const std::string local = words.size() > io + 1 ? words[io + 1] : "";
  auto run = ckpt::Run::open(words[1], {.io = words[io], .local_directory = local});
  if (!run) return failed(run.error());
  const int code = saves ? save(*run, std::stoull(words[2]), std::stoull(words[3]), !local.empty()) : load(*run);
  const auto closed = run->close();
  return code != 0 || closed ? code : failed(closed.error());
}
