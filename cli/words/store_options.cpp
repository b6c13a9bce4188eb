#include "cli/words/store_options.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "catalog/bucket.hpp"
#include "catalog/scan/utc.hpp"
#include "engine/io/host.hpp"
#include "format/text/error_context.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

/// "@latest" in a run is that of the run.
std::string in_run(const std::string& word, const StorePlace& here) {
  return word.starts_with('@') ? here.run + word : word;
}

}  // namespace

std::string store_of(const Words& words) {
  const std::string given = words.text("store");  // or CKPT_STORE
  return given.empty() ? place_here().store : given;
}

bool is_store_found(const Words& words, const std::string& store) {
  return words.value("store") == nullptr && store != ".";
}

Result<std::vector<std::string>> runs_of(const Words& words) {
  if (words.value("store") == nullptr) CKPT_CHECK(check_no_stores(words.arguments));
  return words.arguments;
}

Result<StorePlace> listed_place(Session& session, const Words& words) {
  const Value* value = words.value("store");
  if (!words.arguments.empty() && value != nullptr && value->origin == "--store")
    return fail(Errc::usage, fmt::format("STORE ('{}') and --store cannot be used together", words.arguments.front()));
  const std::string given = words.arguments.empty() ? words.text("store") : words.arguments.front();
  StorePlace out = given.empty() ? place_here() : store_place(session.io, given);
  const std::string run = words.text("run");
  if (given.empty())
    out.run = run;  // of the whole store, wherever the command runs
  else if (!run.empty())
    out.run = join_path(out.run, run);
  return out;
}

NamedCheckpoint named(const Words& words, const std::string& word) {
  if (words.value("store") != nullptr)
    return {.word = word, .store = words.text("store"), .store_given = true, .now = now()};
  const StorePlace here = place_here();
  return {.word = in_run(word, here), .store = here.store, .now = now()};
}

Result<NamesInStore> names_of(Session& session, const Words& words) {
  const Value* value = words.value("store");
  if (value != nullptr) return names_in_store(session.io, value->text, value->origin == "--store", words.arguments);
  const StorePlace here = place_here();
  std::vector<std::string> names = words.arguments;
  for (std::string& name : names) name = in_run(name, here);
  return names_in_store(session.io, here.store, false, std::move(names));
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
