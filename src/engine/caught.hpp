#pragma once

#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "format/result.hpp"

namespace ckpt {

/// Runs `body`, which returns a Result, where an exception must not rise: at the bottom of a thread, and where other
/// ranks wait for what this one tells them. What is thrown becomes a failure: memory, io (a thread that the system
/// refuses), else internal.
template <class Body>
auto caught(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Errc::memory, "out of memory");
  } catch (const std::system_error& error) {
    return fail(Errc::io, error.what());
  } catch (const std::exception& error) {
    return fail(Errc::internal, error.what());
  } catch (...) {
    return fail(Errc::internal, "an exception of an unknown kind");
  }
}

}  // namespace ckpt
