#pragma once

#include <string>

#include "convert/read_options.hpp"
#include "convert/write_request.hpp"

namespace ckpt::safetensors {

/// Opens one file, a Hugging Face directory with or without an index, or a directory of slices that PyTorch's
/// HuggingFaceStorageWriter wrote. Names are kept; roles come from the metadata of our own writer, else from names
/// (`optimizer.state.<parameter>.<slot>`).
/// errors  as select_files and ShardReader::read; incomplete: a listed tensor is not in its file; ambiguous: files of a
///         directory without an index hold a tensor of the same name; corrupt: slices that contradict each other
Result<Map> open(Io& io, const std::string& root, const ReadOptions& options);

/// Lays out one file (the target ends in ".safetensors") or a directory in Hugging Face convention. See writer.cpp.
Result<Skeleton> lay_out(const WriteRequest& request);
/// One file of any name; supports Selected::part.
Result<Skeleton> lay_out_file(const WriteRequest& request);

}  // namespace ckpt::safetensors
