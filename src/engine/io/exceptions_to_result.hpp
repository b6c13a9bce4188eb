#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "format/result.hpp"

namespace ckpt {

/// An error of the system: a thread could not be started because there are too many.
inline Error refused_by_system(const std::system_error& error) {
  if (error.code().value() != EAGAIN) return {.code = Errc::io, .message = error.what()};
  return {.code = Errc::io,
          .message = "cannot start a thread: " + error.code().message(),
          .hint = "raise the limit of processes and threads (ulimit -u, or that of the container)"};
}

/// Runs `body`, which returns a Result, where an exception must not escape: at the bottom of a thread, and where
/// other ranks wait for this one. Exceptions become errors: memory, io (a thread could not be started), else
/// internal.
template <class Body>
auto exceptions_to_result(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Errc::memory, "out of memory");
  } catch (const std::system_error& error) {
    return fail(refused_by_system(error));
  } catch (const std::exception& error) {
    return fail(Errc::internal, error.what());
  } catch (...) {
    return fail(Errc::internal, "an exception of an unknown kind");
  }
}

}  // namespace ckpt
