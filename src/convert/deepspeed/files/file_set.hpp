#pragma once

#include <map>
#include <string>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/state_file.hpp"
#include "convert/read_options.hpp"

namespace ckpt::deepspeed {

/// The files of one checkpoint, numbered as they are first opened, with a hash of the parsed bytes of each.
class FileSet {
 public:
  /// Files are added to the builder's map. Io and builder must outlive this.
  FileSet(Io& io, std::string root, const ReadOptions& options, MapBuilder& builder);

  const std::string& root() const { return root_; }
  Io& io() const { return io_; }
  /// The user's rules for this checkpoint, or null.
  const MapRules* user_rules() const { return user_rules_; }
  /// Opens a torch file for the first time; `path` is below the root. errors: as StateFile::open
  Result<StateFile> open(const std::string& path);
  /// Adds a file without a header and returns its number. errors: incomplete if it does not exist; refused if it is not
  /// a regular file
  Result<std::uint32_t> add_raw(const std::string& path);
  std::uint64_t bytes_of(std::uint32_t file) const { return builder_.map().files[file].bytes; }
  /// Over every metadata byte that was parsed, in path order.
  std::string metadata_hash() const;
  /// Checks that no file was saved under another name: the contents of a rank's file rarely show its rank.
  /// errors   corrupt, with the file
  Result<> check_names() const;

 private:
  Io& io_;
  std::string root_;
  const MapRules* user_rules_;
  pickle::Budget budget_{};
  MapBuilder& builder_;
  std::map<std::string, std::string> folders_{};  // by path: TorchArchive::folder
  std::map<std::string, Hash128> hashes_{};       // by path: their order is that of the fingerprint
};

}  // namespace ckpt::deepspeed
