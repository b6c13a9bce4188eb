#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/metrics_file.hpp"
#include "api/catalog/store_catalog.hpp"
#include "catalog/bucket.hpp"
#include "catalog/filter.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/commands/trash_list.hpp"
#include "cli/commands/watch.hpp"
#include "cli/output/table.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/report/prometheus_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/name_list.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

Result<CatalogQuery> read_query(const Words& words) {
  CatalogQuery query{
      .tag = words.text("tag"), .state = words.text("state"), .rebuild = words.on("rebuild"), .now = now()};
  if (const Value* value = words.value("where")) {
    auto filter = catalog::Filter::parse(value->text);
    if (!filter) {
      const Error& error = filter.error();
      return fail(
          {.code = Errc::usage, .message = fmt::format("{}: {}", value->origin, error.message), .hint = error.hint});
    }
    query.where = *std::move(filter);
  }
  if (const Value* value = words.value("since")) {
    CKPT_TRY(query.since, time_of(*value, query.now, false));
  }
  if (const Value* value = words.value("limit")) {
    const auto count = parse_count(value->text, 1, UINT64_MAX);
    if (!count)
      return fail({.code = Errc::usage, .message = fmt::format("{}: {}", value->origin, count.error().message)});
    query.limit = *count;
  }
  using Sort = CatalogQuery::Sort;
  const std::string sort = words.text("sort");
  query.sort = sort == "oldest" ? Sort::oldest
               : sort == "time" ? Sort::time
               : sort == "size" ? Sort::size
                                : Sort::newest;
  return query;
}

void warn(Context& context, Answer& answer, const std::vector<std::string>& warnings) {
  for (const std::string& text : warnings) answer.warnings.push_back({.severity = Severity::warning, .text = text});
  print_findings(context, answer.warnings);
}

void print_entries(Context& context, const CatalogListing& listing, const std::string& store, catalog::Time now) {
  const std::vector<catalog::Entry>& entries = listing.entries;
  if (context.settings.quiet) {
    std::string out;
    std::uint64_t left_out = 0;
    for (const catalog::Entry& entry : entries) {
      const std::string name = listing.names.of(entry);
      const bool shows = printable(name) == name;  // else it would be printed as another name
      if (shows) out += name + "\n";
      left_out += shows ? 0 : 1;
    }
    say(context, out, true);
    if (left_out > 0)
      context.console.err(fmt::format("{} omitted {} with unprintable characters; --json prints them",
                                      context.console.paint_err(Ink::yellow, "warning:"),
                                      format_counted(left_out, "name")));
    return;
  }
  const bool csv = context.words.on("csv");
  if (csv || context.words.on("tsv")) {
    const Table values = entry_values(listing, store);
    say(context, csv ? draw_csv(values) : draw_tsv(values));
    return;
  }
  if (entries.empty()) {
    say(context, listing.total == 0
                     ? (listing.saw_all ? "no checkpoints\n" : "no readable checkpoints\n")
                     : fmt::format("none of {} in the store matches\n", format_counted(listing.total, "checkpoint")));
    return;
  }
  const Table table = entry_table(listing, context.settings.sizes, now);
  const auto paint = [&](std::size_t column, const std::string& cell, std::string_view text) {
    const bool is_state = table.columns[column].title == "STATE";
    return is_state ? context.console.paint_out(state_ink(cell), text) : std::string(text);
  };
  std::uint64_t bytes = 0;
  for (const catalog::Entry& entry : entries) bytes += std::min(entry.checkpoint.bytes, UINT64_MAX - bytes);
  std::string out = draw_aligned(table, context.console.table_width(), paint).text;
  out +=
      fmt::format("{}, {}", format_counted(entries.size(), "checkpoint"), format_size(bytes, context.settings.sizes));
  if (entries.size() != listing.total) out += fmt::format(" of {} in the store", format_count(listing.total));
  say(context, out + "\n");
}

/// After a failure to sync the folder of a file that was replaced, the new one is in place.
Answer not_replaced(Error error, std::string effect) {
  const bool is_replaced = error.code == Errc::not_durable;
  return failed(std::move(error), is_replaced ? std::string() : std::move(effect));
}

/// "release, (no label)".
std::string pin_names(const std::vector<catalog::Pin>& pins) {
  NameList out;
  for (const catalog::Pin& pin : pins) out.add(pin.name.empty() ? "(no label)" : printable(pin.name));
  return out.text();
}

/// What an unpin did: "llama@5 was not pinned as 'two'; still pinned: one".
std::string unpinned_text(const MarkReport& report, const std::string& asked) {
  const std::vector<catalog::Pin>& pins = report.entry.checkpoint.pins;
  const std::string label = printable(report.label);
  const std::string still = pins.empty() ? "" : "; still pinned: " + pin_names(pins);
  if (report.changed) return fmt::format("unpinned {}{}\n", label, still);
  const std::string as = pins.empty()    ? ""
                         : asked.empty() ? " without a label"
                                         : fmt::format(" as '{}'", printable(asked));
  return fmt::format("{} was not pinned{}{}\n", label, as, still);
}

Answer change_pin(Context& context, bool remove) {
  const Words& words = context.words;
  MarkRequest request{.remove = remove, .now = now()};
  request.mark = {.kind = catalog::Mark::Kind::pin, .name = words.text("label"), .at = request.now};
  if (!remove) {
    request.mark.text = words.text("reason");
    request.mark.owner = words.text("owner").empty() ? user_name() : words.text("owner");
    if (const Value* value = words.value("until")) {
      auto until = time_of(*value, request.now, true);
      if (!until) return failed(std::move(until).error());
      if (*until <= request.now)
        return failed({.code = Errc::usage,
                       .message = fmt::format("--until {}: is in the past", value->text),
                       .hint = "give a time from now (30d) or a future day"});
      request.mark.until = *until;
    }
  }
  auto report = ask_by_name(context, [&](Session& session, NamesInStore named) -> Result<MarkReport> {
    request.store = std::move(named.store);
    request.checkpoint = std::move(named.names.front());
    return mark_checkpoint(session.io, request);
  });
  if (!report) return not_replaced(std::move(report).error(), "nothing was changed");
  Answer out;
  warn(context, out, report->warnings);
  if (context.settings.json) {
    json::Writer data = data_writer(out.data);
    data.begin_object().member("changed", report->changed);
    put(data.key("checkpoint"), report->entry, report->label, request.store);
    data.end_object();
    return out;
  }
  say(context,
      remove ? unpinned_text(*report, request.mark.name) : fmt::format("pinned {}\n", printable(report->label)));
  return out;
}

/// Each of these alone says what is printed.
Result<> check_forms(const Context& context) {
  std::string_view first = context.settings.quiet ? "quiet" : context.settings.json ? "json" : "";
  for (const std::string_view form : {"tsv", "csv"}) {
    if (!context.words.on(form)) continue;
    if (!first.empty()) return fail(Errc::usage, fmt::format("--{} and --{} cannot be used together", first, form));
    first = form;
  }
  return {};
}

Answer list_once(Context& context) {
  if (auto sound = check_forms(context); !sound) return failed(std::move(sound).error());
  if (context.words.on("trash")) return list_trash(context);
  auto query = read_query(context.words);
  if (!query) return failed(std::move(query).error());
  auto listing = ask_alone(context, [&](Session& session) -> Result<CatalogListing> {
    CKPT_TRY(StorePlace place, listed_place(session, context.words));
    query->store = std::move(place.store);
    query->run = std::move(place.run);
    query->memory_bytes = session.memory_bytes;
    return list_catalog(session.io, *query);
  });
  if (!listing) return failed(std::move(listing).error());
  Answer out;
  warn(context, out, listing->warnings);
  if (!listing->saw_all) out.exit_code = exit_code(Errc::not_done);
  if (!context.settings.json) {
    print_entries(context, *listing, query->store, query->now);
    return out;
  }
  json::Writer data = data_writer(out.data);
  data.begin_object();
  put_text(data, "store", query->store);
  data.member("total", listing->total).member("indexed", listing->indexed).key("checkpoints").begin_array();
  for (const catalog::Entry& entry : listing->entries) put(data, entry, listing->names.of(entry), query->store);
  data.end_array().end_object();
  return out;
}

Answer status_once(Context& context) {
  StorePlace place;
  const catalog::Time time = now();
  const Value* file = context.words.value("prom");
  auto status = ask_alone(context, [&](Session& session) -> Result<StoreStatus> {
    CKPT_TRY(place, listed_place(session, context.words));
    CKPT_TRY(StoreStatus out, store_status(session.io, place.store, place.run, time, session.memory_bytes));
    if (file != nullptr && file->text != "-") CKPT_CHECK(write_metrics(session.io, file->text, prometheus_text(out)));
    return out;
  });
  if (!status) return not_replaced(std::move(status).error(), file != nullptr ? "the file is unchanged" : "");
  Answer out;
  if (!status->trash_unread.empty()) status->warnings.push_back(status->trash_unread);
  warn(context, out, status->warnings);
  if (!status->saw_all) out.exit_code = exit_code(Errc::not_done);
  if (context.settings.json) {
    json::Writer data = data_writer(out.data);
    put(data, *status, place.store);
    return out;
  }
  if (file == nullptr) print_status(context, *status, time);
  if (file != nullptr && file->text == "-") say(context, prometheus_text(*status), true);
  return out;
}

}  // namespace

Answer run_list(Context& context) {
  return watched(context, [&] { return list_once(context); });
}

Answer run_status(Context& context) {
  return watched(context, [&] { return status_once(context); });
}

Answer run_pin(Context& context) {
  return change_pin(context, false);
}

Answer run_unpin(Context& context) {
  return change_pin(context, true);
}

}  // namespace ckpt::cli
