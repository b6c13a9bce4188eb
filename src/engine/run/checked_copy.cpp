#include "engine/run/checked_copy.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine/run/run.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kCopyStopPoll = std::chrono::milliseconds(20);

/// Bytes that may pass by now, at a rate.
class Limit {
 public:
  Limit(std::uint64_t bytes_per_second, const std::atomic<bool>* stop) : rate_(bytes_per_second), stop_(stop) {}

  /// Waits until as much time has passed as all bytes up to these take.
  Result<> pass(std::uint64_t bytes) {
    if (rate_ == 0) return {};
    passed_ += bytes;
    const std::chrono::duration<double> due(static_cast<double>(passed_) / static_cast<double>(rate_));
    for (;;) {
      if (stop_ != nullptr && stop_->load()) return fail(Errc::interrupted, "stopped");
      const auto left = due - (Clock::now() - start_);
      if (left.count() <= 0) return {};
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kCopyStopPoll));
    }
  }

 private:
  const std::uint64_t rate_;
  const std::atomic<bool>* stop_;
  const Clock::time_point start_ = Clock::now();
  std::uint64_t passed_ = 0;
};

}  // namespace

std::vector<TargetFile> targets_of(const std::vector<MapFile>& files) {
  std::vector<TargetFile> targets;
  for (std::uint32_t i = 0; i < files.size(); ++i) {
    TargetFile& target = targets.emplace_back(TargetFile{.path = files[i].path, .bytes = files[i].bytes});
    if (files[i].bytes == 0) continue;
    target.placements.push_back({.bytes = files[i].bytes, .from = Placement::From::raw, .raw_file = i});
  }
  return targets;
}

Result<> copy_checked(Io& io, const CheckedCopy& copy) {
  Map source;
  source.files = copy.files;
  CKPT_TRY(const Plan plan, Plan::make(source, targets_of(copy.files)));
  if (plan.totals().leaves != copy.leaves.size()) {
    return fail(Errc::internal, copy.source_root + ": the number of hashes differs from the number of leaves");
  }
  Limit limit(copy.bytes_per_second, copy.stop);
  const auto comm = Comm::solo();
  CKPT_TRY(const RunReport done,
           run(plan, io, *comm,
               {.source_root = copy.source_root,
                .target_root = copy.target_root,
                .workers = 1,  // the limit counts in one thread
                .pool = copy.pool,
                .deliver = [&](std::uint64_t leaf, const Hash128& hash, std::span<const std::byte> bytes) -> Result<> {
                  if (hash != copy.leaves[static_cast<std::size_t>(leaf)]) {
                    CKPT_TRY(const LeafJob job, plan.leaf(leaf));
                    const std::string path = join_path(copy.source_root, copy.files[job.file].path);
                    return fail({.code = Errc::checksum,
                                 .message = path + ": the bytes differ from the saved ones",
                                 .file = path,
                                 .offset = job.leaf * kLeafBytes});
                  }
                  return limit.pass(bytes.size());
                },
                .stop = copy.stop}));
  static_cast<void>(done);
  return {};
}

}  // namespace ckpt
