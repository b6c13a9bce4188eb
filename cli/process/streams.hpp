#pragma once

namespace ckpt::cli {

/// Gives standard input, output and error to /dev/null where the caller closed them (`ckpt convert A B >&-`), output so
/// that a write fails as it would have. Else the
/// next files that are opened would get their numbers, and what is said would be written into a checkpoint. Call before
/// anything is opened.
void keep_standard_streams();

}  // namespace ckpt::cli
