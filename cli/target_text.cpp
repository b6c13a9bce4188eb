#include "cli/target_text.hpp"

#include <fmt/format.h>

#include "cli/session.hpp"

namespace ckpt::cli {

std::string already_done_text(const std::string& target, const std::string& id) {
  return fmt::format("already done: {} was made from this source with these parameters (id {})\n", printable(target),
                     id);
}

std::string effect_on(const std::string& target, const Error& error, bool dry_run, bool overwrite) {
  if (dry_run || error.code == Errc::usage || error.code == Errc::target_exists) return {};
  if (error.code == Errc::not_durable || error.code == Errc::not_done) return fmt::format("{} is in place", target);
  return overwrite ? fmt::format("{} is as it was", target) : fmt::format("nothing was written to {}", target);
}

}  // namespace ckpt::cli
