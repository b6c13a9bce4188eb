#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Sends messages to, or receives them from, another rank, one after another. Needs Comm::has_messages. One thread.
///
/// The object owns the bytes, because the network may still read or write an abandoned message: they then stay
/// allocated until the process ends, and the ranks are lost.
class Message {
 public:
  Message(Comm& comm, std::size_t room_bytes);
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message();  ///< abandons a message that is not done

  /// Not to be touched while active.
  std::span<std::byte> room() const { return {room_.get(), room_bytes_}; }
  bool active() const { return request_ != nullptr; }

  /// Starts with the first `bytes` of the room, at most its size; both ranks name the same number. Not while active.
  Result<> send(std::size_t bytes, int to);
  Result<> receive(std::size_t bytes, int from);
  /// True once done, and where nothing was started.
  /// errors  peer_failed
  Result<bool> test();

 private:
  Result<> started(void* request, const char* operation);

  Comm& comm_;
  std::size_t room_bytes_;
  std::unique_ptr<std::byte[]> room_;
  void* request_ = nullptr;
};

}  // namespace ckpt
