#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/io/io.hpp"
#include "format/model/box.hpp"

namespace ckpt {

/// What an uncompressed tar archive holds: its members are ranges of it. Constant once it is read.
struct Archive {
  struct Member {
    FileInfo::Kind kind = FileInfo::Kind::file;
    Extent range{};        ///< of a file: bytes of the archive
    bool is_lost = false;  ///< a symbolic link to none of the files in the archive
  };

  std::string path{};       ///< as given
  std::string real_path{};  ///< absolute, without links
  FileInfo info{};
  std::map<std::string, Member, std::less<>> members{};  ///< by their paths in it; folders too

  /// The path below the archive ("" for itself) of a path that leads into it; nothing for other paths.
  std::optional<std::string> below(std::string_view whole) const;
};

/// The archive at a path, or at a part of it: run.tar for "run.tar/iter_0000100". Reads the header of each member. Null if
/// there is none.
/// errors  incomplete: it was cut short; corrupt; unsupported: it holds a sparse file, or more members than 256 Ki;
///         those of Io
Result<std::shared_ptr<const Archive>> find_archive(Io& io, const std::string& path);

/// An Io in which the archive is a folder with its members; for reading. Files in it are never direct. `inner` outlives
/// it, if it is not its own.
std::unique_ptr<Io> make_archive_io(Io& inner, std::shared_ptr<const Archive> archive);
std::unique_ptr<Io> make_archive_io(std::unique_ptr<Io> inner, std::shared_ptr<const Archive> archive);

}  // namespace ckpt
