#pragma once

#include <string_view>

#include "api/verbs.hpp"
#include "cli/report/say.hpp"

namespace ckpt::cli {

/// For people: the verdict on one checkpoint in one line that begins with `label`, then findings and
/// notes.
void print_verify(Context& context, std::string_view label, const VerifyReport& report, const VerifyRequest& request);

/// Of a report that is not ok, in one line: "damaged: FILE: ... (and 2 more)", "3 tensors with NaN or Inf", "differs".
std::string trouble_text(const VerifyReport& report);

}  // namespace ckpt::cli
