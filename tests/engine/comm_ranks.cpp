// One rank of mpi_comm_test, started by mpirun: comm_ranks SCENARIO RANKS. Prints "rank R: ..." lines; its exit code is
// the scenario's outcome.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "engine/comm/comm.hpp"
#include "engine/comm/message.hpp"

namespace ckpt {
namespace {

Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
Deadline soon_enough() {
  return in(std::chrono::seconds(60));
}

/// A line in one write, so that ranks' lines do not mix.
void say(int rank, const std::string& text) {
  const std::string line = "rank " + std::to_string(rank) + ": " + text + "\n";
  static_cast<void>(!::write(STDOUT_FILENO, line.data(), line.size()));
}

int outcome(const Comm& comm, const Result<>& result) {
  say(comm.rank(), result ? "ok" : result.error().message);
  return result ? 0 : exit_code(result.error());
}

std::string message_of(int rank, std::size_t bytes) {
  std::string text(bytes, static_cast<char>('a' + rank));
  if (bytes > 0) text.back() = '!';
  return text;
}

/// Every collective, with short messages and with messages of several pieces.
Result<> use_collectives(Comm& comm) {
  const int ranks = comm.ranks();
  std::uint64_t values[2] = {static_cast<std::uint64_t>(comm.rank()), 9};
  CKPT_CHECK(comm.max(values, soon_enough()));
  if (values[0] != static_cast<std::uint64_t>(ranks - 1) || values[1] != 9)
    return fail(Errc::internal, "wrong maximum");
  CKPT_TRY(auto pending, comm.start_max(values));
  for (;;) {
    CKPT_TRY(const bool done, pending.test());
    if (done) break;
  }
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1000}, (std::size_t{33} << 20) + 1}) {
    const auto bytes_of = [&](int rank) { return unit * static_cast<std::size_t>(ranks - rank) / 2; };
    CKPT_TRY(const auto all, comm.gather(message_of(comm.rank(), bytes_of(comm.rank())), soon_enough()));
    if (all.size() != (comm.is_root() ? static_cast<std::size_t>(ranks) : 0))
      return fail(Errc::internal, "wrong count");
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
      if (all[static_cast<std::size_t>(rank)] != message_of(rank, bytes_of(rank))) {
        return fail(Errc::internal, "wrong message of rank " + std::to_string(rank));
      }
    }
    std::string text = comm.is_root() ? message_of(7, unit) : "before";
    CKPT_CHECK(comm.broadcast(text, soon_enough()));
    if (text != message_of(7, unit)) return fail(Errc::internal, "wrong broadcast");
  }
  if (comm.local_ranks() != ranks) return fail(Errc::internal, "all ranks of this test are on one node");
  return agree(comm, soon_enough(), {});
}

/// Messages of one and of several pieces between all pairs, each rank with all others at once.
Result<> use_messages(Comm& comm) {
  if (!comm.has_messages()) return fail(Errc::internal, "no messages");
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, (std::size_t{33} << 20) + 1}) {
    for (int distance = 1; distance < comm.ranks(); ++distance) {
      const int to = (comm.rank() + distance) % comm.ranks();
      const int from = (comm.rank() + comm.ranks() - distance) % comm.ranks();
      Message out(comm, bytes);
      Message in(comm, bytes);
      const std::string text = message_of(comm.rank(), bytes);
      std::memcpy(out.room().data(), text.data(), bytes);
      CKPT_CHECK(in.receive(bytes, from));
      CKPT_CHECK(out.send(bytes, to));
      const Deadline deadline = soon_enough();
      while (out.active() || in.active()) {
        CKPT_CHECK(out.test());
        CKPT_CHECK(in.test());
        if (std::chrono::steady_clock::now() > deadline) return fail(Errc::internal, "not done in a minute");
      }
      if (std::memcmp(in.room().data(), message_of(from, bytes).data(), bytes) != 0) {
        return fail(Errc::internal, "wrong message of rank " + std::to_string(from));
      }
    }
  }
  return agree(comm, soon_enough(), {});
}

int run(const std::string& scenario, int expected_ranks) {
  auto opened = Comm::mpi(expected_ranks);
  if (!opened) {
    say(0, opened.error().message);
    return exit_code(opened.error());
  }
  Comm& comm = **opened;
  const int last = comm.ranks() - 1;
  if (scenario == "collectives") return outcome(comm, use_collectives(comm));
  if (scenario == "messages") return outcome(comm, use_messages(comm));
  if (scenario == "library") {
    say(comm.rank(), comm.library());
    return 0;
  }
  if (scenario == "one_fails") {
    Result<> mine;
    if (comm.rank() == last) mine = fail(Errc::no_space, "out: allocate: No space left on device");
    return outcome(comm, agree(comm, soon_enough(), std::move(mine)));
  }
  if (scenario == "one_is_killed") {
    if (comm.rank() == last) ::raise(SIGKILL);
    return outcome(comm, agree(comm, in(std::chrono::seconds(5)), {}));
  }
  if (scenario == "one_is_silent") {
    // It comes back long after the others have given up, and finds nobody.
    if (comm.rank() == last) std::this_thread::sleep_for(std::chrono::seconds(6));
    const auto first = agree(comm, in(std::chrono::milliseconds(500)), {});
    const auto start = std::chrono::steady_clock::now();
    const auto second = agree(comm, soon_enough(), {});
    if (!first && !second && std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
      return outcome(comm, fail(Errc::internal, "waited for a lost rank again"));
    }
    return outcome(comm, first ? second : first);
  }
  return 99;
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) {
  return argc == 3 ? ckpt::run(argv[1], std::atoi(argv[2])) : 98;
}
