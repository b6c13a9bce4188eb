#include "cli/report/conversion_text.hpp"

#include <fmt/format.h>

#include "cli/output/console.hpp"

namespace ckpt::cli {
namespace {

std::string checked_text(const ConvertReport& report) {
  if (report.verified == VerifyLevel::full) return "output read back, identical";
  if (report.verified == VerifyLevel::none) return "structure checked";
  if (report.hash_checked != 0)
    return fmt::format("{} source {} OK", format_count(report.hash_checked),
                       report.hash_checked == 1 ? "hash" : "hashes");
  const std::string unread =
      report.crc_unread == 0 ? "" : fmt::format(" ({} partly read, not compared)", format_count(report.crc_unread));
  if (report.crc_checked != 0) return format_counted(report.crc_checked, "source checksum") + " OK" + unread;
  if (report.crc_unread != 0) return "structure checked" + unread;
  return "structure checked (the source has no checksums)";
}

/// Of a conversion that took a while: "times   plan 0.2 s · copy 8.1 s · commit 1.9 s".
std::string times_text(const ConvertReport& report) {
  const PhaseTimes& times = report.times;
  std::string out =
      fmt::format("times   plan {} · copy {}", format_seconds(times.plan_s), format_seconds(times.copy_s));
  if (times.verify_s > 0) out += " · verify " + format_seconds(times.verify_s);
  return out + fmt::format(" · commit {}\n", format_seconds(times.commit_s));
}

}  // namespace

std::string plan_text(const ConvertReport& report, SizeStyle sizes) {
  std::string out = "source  " + report.source_format;
  if (!report.source_variant.empty()) out += " " + printable(report.source_variant);
  if (!report.source_chosen.empty()) out += ", " + printable(report.source_chosen);
  out += fmt::format("\ntarget  {}, {}: {}\n", report.target_format, format_counted(report.files.size(), "file"),
                     printable(report.target));
  out += fmt::format("plan    read {} → write {} · {} · memory limit {}", format_size(report.source_bytes, sizes),
                     format_size(report.target_bytes, sizes), format_counted(report.tensor_count, "tensor"),
                     format_size(report.memory_bound, sizes));
  if (report.ranks > 1) out += fmt::format(" each · {} ranks", report.ranks);
  if (report.free_bytes_after != 0)
    out += fmt::format("\nfree    {} afterwards", format_size(report.free_bytes_after, sizes));
  if (report.referenced_files != 0)
    out += fmt::format("\nrefers  to {} of the source, {}, not copied: keep {} unchanged",
                       format_counted(report.referenced_files, "file"), format_size(report.referenced_bytes, sizes),
                       report.referenced_files == 1 ? "it" : "them");
  return out + "\n";
}

std::string done_text(const ConvertReport& report, bool cast, SizeStyle sizes) {
  std::string out = fmt::format("done    {}, {} in {}", format_counted(report.files.size(), "file"),
                                format_size(report.target_bytes, sizes), format_seconds(report.seconds));
  if (report.seconds > 0.5 && report.resumed_bytes == 0 && report.target_bytes >= kLeastRated)
    out += fmt::format(" ({})", format_rate(static_cast<double>(report.target_bytes) / report.seconds, sizes));
  if (report.peak_bytes != 0) out += fmt::format(" · peak memory {}", format_size(report.peak_bytes, sizes));
  out += " · " + checked_text(report) + "\n";
  if (report.seconds > 0.5 && report.target_bytes >= kLeastRated) out += times_text(report);
  if (report.overflowed != 0 || report.became_nan != 0)
    out += fmt::format("cast    {} overflowed to Inf, {} became NaN\n", format_counted(report.overflowed, "value"),
                       format_count(report.became_nan));
  else if (cast)
    out += "cast    no overflow, no new NaN\n";
  return out;
}

}  // namespace ckpt::cli
