#pragma once

#include <string>
#include <string_view>

#include "api/catalog/store_catalog.hpp"
#include "cli/output/table.hpp"
#include "cli/report/document.hpp"
#include "cli/words/settings.hpp"

namespace ckpt::cli {

/// "durable", "verified", ...
std::string_view state_word(catalog::State state);
/// The form that other commands accept: "llama8b@step-000001000.g7".
std::string entry_name(const catalog::Entry& entry);

/// `for_people`: sizes and ages; else bytes and times.
Table entry_table(const std::vector<catalog::Entry>& entries, bool for_people, SizeStyle sizes, catalog::Time now);
/// Quoted as in RFC 4180, with the header row of the table; a line ends with a line feed alone. A cell that a
/// spreadsheet would run as a formula (it begins with = + - @ or a tab) gets an apostrophe before it.
std::string draw_csv(const Table& table);

void put(json::Writer& out, const catalog::Entry& entry, const std::string& store);
void put(json::Writer& out, const StoreStatus& status, const std::string& store);
/// What `ckpt status` shows.
std::string status_text(const StoreStatus& status, SizeStyle sizes, catalog::Time now);

/// Of a record's policy: "policy '*' of ckpt.toml", "policy of the command line".
std::string policy_text(const std::string& policy);

/// "3 d", "5 h", "2 min": how long ago.
std::string age_text(catalog::Time time, catalog::Time now);

}  // namespace ckpt::cli
