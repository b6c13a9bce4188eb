#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// One Request in progress: it may take several system calls, because a call may move less than requested (a signal,
/// the
/// 2 GiB limit of read and write, the end of the file). The caller (ring or thread) asks `next` what to do and passes
/// the result to `advance`. Makes no system call itself.
class Transfer {
 public:
  Transfer() = default;
  /// `path` names the file in errors. `descriptor` must stay open until the transfer is over.
  Transfer(const Request& request, int descriptor, bool direct, std::shared_ptr<const std::string> path);

  struct Step {
    std::uint64_t offset = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// The next system call; on a direct file aligned in all three.
  Step next() const;
  /// Takes the result of that call, bytes or -errno; true when the transfer is over.
  bool advance(std::int64_t returned);

  const Request& request() const { return request_; }
  int descriptor() const { return descriptor_; }
  /// Valid once `advance` was true.
  Completion completion() &&;

 private:
  bool fail_with(int errno_value);
  bool at_end_of_file(std::uint64_t offset) const;

  Request request_{};
  int descriptor_ = -1;
  bool direct_ = false;
  std::shared_ptr<const std::string> path_;
  std::size_t done_ = 0;  // bytes moved; on a direct file a multiple of kAlignment until the transfer is over
  unsigned stalls_ = 0;   // calls in a row that moved nothing
  Result<std::size_t> result_{0};
};

}  // namespace ckpt
