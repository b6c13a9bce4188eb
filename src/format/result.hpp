#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace ckpt {

/// Every failure the project knows. The value divided by 100 is the exit code (see docs/exit-codes.md); the
/// value itself is the stable id shown to users as CKPT-E<value>. Values are never reused.
enum class Errc : int {
  differs = 100,        ///< the question was answered: contents differ, damage was found
  usage = 200,          ///< the caller asked for something that makes no sense
  target_exists = 201,  ///< the target exists and --overwrite was not given
  mpi_launch = 202,     ///< the environment promises ranks that cannot be reached
  not_done = 300,       ///< finished, but a requested item was not done
  guarded = 400,        ///< a guard stopped it: nothing was deleted, and a person must decide
  not_found = 1000,     ///< no such checkpoint, file or tensor
  locked = 1100,        ///< another process holds it
  changed = 1101,       ///< a file of the source was replaced or changed while it was read
  unsupported = 1200,   ///< recognised or not, this build cannot read it
  newer = 1201,         ///< written by a newer release: unknown version or required feature
  ambiguous = 1202,     ///< more than one format matches
  incomplete = 1300,    ///< files are missing
  uncommitted = 1301,   ///< the save that wrote it never finished
  no_space = 1400,      ///< no space, inodes or quota
  corrupt = 1500,       ///< bytes contradict the format
  uncovered = 1501,     ///< some region of a tensor is in no file
  overlap = 1502,       ///< some region of a tensor is in two files with different boxes
  checksum = 1503,      ///< stored and computed checksums differ
  refused = 1510,       ///< hostile content, refused by name
  linked = 1511,        ///< a symbolic link where ckpt must write
  io = 1600,            ///< the system said no (EIO, ESTALE, ...)
  peer_failed = 1601,   ///< another rank failed or was lost
  not_durable = 1602,   ///< visible, perhaps not durable: the last fsync failed
  memory = 1700,        ///< does not fit in the memory bound
  internal = 7000,      ///< a broken invariant of ckpt itself
  interrupted = 13000,  ///< stopped by SIGINT or by the caller
  terminated = 14300,   ///< stopped by SIGTERM
};

/// The process exit code for a failure.
constexpr int exit_code(Errc code) {
  return static_cast<int>(code) / 100;
}

/// A failure as a value. `message` reads "object: operation: reason"; the other members are filled where known
/// and printed by the command line in its error block.
struct Error {
  Errc code = Errc::internal;
  std::string message;
  std::string file{};                     ///< the file concerned, as the user can find it
  std::optional<std::uint64_t> offset{};  ///< bytes from the start of `file`
  std::string tensor{};                   ///< the tensor concerned, and its region where known
  std::string hint{};                     ///< advice for the user: a sentence or a command
  int system_code = 0;                    ///< errno, if the system refused an operation on `file`
  std::optional<Errc> verdict{};  ///< among ranks: the code that all of them end with (engine/comm/comm.hpp, agree)
};

/// The process exit code for a failure; equal on all ranks that agreed.
constexpr int exit_code(const Error& error) {
  return exit_code(error.verdict.value_or(error.code));
}

template <class T = void>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string message) {
  return tl::unexpected<Error>(Error{.code = code, .message = std::move(message)});
}
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

/// Adds the file, the tensor or the hint to an error that is passed up, if not yet set.
inline Error with_file(Error error, std::string_view file, std::optional<std::uint64_t> offset = {}) {
  if (error.file.empty()) {
    error.file = file;
    if (!error.offset) error.offset = offset;
  }
  return error;
}
inline Error with_tensor(Error error, std::string_view tensor) {
  if (error.tensor.empty()) error.tensor = tensor;
  return error;
}
inline Error with_hint(Error error, std::string_view hint) {
  if (error.hint.empty()) error.hint = hint;
  return error;
}

}  // namespace ckpt

#define CKPT_JOIN_(a, b) a##b
#define CKPT_JOIN(a, b) CKPT_JOIN_(a, b)
#define CKPT_TRY_(name, declaration, ...)                                     \
  auto name = (__VA_ARGS__);                                                  \
  if (!name) return ::tl::unexpected<::ckpt::Error>(std::move(name).error()); \
  declaration = *std::move(name)

/// CKPT_TRY(auto x, f()): binds the value of a Result, or returns its error from the enclosing function.
#define CKPT_TRY(declaration, ...) CKPT_TRY_(CKPT_JOIN(ckpt_try_, __LINE__), declaration, __VA_ARGS__)
/// CKPT_CHECK(f()): returns the error of a Result<> from the enclosing function, if it has one.
#define CKPT_CHECK(...)                                                       \
  do {                                                                        \
    if (auto ckpt_check_ = (__VA_ARGS__); !ckpt_check_)                       \
      return ::tl::unexpected<::ckpt::Error>(std::move(ckpt_check_).error()); \
  } while (false)
