#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/hold_directory.hpp"
#include "engine/io.hpp"
#include "engine/unique_fd.hpp"
#include "format/result.hpp"

/// What the real file systems' Ios hold by hold_directory, and where a path below it is found.
namespace ckpt {

/// To whom new things in a place belong, and who may use them.
struct NewRights {
  struct Owned {
    uid_t owner = 0;
    gid_t group = 0;
    mode_t mode = 0;
  };
  std::optional<Owned> store{};  ///< the store directory that they follow
  mode_t allowed = 0777;         ///< nothing beyond this

  /// The mode to create with, of the usual 0666 or 0777; umask takes more away.
  mode_t creation_mode(mode_t usual) const { return usual & allowed; }
  /// What a thing shall have that this process, of user `self`, made with creation_mode and the system gave `made`.
  Owned wanted(Owned made, uid_t self, mode_t usual) const;
  /// Gives it to what this process made just now. Where the file system refuses, it stays as it was made.
  void settle(int fd, mode_t usual) const;
};

/// Where a change takes effect: `name` in `directory`.
struct ChangePlace {
  std::shared_ptr<const void> keeps{};  ///< `directory` open
  int directory = AT_FDCWD;
  std::string name{};  ///< one part; the whole path where nothing above it is held
  NewRights rights{};
};

/// Thread-safe; Ios that were made from one another share one.
class HeldDirectories {
 public:
  HeldDirectories();

  /// As hold_directory.
  Result<std::unique_ptr<HeldDirectory>> hold(const std::string& path, const HoldOptions& options);

  /// Of a name that is to be made, removed or replaced. errors  linked: a link stands on the way; changed: the held
  /// directory has another place now; those of the system
  Result<ChangePlace> place(const std::string& path, const char* operation) const;

  struct Opened {
    UniqueFd fd{};
    int reason = 0;  ///< errno, where there is no descriptor
    NewRights rights{};
  };
  /// As openat(2), of something that is to be changed. errors  linked, changed
  Result<Opened> open(const std::string& path, int flags, const char* operation) const;
  /// Of something that is only read: by its path, where no held directory above it wants more. errors  as open
  Result<Opened> open_to_read(const std::string& path, int flags, const char* operation) const;
  /// Whether what is read at a path is found without links.
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
