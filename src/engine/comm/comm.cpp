#include "engine/comm/comm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/comm/comm_text.hpp"
#include "engine/comm/equal_on_all.hpp"
#include "engine/comm/leak_to_peers.hpp"
#include "format/text/error_context.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMessageBytes = std::uint64_t{1} << 30;  // the longest message of one rank
constexpr std::uint64_t kRoundBytes = std::uint64_t{64} << 20;   // limit of the memory of one round of a collective
constexpr std::uint64_t kFirstBytes = 4096;                      // a broadcast up to this size needs one round
constexpr std::uint64_t kLengthBytes = sizeof(std::uint64_t);

constexpr unsigned kSpins = 1000;
constexpr auto kLongestSleep = std::chrono::microseconds(1000);

// --- the table of one rank ---------------------------------------------------------------------------------------

char solo_token = 0;  // a request that is done; never read

void* solo_start_gather(void* /*self*/, const void* data, std::uint64_t bytes, void* out) {
  std::memcpy(out, data, static_cast<std::size_t>(bytes));
  return &solo_token;
}

constexpr ckpt_comm_table kSoloTable = {
    .size = sizeof(ckpt_comm_table),
    .self = nullptr,
    .rank = [](void*) { return 0; },
    .ranks = [](void*) { return 1; },
    .local_ranks = [](void*) { return 1; },
    .start_max = [](void*, std::uint64_t*, std::uint64_t) -> void* { return &solo_token; },
    .start_gather = solo_start_gather,
    .start_broadcast = [](void*, void*, std::uint64_t) -> void* { return &solo_token; },
    .test = [](void*, void*) { return 1; },
    .abandon = [](void*, void*) {},
    .library = [](void*) { return "none"; },
    .close = [](void*) {},
    .start_send = [](void*, const void*, std::uint64_t, int) -> void* { return nullptr; },  // only one rank
    .start_receive = [](void*, void*, std::uint64_t, int) -> void* { return nullptr; },
};

}  // namespace

std::unique_ptr<Comm> Comm::solo() {
  return std::make_unique<Comm>(kSoloTable);
}

Comm::Comm(ckpt_comm_table table, Clock clock) : table_(table), clock_(std::move(clock)) {}

Comm::~Comm() {
  table_.close(table_.self);
}

int Comm::rank() const {
  return table_.rank(table_.self);
}

int Comm::ranks() const {
  return table_.ranks(table_.self);
}

Deadline Comm::now() const {
  return clock_ ? clock_() : std::chrono::steady_clock::now();
}

int Comm::local_ranks() const {
  return table_.local_ranks(table_.self);
}

std::string Comm::library() const {
  return table_.library(table_.self);
}

bool Comm::has_messages() const {
  constexpr std::size_t kEnd = offsetof(ckpt_comm_table, start_receive) + sizeof table_.start_receive;
  return table_.size >= kEnd && table_.start_send != nullptr && table_.start_receive != nullptr;
}

Error Comm::lost(const char* operation, const std::string& reason) {
  lost_ = true;
  return {.code = Errc::peer_failed, .message = fmt::format("rank {}: {}: {}", rank(), operation, reason)};
}

Result<> Comm::usable(const char* operation) const {
  if (!lost_) return {};
  return fail(Errc::peer_failed, fmt::format("rank {}: {}: the other ranks were lost before", rank(), operation));
}

/// Starts a collective on `bytes` and tests it until the deadline. Given up, it may still be written to by the
/// network or by another process, whenever: its bytes then stay until the process ends.
template <class Bytes, class Start>
Result<> Comm::carry(std::unique_ptr<Bytes>& bytes, Deadline deadline, const char* operation, Start start) {
  CKPT_CHECK(usable(operation));
  void* request = start(*bytes);
  if (request == nullptr) return fail(lost(operation, "cannot be started"));
  auto sleep = std::chrono::microseconds(10);
  for (unsigned tests = 0;; ++tests) {
    const int state = table_.test(table_.self, request);
    if (state > 0) return {};
    if (state < 0) return fail(lost(operation, "the connection failed"));
    if (now() >= deadline) break;
    if (tests < kSpins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, kLongestSleep);
    }
  }
  table_.abandon(table_.self, request);
  leak_to_peers(std::move(bytes));
  return fail(lost(operation, "not all ranks answered before the deadline"));
}

// --- one in flight -----------------------------------------------------------------------------------------------

Result<Comm::Pending> Comm::start_max(std::span<std::uint64_t> values) {
  CKPT_CHECK(usable("all-reduce"));
  Pending pending;
  pending.comm_ = this;
  pending.words_ = std::make_unique<std::vector<std::uint64_t>>(values.begin(), values.end());
  pending.out_ = values;
  pending.request_ = table_.start_max(table_.self, pending.words_->data(), values.size());
  if (pending.request_ == nullptr) return fail(lost("all-reduce", "cannot be started"));
  return pending;
}

Result<bool> Comm::Pending::test() {
  if (request_ == nullptr) return true;
  const int state = comm_->table_.test(comm_->table_.self, request_);
  if (state == 0) return false;
  request_ = nullptr;
  if (state < 0) return fail(comm_->lost("all-reduce", "the connection failed"));
  std::copy(words_->begin(), words_->end(), out_.begin());
  return true;
}

void Comm::Pending::abandon() {
  if (request_ == nullptr) return;
  void* request = std::exchange(request_, nullptr);
  const int state = comm_->table_.test(comm_->table_.self, request);
  if (state < 0) comm_->lost_ = true;
  if (state != 0) return;
  comm_->lost_ = true;  // the other ranks' use of it is unknown from here on
  comm_->table_.abandon(comm_->table_.self, request);
  leak_to_peers(std::move(words_));
}

Comm::Pending::Pending(Pending&& other) noexcept
    : comm_(other.comm_),
      request_(std::exchange(other.request_, nullptr)),
      words_(std::move(other.words_)),
      out_(other.out_) {}

Comm::Pending& Comm::Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    abandon();
    comm_ = other.comm_;
    request_ = std::exchange(other.request_, nullptr);
    words_ = std::move(other.words_);
    out_ = other.out_;
  }
  return *this;
}

Comm::Pending::~Pending() {
  abandon();
}

// --- until a deadline ----------------------------------------------------------------------------------------------

Result<> Comm::max(std::span<std::uint64_t> values, Deadline deadline) {
  auto words = std::make_unique<std::vector<std::uint64_t>>(values.begin(), values.end());
  CKPT_CHECK(carry(words, deadline, "all-reduce", [this](std::vector<std::uint64_t>& own) {
    return table_.start_max(table_.self, own.data(), own.size());
  }));
  std::copy(words->begin(), words->end(), values.begin());
  return {};
}

Result<std::vector<std::string>> Comm::gather(std::string_view mine, Deadline deadline) {
  std::uint64_t longest = mine.size();
  CKPT_CHECK(max({&longest, 1}, deadline));
  if (longest > kMessageBytes) {
    return fail(Errc::internal, fmt::format("gather: a message of {} bytes, over the limit of 1 GiB", longest));
  }
  // Equal slots of {length, bytes}, in as many rounds as keep rank 0's copy of a round small.
  const auto count = static_cast<std::uint64_t>(ranks());
  const std::uint64_t part_bytes = std::clamp<std::uint64_t>(longest, 1, std::max(kFirstBytes, kRoundBytes / count));
  const std::uint64_t slot_bytes = kLengthBytes + part_bytes;
  struct Slots {
    std::string mine;
    std::string all;
  };
  std::vector<std::string> gathered(is_root() ? static_cast<std::size_t>(count) : 0);
  for (std::uint64_t begin = 0; begin < longest; begin += part_bytes) {
    const std::string_view part = mine.substr(std::min<std::size_t>(mine.size(), begin), part_bytes);
    auto slots = std::make_unique<Slots>();
    append_number(slots->mine, part.size());
    slots->mine += part;
    slots->mine.resize(slot_bytes);
    if (is_root()) slots->all.resize(slot_bytes * count);
    CKPT_CHECK(carry(slots, deadline, "gather", [&](Slots& own) {
      return table_.start_gather(table_.self, own.mine.data(), slot_bytes, is_root() ? own.all.data() : nullptr);
    }));
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
      const std::string_view slot = std::string_view(slots->all).substr(rank * slot_bytes, slot_bytes);
      gathered[rank] += slot.substr(kLengthBytes, std::min(first_number(slot), part_bytes));
    }
  }
  return gathered;
}

Result<> Comm::broadcast(std::string& bytes, Deadline deadline) {
  const auto send = [&](std::unique_ptr<std::string>& part) {
    return carry(part, deadline, "broadcast",
                 [this](std::string& own) { return table_.start_broadcast(table_.self, own.data(), own.size()); });
  };
  // The first round carries the length and, for most messages, all of the data.
  auto first = std::make_unique<std::string>();
  if (is_root()) {
    append_number(*first, bytes.size());
    *first += std::string_view(bytes).substr(0, kFirstBytes - kLengthBytes);
  }
  first->resize(kFirstBytes);
  CKPT_CHECK(send(first));
  const std::uint64_t length = first_number(*first);
  if (length > kMessageBytes) {
    return fail(Errc::internal, fmt::format("broadcast: a message of {} bytes, over the limit of 1 GiB", length));
  }
  std::string received = first->substr(kLengthBytes, length);
  while (received.size() < length) {
    const std::uint64_t part_bytes = std::min(kRoundBytes, length - received.size());
    auto part = std::make_unique<std::string>(is_root() ? bytes.substr(received.size(), part_bytes) : std::string());
    part->resize(part_bytes);
    CKPT_CHECK(send(part));
    received += *part;
  }
  bytes = std::move(received);
  return {};
}

Result<std::vector<bool>> equal_on_all(Comm& comm, Deadline deadline, std::span<const std::uint64_t> words) {
  // The maximum of a value and of its complement are complements where all ranks have the same value, and only there.
  std::vector<std::uint64_t> both(words.begin(), words.end());
  for (const std::uint64_t word : words) both.push_back(~word);
  CKPT_CHECK(comm.max(both, deadline));
  std::vector<bool> equal;
  for (std::size_t i = 0; i < words.size(); ++i) equal.push_back(both[i] == ~both[words.size() + i]);
  return equal;
}

Result<> agree(Comm& comm, Deadline deadline, Result<> mine) {
  const auto ranks = static_cast<std::uint64_t>(comm.ranks());
  const auto rank = static_cast<std::uint64_t>(comm.rank());
  if (ranks == 1) return mine;
  // A lost rank is lost for all: a rank that failed keeps its own reason.
  const auto otherwise = [&](Error error) -> Result<> { return mine ? fail(std::move(error)) : std::move(mine); };

  std::uint64_t lowest_failed = mine ? 0 : ranks - rank;  // a maximum finds the lowest rank
  if (auto sent = comm.max({&lowest_failed, 1}, deadline); !sent) return otherwise(std::move(sent).error());
  if (lowest_failed == 0) return mine;

  const std::uint64_t failed_rank = ranks - lowest_failed;
  auto gathered = comm.gather(rank == failed_rank ? to_text(mine.error()) : std::string(), deadline);
  if (!gathered) return otherwise(std::move(gathered).error());
  std::string text = comm.is_root() ? std::move((*gathered)[failed_rank]) : std::string();
  if (auto sent = comm.broadcast(text, deadline); !sent) return otherwise(std::move(sent).error());

  Error theirs = error_from_text(text);
  const Errc verdict = theirs.code;
  if (!mine) {
    mine.error().verdict = verdict;
    return mine;
  }
  theirs = with_context(std::move(theirs), fmt::format("rank {}", failed_rank));
  theirs.code = Errc::peer_failed;
  theirs.verdict = verdict;
  return fail(std::move(theirs));
}

}  // namespace ckpt
