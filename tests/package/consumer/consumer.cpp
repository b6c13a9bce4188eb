// Saves and loads a small tensor with the installed library: consumer DIRECTORY.
#include <ckpt/ckpt.hpp>
#include <cstdio>
#include <vector>

namespace {

ckpt::Result<bool> round_trip(const std::string& directory) {
  const std::vector<float> saved{1, 2, 3.5F, 4, 5, 6};
  std::vector<float> loaded(saved.size());
  auto run = ckpt::Run::open(directory, {.staging_memory = 64 << 20});
  if (!run) return tl::unexpected(run.error());
  auto model = ckpt::Model::on({{"dp", 1}});
  if (!model) return tl::unexpected(model.error());
  if (auto done = model->tensor({.name = "w", .shape = {2, 3}}, {}); !done) return tl::unexpected(done.error());
  if (auto done = run->set_model(*model); !done) return tl::unexpected(done.error());
  auto save = run->begin(7);
  if (!save) return tl::unexpected(save.error());
  if (auto done = save->add("w", saved); !done) return tl::unexpected(done.error());
  auto pending = save->commit();
  if (!pending) return tl::unexpected(pending.error());
  if (auto done = pending->wait(std::chrono::minutes(1)); !done) return tl::unexpected(done.error());
  const std::vector<ckpt::Read> reads{{.name = "w", .out = std::as_writable_bytes(std::span(loaded))}};
  auto report = run->load(reads);
  if (!report) return tl::unexpected(report.error());
  if (auto done = run->close(); !done) return tl::unexpected(done.error());
  return report->step == 7 && loaded == saved;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto equal = round_trip(argv[1]);
  if (!equal) std::fprintf(stderr, "%s\n", equal.error().json.c_str());
  if (!equal || !*equal) return 1;
  std::puts("saved and loaded");
  return 0;
}
