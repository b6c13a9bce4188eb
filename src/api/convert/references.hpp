#pragma once

#include <functional>
#include <string>

#include "api/verbs.hpp"
#include "convert/format.hpp"

/// Virtual conversions: targets that refer to the files of their source.
namespace ckpt {

/// What a virtual conversion cannot do, before the source is opened.
/// errors  usage: another target format, a cast, several ranks
Result<> check_by_reference(const Session& session, const ConvertRequest& request, const Format& target);

/// For WriteRequest::refer. The source must outlive it.
///
/// A path is relative to the target's directory if both have a common parent other than '/', so that they can move
/// together; else absolute.
std::function<Result<Reference>(std::uint32_t file)> referrer(const Source& source, const std::string& target);

/// Writes into each checkpoint of a store that a virtual one refers to a mark with its id, so that no policy deletes it.
/// Called before the virtual one is committed.
Result<> mark_sources(Io& io, const Source& source, const std::string& target, const std::string& id);

}  // namespace ckpt
