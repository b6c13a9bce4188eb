#pragma once

#include <unistd.h>

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "api/store.hpp"
#include "ckpt/ckpt.h"
#include "format/mesh_layout.hpp"

/// What stands behind the handles of ckpt/ckpt.h, and the one way in which its functions fail.
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
  }
}

/// The process that opened a handle: in a forked child it is dead, its threads are not there.
class Owner {
 public:
  Result<> check() const {
    if (pid_ == ::getpid()) return {};
    return fail(Errc::usage, "a checkpoint store does not work in a forked child");
  }
  bool is_here() const { return pid_ == ::getpid(); }

 private:
  pid_t pid_ = ::getpid();
};

/// Refuses a null pointer where something must be.
inline Result<> need(const void* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return fail(Errc::usage, std::string(what) + " is null");
}

/// The tensor of a C caller. errors  usage
Result<Tensor> tensor_of(const ckpt_tensor* tensor);

}  // namespace ckpt::c

struct ckpt_store {
  ckpt::c::Owner owner{};
  std::unique_ptr<ckpt::Store> store{};
};

struct ckpt_model {
  ckpt::universal::Mesh mesh{};
  std::vector<ckpt::universal::Layout> layouts{};
  std::vector<ckpt::universal::TensorRow> rows{};
};

struct ckpt_save {
  ckpt_store* store = nullptr;
  std::vector<std::pair<std::string, std::string>> user{};
};

struct ckpt_pending {
  ckpt_store* store = nullptr;
  std::shared_ptr<ckpt::PendingSave> save{};
  std::string name{};
};

struct ckpt_checkpoint {
  ckpt::c::Owner owner{};
  std::unique_ptr<ckpt::Io> io{};  // its own: it may outlive the store
  std::unique_ptr<ckpt::BufferPool> pool{};
  ckpt::Model model{};
  ckpt::Checkpoint::ReadOptions options{};
  std::unique_ptr<ckpt::Checkpoint> checkpoint{};  // last: its lease is one of the Io's
};
