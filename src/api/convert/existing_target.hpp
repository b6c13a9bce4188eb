#pragma once

#include <span>
#include <string>

#include "api/verbs.hpp"
#include "convert/format.hpp"
#include "convert/open_source.hpp"
#include "convert/write_request.hpp"
#include "engine/run/plan.hpp"

namespace ckpt {

/// The first planned file that an existing target lacks, or has in another size, in words; or a small one with other
/// contents: an index, a tracker, a manifest whose copy differs. "" if there is none. Bytes of tensors are not read.
Result<std::string> find_missing_file(Io& io, const Plan& plan, const Skeleton& skeleton, const Format& format,
                                      const std::string& target);

/// What a conversion writes, by the names that the target's format gives where it keeps them.
struct Expected {
  std::span<const Selected> tensors;
  std::span<const WantedExtra> extras;
};
/// --verify full of an existing target of `format`: the first finding of `ckpt verify`; of a format without hashes also
/// the first tensor or extra whose values differ from those of the source. "" if there is none.
Result<std::string> find_damage(Session& session, const Source& source, const Expected& expected, const Format& format,
                                const std::string& target);

}  // namespace ckpt
