#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/archive.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The inputs of detection: one directory listing (or one file), first bytes on demand.
struct Place {
  Io& io;
  std::string root;  ///< path as the user gave it, without trailing slash
  bool directory = false;
  std::vector<DirEntry> entries{};  ///< of a directory, sorted by name
  std::string first{};              ///< of a file: its first bytes, kFirstBytes or all; "" if they were not read
  /// The place is a tar archive, or a folder in one: a directory of `io`, which this place owns then. Else null.
  std::shared_ptr<const Archive> archive{};
  std::shared_ptr<Io> archive_io{};

  static constexpr std::size_t kFirstBytes = (std::size_t{64} << 10) + 8;  // no format reads more
  /// Of a file: reads `first` once for all formats. Errors are reported by the reader that needs the file.
  void read_first();
  bool has(std::string_view name) const;
  /// Lists a directory of `entries`; nothing if there is none with this name.
  Result<std::vector<DirEntry>> list_below(std::string_view name) const;
  /// First `bytes` of a file below root ("" = root itself), fewer if it is shorter.
  Result<std::string> head(std::string_view relative, std::size_t bytes) const;
};

/// A format's answer: yes, here (a path below Place::root, "" for the root), for this reason.
struct Match {
  std::string where{};  ///< sub-directory that really holds the checkpoint
  std::string why{};    ///< "3 *.safetensors with an index"
  std::string hint{};   ///< of a format without a reader: another way to read the data
};

/// "PATH: reason", with the path as the error's file.
Error about_path(const std::string& path, Errc code, const std::string& reason, std::string hint = {});

}  // namespace ckpt
