#include "api/convert/rank_totals.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "engine/process/memory.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other when all is done.
constexpr auto kFarewellPatience = std::chrono::seconds(10);

}  // namespace

Result<> sum_on_root(Comm& comm, RunReport& report, Deadline deadline) {
  std::array<std::uint64_t*, 6> counts{&report.read_bytes, &report.written_bytes,    &report.crc_checked,
                                       &report.crc_unread, &report.casts.overflowed, &report.casts.became_nan};
  std::string mine;
  for (const std::uint64_t* count : counts) mine += std::to_string(*count) + " ";
  CKPT_TRY(const std::vector<std::string> all, comm.gather(mine, deadline));
  if (!comm.is_root()) return {};
  for (std::uint64_t* count : counts) *count = 0;
  for (const std::string& packed : all) {
    std::string_view rest = packed;
    for (std::uint64_t* count : counts) {
      *count += take_number<std::uint64_t>(rest).value_or(0);
      rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
    }
  }
  return {};
}

std::uint64_t greatest_peak(Comm& comm, std::uint64_t beside) {
  std::array<std::uint64_t, 1> peak{peak_resident_bytes() + beside};
  if (comm.ranks() == 1) return peak[0];
  const std::uint64_t own = peak[0];
  return comm.max(peak, std::chrono::steady_clock::now() + kFarewellPatience) ? peak[0] : own;
}

}  // namespace ckpt
