#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/io/hold_directory.hpp"
#include "engine/io/io.hpp"
#include "engine/io/unique_fd.hpp"
#include "format/result.hpp"

/// Directories held by hold_directory for the Ios of real file systems, and lookup of paths below them.
namespace ckpt {

/// Owner and permissions of new files in a place.
struct NewRights {
  struct Owned {
    uid_t owner = 0;
    gid_t group = 0;
    mode_t mode = 0;
  };
  std::optional<Owned> store{};  ///< the store directory whose owner and rights they get
  mode_t allowed = 0777;         ///< limit of the permissions

  /// The mode to create with, of the usual 0666 or 0777; umask takes more away.
  mode_t creation_mode(mode_t usual) const { return usual & allowed; }
  /// Owner and permissions for a file that this process, running as user `self`, created with creation_mode and the
  /// system gave `made`.
  Owned wanted(Owned made, uid_t self, mode_t usual) const;
  /// Applies them to a file that this process has just created. If the file system refuses, the file stays as it is.
  void apply(int fd, mode_t usual) const;
};

/// Target of a change: `name` in `directory`.
struct ChangePlace {
  std::shared_ptr<const void> keeps{};  ///< keeps `directory` open
  int directory = AT_FDCWD;
  std::string name{};  ///< one path component; the whole path if no directory above it is held
  NewRights rights{};
};

/// Thread-safe. Ios made from one another share one.
class HeldDirectories {
 public:
  HeldDirectories();

  /// As hold_directory.
  Result<std::unique_ptr<HeldDirectory>> hold(const std::string& path, const HoldOptions& options);

  /// Target for a name to be created, removed or replaced.
  /// errors  linked: a link on the path; changed: the held
  /// directory was moved or replaced; system errors
  Result<ChangePlace> place(const std::string& path, const char* operation) const;

  struct Opened {
    UniqueFd fd{};
    int reason = 0;  ///< errno if there is no descriptor
    NewRights rights{};
  };
  /// Like openat(2), for files to be changed.
  /// errors  linked, changed
  Result<Opened> open(const std::string& path, int flags, const char* operation) const;
  /// For files that are only read: by plain path, unless a held directory above it requires more.
  /// errors  as open
  Result<Opened> open_to_read(const std::string& path, int flags, const char* operation) const;
  /// Whether reads of a path must not follow links.
  bool holds_reads(const std::string& path) const;

 private:
  struct Directory;
  struct Found;
  struct State;
  class Handle;
  static Result<> check_in_place(const Found& found, const char* operation);
  static Error refusal(const Found& found, int reason, const std::string& path, const char* operation);
  static Result<Opened> open_found(const Found& found, const std::string& path, int flags, const char* operation);

  std::shared_ptr<State> state_;
};

}  // namespace ckpt
