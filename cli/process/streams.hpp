#pragma once

namespace ckpt::cli {

/// Connects standard input, output and error to /dev/null if the caller closed them (`ckpt
/// convert A B >&-`), output so that writes fail as before. Otherwise the next opened files would
/// get their numbers, and output would be written into a checkpoint. Call before anything is
/// opened.
void keep_standard_streams();

}  // namespace ckpt::cli
