#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// An anonymous file in memory (memfd): sparse, gone when closed. `path` names it for this process.
class ScratchFile {
 public:
  static Result<ScratchFile> open(const std::string& name);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();
  int descriptor() const { return descriptor_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  explicit ScratchFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// Runs a helper program of ours to its end, with `input` on its standard input, and returns its standard output.
/// The program is looked for beside this one, in ../libexec/ckpt, then by PATH. `scratch`, where not negative, is its
/// descriptor 3.
/// errors  unsupported: the helper is not installed; corrupt: it died or said no (its last line is the message);
///         io: it ran past `limit` and was killed
Result<std::string> run_helper(const std::string& program, const std::vector<std::string>& arguments,
                               std::string_view input, int scratch, std::chrono::seconds limit);

}  // namespace ckpt
