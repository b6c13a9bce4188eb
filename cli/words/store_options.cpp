#include "cli/words/store_options.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "api/catalog/store_place.hpp"
#include "catalog/bucket.hpp"
#include "catalog/scan/utc.hpp"
#include "engine/io/host.hpp"
#include "format/text/error_context.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {

std::string store_of(const Words& words) {
  const std::string given = words.text("store");  // or CKPT_STORE
  return given.empty() ? store_here() : given;
}

Result<std::string> listed_store(const Words& words) {
  if (words.arguments.empty()) return store_of(words);
  const Value* value = words.value("store");
  if (value != nullptr && value->origin == "--store")
    return fail(Errc::usage, fmt::format("STORE ('{}') and --store cannot be used together", words.arguments.front()));
  return words.arguments.front();
}

NamedCheckpoint named(const Words& words, const std::string& word) {
  return {.word = word, .store = store_of(words), .store_given = words.value("store") != nullptr, .now = now()};
}

Result<NamesInStore> names_of(Session& session, const Words& words) {
  const Value* value = words.value("store");
  return names_in_store(session.io, store_of(words), value != nullptr && value->origin == "--store", words.arguments);
}

Result<std::string> path_of(Session& session, const Words& words, const std::string& word) {
  return find_path(session, named(words, word));
}

Result<std::chrono::milliseconds> lock_timeout_of(const Words& words) {
  const Value* value = words.value("lock-timeout");
  if (value == nullptr) return std::chrono::milliseconds(0);
  auto time = parse_duration(value->text);
  if (time) return time;
  return fail(with_context(std::move(time).error(), value->origin));
}

Result<catalog::Time> time_of(const Value& value, catalog::Time now, bool forward) {
  if (const auto time = catalog::parse_time(value.text)) return *time;
  const auto span = parse_duration(value.text);
  if (!span)
    return fail(
        {.code = Errc::usage,
         .message = fmt::format("{}: '{}' is neither a time (30d) nor a day (2026-12-31)", value.origin, value.text)});
  return forward ? now + *span : now - *span;
}

catalog::Time now() {
  return std::chrono::time_point_cast<catalog::Duration>(std::chrono::system_clock::now());
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry != nullptr ? std::string(entry->pw_name) : fmt::format("uid {}", ::geteuid());
}

std::string who() {
  return fmt::format("{}@{} pid {}", user_name(), host_name(), ::getpid());
}

}  // namespace ckpt::cli
