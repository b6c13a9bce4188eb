#include "cli/catalog_words.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "api/words.hpp"

namespace ckpt::cli {

std::string store_of(const Words& words) {
  const std::string given = words.text("store");  // or CKPT_STORE
  return given.empty() ? "." : given;
}

Result<std::chrono::milliseconds> lock_timeout_of(const Words& words) {
  const Value* value = words.value("lock-timeout");
  if (value == nullptr) return std::chrono::milliseconds(0);
  auto time = parse_duration(value->text);
  if (time) return time;
  Error error = std::move(time).error();
  error.message = fmt::format("{}: {}", value->origin, error.message);
  return fail(std::move(error));
}

catalog::Time now() {
  return std::chrono::time_point_cast<catalog::Duration>(std::chrono::system_clock::now());
}

std::string who() {
  const passwd* user = ::getpwuid(::geteuid());
  const std::string name = user != nullptr ? user->pw_name : fmt::format("uid {}", ::geteuid());
  return fmt::format("{}@{} pid {}", name, host_name(), ::getpid());
}

}  // namespace ckpt::cli
