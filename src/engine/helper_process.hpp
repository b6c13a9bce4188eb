#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/result.hpp"

namespace ckpt {

/// A sparse temporary file. It has a name, for a helper, until `unlink`; afterwards `path` still names it for
/// this process, and it is gone when closed.
class ScratchFile {
 public:
  static Result<ScratchFile> open();  ///< in /tmp
  /// For what may become as large as a checkpoint: in /var/tmp, which is seldom memory, else in /tmp.
  static Result<ScratchFile> open_large();
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();
  const std::string& name() const { return name_; }
  void unlink();
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  std::string path_for_helper() const;  ///< the same file for another process of ours, while this one lives

 private:
  static Result<ScratchFile> open_in(const std::string& directory);
  ScratchFile(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}
  int descriptor_ = -1;
  std::string name_;  // empty once unlinked
};

/// Runs a helper program of ours to its end, with `input` on its standard input, and returns its standard output.
/// The program is looked for where ckpt was installed (engine/installed.hpp).
/// errors  unsupported: the helper is not installed, or ended with 4; refused: with 3; no_space: with 5; corrupt: it
/// died
///         or ended otherwise (its last line is the message); io: it ran past `limit` and was killed
Result<std::string> run_helper(const std::string& program, const std::vector<std::string>& arguments,
                               std::string_view input, std::chrono::seconds limit);

}  // namespace ckpt
