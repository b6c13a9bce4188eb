#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/run/run.hpp"
#include "ckpt/ckpt.h"
#include "format/universal/mesh_layout.hpp"

/// The objects behind the handles of ckpt/ckpt.h, and the one way in which its functions fail.
namespace ckpt::c {

/// Keeps a failure for ckpt_last_error_json of this thread; returns its exit code.
int keep(const Error& error);
/// Nothing failed.
int keep_nothing();

/// Runs a function's body: no exception leaves the library, and a failure is kept.
template <class Body>
int guarded(Body body) noexcept {
  try {
    const Result<> done = body();
    return done ? keep_nothing() : keep(done.error());
  } catch (const std::bad_alloc&) {
    return keep({.code = Errc::memory, .message = "out of memory"});
  } catch (const std::exception& error) {
    return keep({.code = Errc::internal, .message = error.what()});
  } catch (...) {
    return keep({.code = Errc::internal, .message = "an exception of an unknown kind"});
  }
}

/// The process that opened a handle: in a forked child the handle is unusable, because its threads do not exist.
class Owner {
 public:
  Result<> check() const {
    if (pid_ == ::getpid()) return {};
    return fail(Errc::usage, "a run cannot be used in a forked child");
  }
  bool is_here() const { return pid_ == ::getpid(); }

 private:
  pid_t pid_ = ::getpid();
};

/// The state of a run's handle, which the handles of its saves watch: they may outlive it.
struct OpenRun {
  std::unique_ptr<Run> run{};
  std::uint64_t begun = 0;  ///< how many saves: only the last one can be added to
};

constexpr std::uint64_t kMostStructBytes = 4096;  ///< of any release: a larger size means an uninitialised struct

/// A struct that begins with its size, as this build knows it: members that an older caller lacks are zero.
///
/// first_bytes  the size in the first release
/// errors       usage: null, or the size was not set; newer: a member that this build does not know is not zero
template <class Struct>
Result<Struct> read_sized(const Struct* given, std::size_t first_bytes, const char* what) {
  if (given == nullptr) return fail(Errc::usage, std::string(what) + " is null");
  const std::uint64_t size = given->size;
  if (size < first_bytes || size > kMostStructBytes)
    return fail(Errc::usage, std::string(what) + ": its size is not set");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::uint64_t at = sizeof(Struct); at < size; ++at) {
    if (bytes[at] != 0) return fail(Errc::newer, std::string(what) + ": it uses members of a newer libckpt");
  }
  Struct out{};
  std::memcpy(&out, given, std::min<std::size_t>(static_cast<std::size_t>(size), sizeof out));
  return out;
}

/// Checks a struct that a call fills in, if the caller passed one.
/// errors  usage: the size was not set
template <class Struct>
Result<> check_sized(const Struct* given, std::size_t first_bytes, const char* what) {
  if (given == nullptr || (given->size >= first_bytes && given->size <= kMostStructBytes)) return {};
  return fail(Errc::usage, std::string(what) + ": its size is not set");
}

/// Refuses a null pointer where something must be.
inline Result<> need(const void* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return fail(Errc::usage, std::string(what) + " is null");
}

/// The I/O of a C caller: "auto" (also null), "uring", "threads".
/// errors  usage
inline Result<IoKind> io_kind(const char* name) {
  const std::string_view text = name == nullptr ? "auto" : name;
  if (text == "auto") return IoKind::automatic;
  if (text == "uring") return IoKind::uring;
  if (text == "threads") return IoKind::threads;
  return fail(Errc::usage, "'" + std::string(text) + "' is not an I/O engine: auto, uring or threads");
}

/// The tensor of a C caller.
/// errors  usage
Result<Tensor> tensor_of(const ckpt_tensor* tensor);

}  // namespace ckpt::c

struct ckpt_run {
  ckpt::c::Owner owner{};
  std::shared_ptr<ckpt::c::OpenRun> opened{};  // alone: other handles only watch it
};

struct ckpt_model {
  ckpt::universal::Mesh mesh{};
  std::vector<ckpt::universal::Layout> layouts{};
  std::vector<ckpt::universal::TensorRow> rows{};
};

struct ckpt_save {
  ckpt::c::Owner owner{};
  std::weak_ptr<ckpt::c::OpenRun> opened{};
  std::uint64_t number = 0;  // OpenRun::begun when this was begun
  std::vector<std::pair<std::string, std::string>> user{};
  std::deque<std::string> blobs{};  // bytes owned by the save: they live until commit has copied them
};

struct ckpt_pending {
  ckpt::c::Owner owner{};
  std::weak_ptr<ckpt::c::OpenRun> opened{};
  std::shared_ptr<ckpt::PendingSave> save{};
  std::string name{};
};

struct ckpt_checkpoint {
  ckpt::c::Owner owner{};
  std::unique_ptr<ckpt::Io> io{};  // its own: it may outlive the run
  std::unique_ptr<ckpt::BufferPool> pool{};
  ckpt::Model model{};
  ckpt::Checkpoint::ReadOptions options{};
  std::string json{};                              // what ckpt_checkpoint_json has returned; empty: it was not called
  std::unique_ptr<ckpt::Checkpoint> checkpoint{};  // last: its lease is one of the Io's
};
