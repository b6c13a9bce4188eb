#include "cli/report/disk_text.hpp"

#include <fmt/format.h>

namespace ckpt::cli {

std::string disk_text(const DiskSpeed& speed, SizeStyle sizes) {
  return fmt::format("write {} (synced), read {}{}   ({}, one process)", format_rate(speed.write_rate(), sizes),
                     format_rate(speed.read_rate(), sizes), speed.direct ? "" : " (perhaps cached)",
                     format_size(speed.bytes, sizes));
}

void put(json::Writer& out, const std::optional<DiskSpeed>& speed) {
  if (!speed) {
    out.value(nullptr);
    return;
  }
  out.begin_object().member("bytes", speed->bytes).member("write_s", speed->write_s).member("sync_s", speed->sync_s);
  out.member("read_s", speed->read_s).member("direct", speed->direct).end_object();
}

}  // namespace ckpt::cli
