#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/result.hpp"

/// The checks of FORMAT.md section 10: the checks of a reader of the universal format, with the numbers in the text,
/// and the outcome of a violation. tests/api/format_checks_test.cpp compares the text with this table.
namespace ckpt::universal {

/// Numbers are never used again for something else.
enum class Check : std::uint8_t {
  committed = 1,
  manifest_ends,
  manifest_hash,
  manifest_json,
  version,
  required_features,
  layout_kind,
  dropped_class,
  members,
  integers,
  digits,
  created,
  revision,
  severity,
  aliases,
  tensor_names,
  dtype,
  role,
  shape,
  blob,
  path,
  row_layout,
  layout,
  layout_fits,
  sums_present,
  sums_hash,
  sums_version,
  sums_form,
  sums_id,
  record_class,
  record,
  record_leaves,
  files_present,
  file_size,
  places,
  index_hash,
  index_version,
  index_form,
  index_id,
  index_records,
  index_chunks,
  index_places,
  whole_bytes,
  covered,
  overlap,
  objects_hash,
  objects_version,
  objects_form,
  objects_id,
  value_kind,
  value_form,
  value_limits,
  roots,
  header_form,
  header_entries,
  header_series,
  header_slices,
  index_offsets,
  second_manifest,
  leaves,
  copies,
  strays,
  references,
  referenced_chunks,
  referenced_present,
  referenced_same,
};

struct CheckRow {
  Check check = Check::committed;
  Errc outcome = Errc::corrupt;  ///< of a violation; differs: only verify checks it, and reports damage
  std::string_view words{};      ///< the rule, as FORMAT.md writes it
};
std::span<const CheckRow> all_checks();

/// " (FORMAT.md, check 17)": the end of messages about a violation.
std::string check_suffix(Check check);

/// The failure of a check, with its outcome and number. Messages read "object: operation: reason".
[[nodiscard]] tl::unexpected<Error> violates(Check check, std::string message);
/// Of an error that knows more; its code is replaced.
[[nodiscard]] tl::unexpected<Error> violates(Check check, Error error);

}  // namespace ckpt::universal
