#pragma once

#include <atomic>
#include <memory>

#include "engine/io/io.hpp"

namespace ckpt {

/// Whether a process has begun to change something on a disk: until then it may be ended anywhere. Either something is
/// changed first, or all changes are refused first, never both. Thread-safe.
class Changes {
 public:
  /// Before a change. False: changes are no longer allowed.
  bool begin();
  /// After a `begin` that was true; `changed`: something was, or may have been.
  void end(bool changed);
  /// Refuses every change from now on. Does nothing and returns false if something was changed or is being changed.
  bool refuse();

 private:
  static constexpr int kChanged = -1;
  static constexpr int kRefused = -2;
  std::atomic<int> state_{0};  // one of these, or the number of attempts in progress
};

/// An Io that records what it changes. When changes are refused it fails with `interrupted`. `changes` outlives it.
std::unique_ptr<Io> make_noted_io(std::unique_ptr<Io> inner, Changes& changes);

}  // namespace ckpt
