#pragma once

#include <string>
#include <string_view>

#include "api/catalog/store_catalog.hpp"
#include "cli/output/console.hpp"
#include "cli/output/table.hpp"
#include "cli/report/document.hpp"
#include "cli/report/say.hpp"
#include "cli/words/settings.hpp"

namespace ckpt::cli {

/// For people: sizes and ages, narrow columns.
Table entry_table(const CatalogListing& listing, SizeStyle sizes, catalog::Time now);
/// For programs: bytes and times.
Table entry_values(const CatalogListing& listing, const std::string& store);
/// The colour of a word in the column STATE.
Ink state_ink(std::string_view state);
/// Quoted as in RFC 4180, with the header row of the table; a line ends with a line feed alone. A cell that a
/// spreadsheet would run as a formula (it begins with = + - @ or a tab) gets an apostrophe before it.
std::string draw_csv(const Table& table);

/// The names of a checkpoint in every document: "run"; "name", which commands take; "directory" in its run.
void put_names(json::Writer& out, const std::string& run, const std::string& name, const std::string& directory);
/// `name`: as catalog::ShortNames has it.
void put(json::Writer& out, const catalog::Entry& entry, const std::string& name, const std::string& store);
void put(json::Writer& out, const StoreStatus& status, const std::string& store);
/// What `ckpt status` shows: a table of runs, then the store.
void print_status(Context& context, const StoreStatus& status, catalog::Time now);

/// Of a record's policy: "policy '*' of ckpt.toml", "policy of the command line".
std::string policy_text(const std::string& policy);

/// The name that a person types: RUN@STEP; with the generation where several saves of the step exist (`again`), or with
/// the name of the directory of another tool's checkpoint whose step does not name it.
std::string trash_name(const std::string& run, const std::string& name, std::uint64_t step, bool again = false);
/// Of what is in the trash. Without a record by the directory.
std::string trash_name(const catalog::TrashEntry& entry);

/// "2026-01-31 17:05 UTC".
std::string minute_text(catalog::Time time);

/// "3 d", "5 h", "2 min": how long ago.
std::string age_text(catalog::Time time, catalog::Time now);

}  // namespace ckpt::cli
