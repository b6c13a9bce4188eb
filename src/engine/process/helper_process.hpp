#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// A sparse temporary file without a name, deleted when closed: nothing is left if this process is killed.
class ScratchFile {
 public:
  /// In /tmp.
  static Result<ScratchFile> open_small();
  /// For files as large as a checkpoint: in /var/tmp, which is rarely in memory, else in /tmp.
  static Result<ScratchFile> open_large();
  /// Writes at the beginning.
  Result<> write(std::string_view bytes);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }  ///< for this process
  std::string path_for_helper() const;  ///< the same file for a helper, while this process lives

 private:
  static Result<ScratchFile> open_in(const std::string& directory);
  explicit ScratchFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// Limits of a helper. The helper limits its own memory and CPU time (helper/confine.hpp).
struct HelperLimits {
  std::chrono::seconds time{};              ///< from its start to its end
  std::uint64_t output_bytes = 4096;        ///< limit of its output; it is stopped when it exceeds this
  const std::atomic<bool>* stop = nullptr;  ///< once set, the helper is stopped within a fraction of a second
};

/// Runs a helper program of ckpt to its end, with `input` on its standard input, and returns its standard output. The
/// program is started from where ckpt is installed (engine/process/installed.hpp). Its output is hostile input: bytes
/// are counted as they arrive, and a helper that exceeds a limit is killed.
/// errors  by its exit status (helper/h5_file.hpp, Verdict), with its last line as message: refused 3,
///         unsupported 4, no_space 5, memory 6, io 7, corrupt for any other status or a crash; unsupported: not
///         installed; memory: its output exceeds the limit; io: timeout, or its end cannot be observed;
///         interrupted: `stop`
Result<std::string> run_helper(const std::string& program, const std::vector<std::string>& arguments,
                               std::string_view input, const HelperLimits& limits);

}  // namespace ckpt
