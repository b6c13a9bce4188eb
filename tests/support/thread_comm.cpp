#include "support/thread_comm.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
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

/// One end of a message that waits for the other.
struct End {
  void* data = nullptr;
  std::uint64_t bytes = 0;
  std::shared_ptr<int> state{};  // what test answers
};
/// Of one pair, in one direction. One of them is always empty.
struct Ends {
  std::deque<End> sent{};
  std::deque<End> awaited{};
};

}  // namespace

struct ThreadRanks::Group {
  explicit Group(int count)
      : ranks(count), started(static_cast<std::size_t>(count), 0), requests(static_cast<std::size_t>(count), 0) {}

  const int ranks;
  std::mutex mutex;
  std::vector<std::uint64_t> started;               // collectives, by rank; guarded by mutex
  std::vector<std::uint64_t> requests;              // all, by rank; guarded by mutex
  std::map<std::uint64_t, Collective> collectives;  // by number; guarded by mutex
  std::map<std::pair<int, int>, Ends> messages;     // by (from, to); guarded by mutex
  bool connected = true;                            // guarded by mutex
  struct Planned {
    int rank;
    std::uint64_t n;
    ThreadRanks::Loss how;
  };
  std::optional<Planned> planned{};                                   // guarded by mutex
  std::optional<std::chrono::steady_clock::time_point> hurried_at{};  // guarded by mutex
};

namespace {

using Group = ThreadRanks::Group;

struct Member {
  std::shared_ptr<Group> group;
  int rank;
};

struct Request {
  std::uint64_t number = 0;      // of a collective
  std::shared_ptr<int> state{};  // of a message, and of one that never arrives; else null
};

Member& member(void* self) {
  return *static_cast<Member*>(self);
}

/// Counts a request of a rank, under the mutex; how it is lost, if it is.
std::optional<ThreadRanks::Loss> lost(Group& group, int rank) {
  const std::uint64_t n = group.requests[static_cast<std::size_t>(rank)]++;
  if (!group.connected) return ThreadRanks::Loss::refused;
  if (!group.planned || group.planned->rank != rank || n < group.planned->n) return std::nullopt;
  if (group.planned->how != ThreadRanks::Loss::silent) group.connected = false;
  if (!group.hurried_at) group.hurried_at = std::chrono::steady_clock::now();
  return group.planned->how;
}

void* start(void* self, Share share) {
  Group& group = *member(self).group;
  const auto rank = static_cast<std::size_t>(member(self).rank);
  const std::lock_guard held(group.mutex);
  const auto loss = lost(group, member(self).rank);
  if (loss == ThreadRanks::Loss::refused) return nullptr;
  if (loss == ThreadRanks::Loss::silent) return new Request{.state = std::make_shared<int>(0)};
  const std::uint64_t number = group.started[rank]++;
  Collective& collective = group.collectives[number];
  collective.shares.resize(static_cast<std::size_t>(group.ranks));
  collective.shares[rank] = share;
  if (++collective.arrived == group.ranks) {
    carry_out(collective.shares);
    collective.done = true;
  }
  return new Request{.number = number};
}

/// Joins a new end of a message with the one that waits for it, or leaves it to wait. Neither is done before.
void* start_end(Group& group, std::pair<int, int> from_to, End end, bool sends) {
  const std::lock_guard held(group.mutex);
  const auto loss = lost(group, sends ? from_to.first : from_to.second);
  if (loss == ThreadRanks::Loss::refused) return nullptr;
  end.state = std::make_shared<int>(0);
  if (loss == ThreadRanks::Loss::silent) return new Request{.state = end.state};
  Ends& ends = group.messages[from_to];
  std::deque<End>& others = sends ? ends.awaited : ends.sent;
  if (others.empty()) {
    (sends ? ends.sent : ends.awaited).push_back(end);
  } else {
    const End other = others.front();
    others.pop_front();
    const bool fits = other.bytes == end.bytes;
    if (fits) std::memcpy(sends ? other.data : end.data, sends ? end.data : other.data, end.bytes);
    *other.state = *end.state = fits ? 1 : -1;
  }
  return new Request{.state = end.state};
}

int test(void* self, void* pointer) {
  Group& group = *member(self).group;
  auto* request = static_cast<Request*>(pointer);
  const std::lock_guard held(group.mutex);
  const int state = request->state ? *request->state : group.collectives[request->number].done ? 1 : 0;
  if (state == 0 && group.connected) return 0;
  delete request;
  return state == 0 ? -1 : state;
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
      .start_send =
          [](void* self, const void* data, std::uint64_t bytes, int to) {
            return start_end(*member(self).group, {member(self).rank, to},
                             {.data = const_cast<void*>(data), .bytes = bytes}, true);
          },
      .start_receive =
          [](void* self, void* data, std::uint64_t bytes, int from) {
            return start_end(*member(self).group, {from, member(self).rank}, {.data = data, .bytes = bytes}, false);
          },
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

void ThreadRanks::lose(int rank, std::uint64_t n, Loss how) const {
  const std::lock_guard held(group_->mutex);
  group_->planned = Group::Planned{.rank = rank, .n = n, .how = how};
}

Comm::Clock ThreadRanks::clock() const {
  static constexpr int kFaster = 5000;
  return [group = group_] {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard held(group->mutex);
    return group->hurried_at ? now + kFaster * (now - *group->hurried_at) : now;
  };
}

void ThreadRanks::hurry() const {
  const std::lock_guard held(group_->mutex);
  if (!group_->hurried_at) group_->hurried_at = std::chrono::steady_clock::now();
}

std::uint64_t ThreadRanks::requests(int rank) const {
  const std::lock_guard held(group_->mutex);
  return group_->requests[static_cast<std::size_t>(rank)];
}

void ThreadRanks::disconnect() const {
  const std::lock_guard held(group_->mutex);
  group_->connected = false;
}

}  // namespace ckpt
