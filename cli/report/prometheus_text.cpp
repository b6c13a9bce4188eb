#include "cli/report/prometheus_text.hpp"

#include <fmt/format.h>

#include <string_view>

#include "format/text/utf8.hpp"

namespace ckpt::cli {
namespace {

/// What is in use stays until the next run: that is no failure.
int is_success(const LastRun& run) {
  constexpr int kNotDone = exit_code(Errc::not_done);
  return run.exit_code == 0 || run.exit_code == kNotDone ? 1 : 0;
}

}  // namespace

std::string prometheus_text(const StoreStatus& status) {
  std::string out;
  const auto label = [](std::string_view run) {
    std::string text;
    const bool readable = is_utf8(run);  // otherwise Prometheus would refuse the whole file
    for (const char c : run) {
      if (!readable && static_cast<unsigned char>(c) >= 0x80) {
        text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        continue;
      }
      if (c == '\\' || c == '"') text += '\\';
      text += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return text;
  };
  const auto metric = [&](std::string_view name, std::string_view help, auto&& value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
    for (const catalog::RunSummary& run : status.runs) {
      if (const std::optional<double> number = value(run))
        out += fmt::format("{}{{run=\"{}\"}} {}\n", name, label(run.run), *number);
    }
  };
  const auto seconds = [](catalog::Time time) { return static_cast<double>(time.time_since_epoch().count()) / 1000; };
  using Run = catalog::RunSummary;
  metric("ckpt_checkpoints", "Checkpoints of a run.", [](const Run& run) { return run.count; });
  metric("ckpt_bytes", "Bytes of their files.", [](const Run& run) { return run.bytes; });
  metric("ckpt_newest_step", "Step of the newest checkpoint that can be used.",
         [](const Run& run) { return run.newest ? std::optional<double>(run.newest->step) : std::nullopt; });
  metric("ckpt_last_save_timestamp_seconds", "Time of the newest checkpoint that can be used.",
         [&](const Run& run) { return run.newest ? std::optional(seconds(run.newest->created)) : std::nullopt; });
  metric("ckpt_verified", "Verified checkpoints.", [](const Run& run) { return run.verified; });
  metric("ckpt_damaged", "Checkpoints known to be damaged.", [](const Run& run) { return run.damaged; });
  metric("ckpt_unreadable", "Checkpoints that cannot be read at present.",
         [](const Run& run) { return run.unreadable; });
  metric("ckpt_pinned", "Checkpoints with a pin.", [](const Run& run) { return run.pinned; });
  metric("ckpt_demoted", "Checkpoints whose optimizer was dropped.", [](const Run& run) { return run.demoted; });
  const auto sum = [&](std::string_view name, std::string_view help, auto value) {
    const char* type = name.ends_with("_total") ? "counter" : "gauge";
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {3}\n{0} {2}\n", name, help, value, type);
  };
  sum("ckpt_free_bytes", "Free bytes on the volume.", status.free_bytes);
  sum("ckpt_recycled_bytes", "Bytes of retired files that wait for the next save.", status.recycled.bytes);
  if (status.trash_unread.empty()) {
    sum("ckpt_trash_checkpoints", "Deleted checkpoints in the trash.", status.trash.checkpoints);
    sum("ckpt_trash_optimizers", "Dropped optimizers in the trash.", status.trash.optimizers);
    sum("ckpt_trash_bytes", "Bytes in the trash.", status.trash.bytes);
    sum("ckpt_trash_expired", "Of these, entries past the grace period: the next prune removes them.",
        status.trash.over);
    if (status.trash.first_over)
      sum("ckpt_trash_first_expiry_timestamp_seconds", "End of the first grace period.",
          seconds(*status.trash.first_over));
  }
  sum("ckpt_readers_here", "Claims of readers on this host.", status.readers.here);
  sum("ckpt_readers_elsewhere", "Claims of readers on other hosts that may be live.", status.readers.elsewhere);
  sum("ckpt_readers_silent", "Of those on other hosts, claims that have not changed lately.", status.readers.silent);
  if (const auto& last = status.last_prune) {
    sum("ckpt_last_prune_timestamp_seconds", "End of the last prune --apply.", seconds(last->at));
    sum("ckpt_last_prune_success", "1: success; 0: a guard stopped it, or it failed.", is_success(*last));
    sum("ckpt_last_prune_exit_code", "Its exit code; 3: checkpoints in use were kept, 4: a guard stopped it.",
        last->exit_code);
    sum("ckpt_pruned_checkpoints_total", "Checkpoints that prune deleted or reduced to weights.", last->count_total);
    sum("ckpt_pruned_bytes_total", "Bytes that prune moved to the trash.", last->bytes_total);
  }
  if (const auto& last = status.last_verify) {
    sum("ckpt_last_verify_timestamp_seconds", "End of the last verify --all.", seconds(last->at));
    sum("ckpt_last_verify_success", "1: no damage; 0: it found damage, or failed.", is_success(*last));
    sum("ckpt_last_verify_exit_code", "Its exit code; 1: damage was found.", last->exit_code);
    sum("ckpt_last_verify_damaged", "Damaged checkpoints that it found.", last->problems);
    sum("ckpt_verified_checkpoints_total", "Checkpoints that verify --all checked.", last->count_total);
    sum("ckpt_verified_bytes_total", "Bytes that verify --all read.", last->bytes_total);
  }
  return out;
}

}  // namespace ckpt::cli
