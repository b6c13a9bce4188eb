#pragma once

#include <array>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::deepspeed {

/// A small file next to the tags with the conversion's id; DeepSpeed ignores it.
constexpr std::string_view kIdFile = "ckpt.id";

constexpr std::array<std::string_view, 5> kNativeOptions{"zero-stage", "dp", "ep", "tag", "fresh-optimizer"};
constexpr std::array<std::string_view, 2> kUniversalOptions{"zero-stage", "tag"};

/// A directory that DeepSpeed's load_checkpoint resumes from: `latest`, written last, and TAG/ with the files of every
/// rank, for WriteRequest::options' stage and data-parallel size.
///
/// errors  those of training_target
Result<Skeleton> lay_out(const WriteRequest& request);

/// A directory that DeepSpeed loads with checkpoint.load_universal at any size: `latest_universal` and TAG/. At any stage
/// with DeepSpeed 0.19; older versions need another form for stage 3, which WriteRequest::options asks for.
Result<Skeleton> lay_out_universal(const WriteRequest& request);

/// The id in kIdFile of a directory of ours; not_found if there is none.
Result<std::string> stored_id(Io& io, const std::string& root);

}  // namespace ckpt::deepspeed
