#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "format/result.hpp"
#include "writers/save_event.hpp"

namespace ckpt {

/// Failures of saves that nobody has asked about, until the store is closed. One thread; events may be asked by any.
/// Its size is bounded by the number of saves whose handles still exist.
class Untold {
 public:
  /// `error` says which save it is about.
  void add(const SaveEvent& event, Error error);
  /// The worst failure of which nobody was told, by its code; its message says how many more there are. Nothing where
  /// all were told, or none failed.
  std::optional<Error> worst();

 private:
  struct Failure {
    SaveEvent::Told told;
    Error error;
  };
  /// No handle is left, so nobody can ask about it any more.
  struct Forgotten {
    std::size_t count = 0;
    Error worst{};
  };
  void sort_out();

  std::vector<Failure> failures_{};
  Forgotten forgotten_{};
};

}  // namespace ckpt
