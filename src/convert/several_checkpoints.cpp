#include "convert/several_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "engine/io/io.hpp"
#include "format/text/name_list.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kCheckpointsShown = 8;

// The last number in a name before its suffix, to order ck_2.pt and ck_10.pt if no file has its step.
std::optional<std::uint64_t> number_in_name(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789";
  if (const std::size_t dot = name.rfind('.'); dot != name.npos && dot != 0) name = name.substr(0, dot);
  const std::size_t last = name.find_last_of(kDigits);
  if (last == name.npos) return std::nullopt;
  const std::size_t before = name.find_last_not_of(kDigits, last);
  return parse_number<std::uint64_t>(name.substr(before + 1, last - before));  // npos + 1 is 0
}

}  // namespace

void sort_newest_first(std::vector<OneCheckpoint>& all) {
  const bool by_step = std::ranges::all_of(all, [](const OneCheckpoint& one) { return one.step.has_value(); });
  const auto age = [&](const OneCheckpoint& one) {
    return std::tuple(one.generation, by_step ? *one.step : 0, one.mtime_ns, number_in_name(one.name).value_or(0),
                      one.name);
  };
  std::ranges::sort(all, [&](const OneCheckpoint& a, const OneCheckpoint& b) { return age(a) > age(b); });
}

Error several_checkpoints(const std::string& directory, std::vector<OneCheckpoint> all) {
  sort_newest_first(all);
  NameList names(kCheckpointsShown);
  for (const OneCheckpoint& one : all)
    names.add(one.step ? fmt::format("{} (step {})", one.name, *one.step) : one.name);
  const OneCheckpoint& newest = all.front();
  return {.code = Errc::ambiguous,
          .message = fmt::format("{}: {} checkpoints, not one: {}", directory, all.size(), names.text()),
          .file = directory,
          .hint = fmt::format("give the path of one: {} is the newest{}", join_path(directory, newest.name),
                              newest.why.empty() ? "" : ", " + newest.why)};
}

}  // namespace ckpt
