#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

namespace ckpt {

/// What `inspect` says about the model and its training besides its tensors: the model's type and quantisation
/// (config.json), an adapter's base, the optimizer's hyperparameters, the time of the newest file. Files that cannot be
/// read or parsed say nothing.
std::vector<InspectReport::Fact> model_facts(Io& io, const Source& source);

/// "gptq · 4 bits · groups of 128", by its config.json; nothing: it is not quantised.
std::optional<std::string> quantisation(Io& io, const Source& source);

/// "2026-11-25 22:10 UTC", of nanoseconds since 1970.
InspectReport::Fact saved_fact(std::int64_t mtime_ns);

}  // namespace ckpt
