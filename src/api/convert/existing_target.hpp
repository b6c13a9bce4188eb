#pragma once

#include <string>

#include "api/verbs.hpp"
#include "convert/format.hpp"
#include "convert/write_request.hpp"
#include "engine/run/plan.hpp"

namespace ckpt {

/// The first planned file that an existing target lacks or has in another size, in words; "" if there is none. Contents
/// are not read.
Result<std::string> find_missing_file(Io& io, const Plan& plan, const Skeleton& skeleton, const std::string& target);

/// --verify full of an existing target of `format`: the first finding of `ckpt verify`; "" if there is none. A format
/// without checksums is compared with the source, if the conversion keeps all values and names: it has no options that
/// change them (`has_parameters`: of the target's format).
Result<std::string> find_damage(Session& session, const ConvertRequest& request, const Format& format,
                                bool has_parameters, const std::string& target);

}  // namespace ckpt
