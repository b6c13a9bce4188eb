#include "engine/comm/message.hpp"

#include <utility>

#include "engine/comm/leak_to_peers.hpp"

namespace ckpt {

Message::Message(Comm& comm, std::size_t room_bytes)
    : comm_(comm), room_bytes_(room_bytes), room_(std::make_unique_for_overwrite<std::byte[]>(room_bytes)) {}

Message::~Message() {
  if (request_ == nullptr) return;
  const ckpt_comm_table& table = comm_.table_;
  const int state = table.test(table.self, request_);
  if (state > 0) return;
  comm_.lost_ = true;  // the other rank's use of it is unknown from here on
  if (state < 0) return;
  table.abandon(table.self, request_);
  leak_to_peers(std::move(room_));
}

Result<> Message::started(void* request, const char* operation) {
  if (request == nullptr) return fail(comm_.lost(operation, "cannot be started"));
  request_ = request;
  return {};
}

Result<> Message::send(std::size_t bytes, int to) {
  CKPT_CHECK(comm_.usable("send"));
  return started(comm_.table_.start_send(comm_.table_.self, room_.get(), bytes, to), "send");
}

Result<> Message::receive(std::size_t bytes, int from) {
  CKPT_CHECK(comm_.usable("receive"));
  return started(comm_.table_.start_receive(comm_.table_.self, room_.get(), bytes, from), "receive");
}

Result<bool> Message::test() {
  if (request_ == nullptr) return true;
  const int state = comm_.table_.test(comm_.table_.self, request_);
  if (state == 0) return false;
  request_ = nullptr;
  if (state < 0) return fail(comm_.lost("message", "the connection failed"));
  return true;
}

}  // namespace ckpt
