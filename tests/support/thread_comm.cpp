#include "support/thread_comm.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace ckpt {
namespace {

enum class Kind : std::uint8_t { max, gather, broadcast };

/// One rank's share of a collective.
struct Share {
  Kind kind = Kind::max;
  void* data = nullptr;
  std::uint64_t bytes = 0;
  void* out = nullptr;
};

struct Collective {
  std::vector<Share> shares;  // by rank
  int arrived = 0;
  bool done = false;
};

void carry_out(const std::vector<Share>& shares) {
  const Share& root = shares.front();
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    if (root.kind == Kind::gather) {
      std::memcpy(static_cast<char*>(root.out) + rank * root.bytes, shares[rank].data, root.bytes);
    } else if (root.kind == Kind::broadcast && rank > 0) {
      std::memcpy(shares[rank].data, root.data, root.bytes);
    }
  }
  if (root.kind != Kind::max) return;
  std::vector<std::uint64_t> most(root.bytes / sizeof(std::uint64_t), 0);
  for (const Share& share : shares) {
    const auto* values = static_cast<const std::uint64_t*>(share.data);
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], values[i]);
  }
  for (const Share& share : shares) std::memcpy(share.data, most.data(), root.bytes);
}

}  // namespace

struct ThreadRanks::Group {
  explicit Group(int count) : ranks(count), started(static_cast<std::size_t>(count), 0) {}

  const int ranks;
  std::mutex mutex;
  std::vector<std::uint64_t> started;               // by rank; guarded by mutex
  std::map<std::uint64_t, Collective> collectives;  // by number; guarded by mutex
  bool connected = true;                            // guarded by mutex
};

namespace {

using Group = ThreadRanks::Group;

struct Member {
  std::shared_ptr<Group> group;
  int rank;
};

struct Request {
  std::uint64_t number;
};

Member& member(void* self) {
  return *static_cast<Member*>(self);
}

void* start(void* self, Share share) {
  Group& group = *member(self).group;
  const auto rank = static_cast<std::size_t>(member(self).rank);
  const std::lock_guard held(group.mutex);
  if (!group.connected) return nullptr;
  const std::uint64_t number = group.started[rank]++;
  Collective& collective = group.collectives[number];
  collective.shares.resize(static_cast<std::size_t>(group.ranks));
  collective.shares[rank] = share;
  if (++collective.arrived == group.ranks) {
    carry_out(collective.shares);
    collective.done = true;
  }
  return new Request{number};
}

int test(void* self, void* pointer) {
  Group& group = *member(self).group;
  auto* request = static_cast<Request*>(pointer);
  const std::lock_guard held(group.mutex);
  const bool done = group.collectives[request->number].done;
  if (!done && group.connected) return 0;
  delete request;
  return done ? 1 : -1;
}

ckpt_comm_table table_of(std::shared_ptr<Group> group, int rank) {
  return {
      .size = sizeof(ckpt_comm_table),
      .self = new Member{std::move(group), rank},
      .rank = [](void* self) { return member(self).rank; },
      .ranks = [](void* self) { return member(self).group->ranks; },
      .local_ranks = [](void* self) { return member(self).group->ranks; },
      .start_max =
          [](void* self, std::uint64_t* values, std::uint64_t count) {
            return start(self, {.kind = Kind::max, .data = values, .bytes = count * sizeof *values});
          },
      .start_gather =
          [](void* self, const void* data, std::uint64_t bytes, void* out) {
            return start(self, {.kind = Kind::gather, .data = const_cast<void*>(data), .bytes = bytes, .out = out});
          },
      .start_broadcast =
          [](void* self, void* data, std::uint64_t bytes) {
            return start(self, {.kind = Kind::broadcast, .data = data, .bytes = bytes});
          },
      .test = test,
      .abandon = [](void*, void* request) { delete static_cast<Request*>(request); },
      .library = [](void*) { return "threads"; },
      .close = [](void* self) { delete &member(self); },
  };
}

}  // namespace

ThreadRanks::ThreadRanks(int ranks) : group_(std::make_shared<Group>(ranks)), ranks_(ranks) {}
ThreadRanks::~ThreadRanks() = default;

void ThreadRanks::run(const std::function<void(Comm& comm)>& body) const {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([this, rank, &body] {
      Comm comm(table_of(group_, rank));
      body(comm);
    });
  }
}

void ThreadRanks::run_tables(const std::function<void(const ckpt_comm_table& table)>& body) const {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([this, rank, &body] { body(table_of(group_, rank)); });
  }
}

void ThreadRanks::disconnect() const {
  const std::lock_guard held(group_->mutex);
  group_->connected = false;
}

}  // namespace ckpt
