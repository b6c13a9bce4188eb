#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output/console.hpp"
#include "cli/text/units.hpp"

namespace ckpt::cli {

/// An error to be printed.
struct Failure {
  Error error;
  std::string effect{};  ///< the state of the disk now: "nothing was written to ./out"
  int rank = -1;         ///< the rank that failed, if there are several
  std::string node{};    ///< and its host
};

/// The text for one kind of error, for `ckpt explain` and for errors without a hint.
struct Explanation {
  std::string_view title;    ///< as in "checksum mismatch"
  std::string_view meaning;  ///< the effect on the data, in whole sentences
  std::string_view remedy;   ///< what the user should do, in whole sentences
};
Explanation explain(Errc code);

/// Every code, in ascending order.
const std::vector<Errc>& all_codes();
/// "CKPT-E1503".
std::string error_id(Errc code);
/// Reads "E1503", "CKPT-E1503", "1503" in any case; nothing for an unknown id.
std::optional<Errc> code_of(std::string_view id);

/// The error block, one string per line, without line breaks:
///   error: MESSAGE
///     tensor   ...            (tensor, file with offset, rank, effect: each if known)
///   hint: NEXT STEP           (one line per hint)
std::vector<std::string> error_lines(const Failure& failure, SizeStyle sizes, const Console* paint);

/// The line after the block: "exit 15 · ckpt explain E1503".
std::string explain_line(Errc code);
/// Whether that line is shown without -v: if the message alone does not show the effect on the data.
bool needs_explaining(Errc code);

/// One line below 512 bytes for a rank that cannot reach rank 0: "[rank 17 on gpu-0231] error: ...".
std::string stray_line(const Error& error, int rank, std::string_view node);

}  // namespace ckpt::cli
