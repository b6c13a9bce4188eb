#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/model.hpp"
#include "support/memory_io.hpp"

/// Checkpoints in memory that tests damage, and what a user gets of them afterwards.
namespace ckpt::damage {

/// A copy of a golden checkpoint in memory, at kRoot.
class Copy {
 public:
  static constexpr const char* kRoot = "/c";
  /// `name` is FRAMEWORK/CASE.
  explicit Copy(const std::string& name);

  /// The files by their path below the root.
  const std::map<std::string, std::string>& files() const { return files_; }
  /// Puts other bytes in a file's place; files() still gives those it had.
  void put(const std::string& path, const std::string& bytes);
  void restore(const std::string& path) { put(path, files_.at(path)); }
  const std::string& now(const std::string& path) const { return now_.at(path); }
  Io& io() { return *io_; }

 private:
  MemoryDisk disk_;
  std::unique_ptr<Io> io_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> now_;
};

/// A tensor as a user gets it.
struct Content {
  std::string name;
  std::string type;  ///< dtype and shape; without its dimensions where it has no elements
  std::string bytes;
  auto operator<=>(const Content&) const = default;
};

/// Everything that opening gives: what the map says, as text, and lazily the tensors themselves.
struct Opened {
  Map map;
  std::string text;     ///< tensors, their chunks, aliases, files: equal texts give equal tensors
  std::string objects;  ///< Python objects and the step, and the pickles that are kept as blobs
};

/// Opens, asks for every chunk and checks that each tensor is covered, as a conversion does before its first byte.
Result<Opened> open(Copy& copy);
/// The tensors but blobs and those without elements, sorted by name; checksum where a stored one differs from the
/// bytes.
Result<std::vector<Content>> contents(Copy& copy, const Map& map);

/// What became of one damaged copy.
enum class Outcome : std::uint8_t {
  refused,   ///< an error
  harmless,  ///< every tensor, name and object is as before
  renamed,   ///< every tensor has its bytes; names or objects are other ones
  told,      ///< tensors are missing, those that are there have their bytes, and a warning says so
  wrong,     ///< some tensor has other bytes
};

/// A sound checkpoint, and judges of what damage makes of it.
class Case {
 public:
  /// Fails the running test where the checkpoint cannot be opened.
  explicit Case(const std::string& name);

  Copy& copy() { return copy_; }
  /// True for a byte that only the values of tensors are made of.
  bool is_value(const std::string& file, std::uint64_t offset) const;
  /// Opens the copy as it stands. Fails the running test where an error is not one of a damaged checkpoint, or names
  /// no file. `why` is the error's message or what differs.
  /// `values_moved`: the bytes of tensors may be others too, so they are compared also where the map is the same.
  Outcome judge(std::string& why, bool values_moved = false);

 private:
  Copy copy_;
  Opened sound_;
  std::vector<Content> contents_;
  std::map<std::string, std::vector<bool>> values_;
};

}  // namespace ckpt::damage
