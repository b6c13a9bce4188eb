#pragma once

#include <string_view>

#include "api/verbs.hpp"
#include "cli/report/say.hpp"

namespace ckpt::cli {

/// For people: the verdict on one checkpoint in one line that begins with `label`, then findings and
/// notes.
void print_verify(Context& context, std::string_view label, const VerifyReport& report, const VerifyRequest& request);

}  // namespace ckpt::cli
