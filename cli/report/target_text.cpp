#include "cli/report/target_text.hpp"

#include <fmt/format.h>

#include "cli/output/console.hpp"

namespace ckpt::cli {

std::string already_done_text(const std::string& target, const std::string& id) {
  return fmt::format("already done: {} is the result of this conversion (id {})\n", printable(target), id);
}

std::string effect_on(const std::string& target, const Error& error, bool dry_run, bool overwrite) {
  if (dry_run || error.code == Errc::usage || error.code == Errc::target_exists) return {};
  if (error.code == Errc::not_durable || error.code == Errc::not_done) return fmt::format("{} is in place", target);
  return overwrite ? fmt::format("{} is unchanged", target) : fmt::format("nothing was written to {}", target);
}

std::string replaced_text(const ConvertReport& report, bool listed, SizeStyle sizes) {
  if (report.replaced.empty()) return {};
  std::uint64_t total = 0;
  std::string files;
  for (const auto& [path, bytes] : report.replaced) {
    total += bytes;
    if (listed)
      files += fmt::format("remove  {}   {}\n", printable(join_path(report.target, path)), format_size(bytes, sizes));
  }
  return fmt::format("replace {}, {} in {}\n", printable(report.target), format_size(total, sizes),
                     format_counted(report.replaced.size(), "file")) +
         files;
}

}  // namespace ckpt::cli
