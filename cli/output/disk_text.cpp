#include "cli/output/disk_text.hpp"

#include <fmt/format.h>

namespace ckpt::cli {

std::string disk_text(const DiskSpeed& speed, SizeStyle sizes) {
  return fmt::format("write {} with its sync, read {}{}   ({}, one process)", format_rate(speed.write_rate(), sizes),
                     format_rate(speed.read_rate(), sizes), speed.direct ? "" : " (from memory, perhaps)",
                     format_size(speed.bytes, sizes));
}

Json to_json(const DiskSpeed& speed) {
  return {{"bytes", speed.bytes},
          {"write_s", speed.write_s},
          {"sync_s", speed.sync_s},
          {"read_s", speed.read_s},
          {"direct", speed.direct}};
}

}  // namespace ckpt::cli
