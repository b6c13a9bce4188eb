#include "engine/io/transfer.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/io/system_error.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kCallBytes = 0x7ffff000;  // Linux moves at most this much per read or write (read(2), NOTES)
constexpr unsigned kMaxStalls = 1000;           // EINTR, EAGAIN and calls without progress; more is a stuck device

}  // namespace

Transfer::Transfer(const Request& request, int descriptor, bool direct, std::shared_ptr<const std::string> path)
    : request_(request), descriptor_(descriptor), direct_(direct), path_(std::move(path)) {}

Transfer::Step Transfer::next() const {
  return {.offset = request_.offset + done_,
          .data = request_.data + done_,
          .bytes = std::min(request_.bytes - done_, kCallBytes)};
}

bool Transfer::advance(std::int64_t returned) {
  if (returned == -EINTR || returned == -EAGAIN) {
    return ++stalls_ > kMaxStalls && fail_with(static_cast<int>(-returned));
  }
  if (returned < 0) return fail_with(static_cast<int>(-returned));
  const auto moved = std::min(static_cast<std::size_t>(returned), next().bytes);
  const bool reading = request_.op == Request::Op::read;
  std::size_t reached = done_ + moved;
  const bool ended = moved == 0 || (direct_ && reached % kAlignment != 0 && at_end_of_file(request_.offset + reached));
  if (reached == request_.bytes || (reading && ended)) {
    result_ = reached;
    return true;
  }
  // A direct transfer must continue at an aligned offset, so the last partial block is moved again.
  if (direct_) reached = static_cast<std::size_t>(round_down(reached, kAlignment));
  stalls_ = reached == done_ ? stalls_ + 1 : 0;
  done_ = reached;
  if (moved == 0 || stalls_ > kMaxStalls) return fail_with(EIO);  // a write that does not move
  return false;
}

Completion Transfer::completion() && {
  return {.tag = request_.tag, .bytes = std::move(result_)};
}

bool Transfer::fail_with(int errno_value) {
  const char* operation = request_.op == Request::Op::read ? "read" : "write";
  result_ = fail(system_error(errno_value, *path_, operation, request_.offset + done_));
  return true;
}

bool Transfer::at_end_of_file(std::uint64_t offset) const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 && offset >= static_cast<std::uint64_t>(status.st_size);
}

}  // namespace ckpt
