#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/io/io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {

/// Hosts that share a disk by a network file system, at its worst: a simulation. Thread-safe; what the server keeps
/// outlives the Ios.
/// - locks are those of one host, or there are none
/// - a listing is what the host remembers of the directory, until it changes something there itself or `forget`
/// - so are a name's attributes, and that there is no such name; of a file that is opened the server is asked
/// - a file that another host has removed is lost to processes that have it open: `io`, a stale file handle
/// - the reply of every n-th rename is lost: it is done, but `not_found` is returned, as if the server was asked twice
/// - O_DIRECT is refused, and so is an exchange of two names
class NetworkDisk {
 public:
  struct Options {
    bool locks = true;
    LockReach reach = LockReach::host;
    bool stale_listings = true;
    bool stale_attributes = true;
    std::uint64_t lost_answers = 0;  ///< one of this many renames; 0: none
  };
  /// `server`: makes Ios of the server's files.
  NetworkDisk(std::function<std::unique_ptr<Io>()> server, Options options);
  NetworkDisk(const MemoryDisk& disk, Options options);
  ~NetworkDisk();

  /// An Io of a process of this host. Processes that were named before are the same ones.
  std::unique_ptr<Io> io(const std::string& host, std::uint64_t pid = 100);
  /// The process is killed: its Ios do nothing any longer.
  void kill(const std::string& host, std::uint64_t pid = 100);
  /// Time goes by, on all hosts.
  void wait(std::chrono::nanoseconds time);
  /// All hosts drop their caches.
  void forget();
  /// How many operations have met a stale file handle.
  std::uint64_t stale_count() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ckpt
