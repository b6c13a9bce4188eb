#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "engine/locks/lease.hpp"

/// Virtual conversions: targets that refer to the files of their source.
namespace ckpt {

/// What a virtual conversion cannot do, before the source is opened.
/// errors  usage: another target format, a cast, several ranks
Result<> check_by_reference(const Session& session, const ConvertRequest& request, const Format& target);

/// The files of a source that a target refers to. The source outlives it.
class References {
 public:
  References(const Source& source, std::string target) : source_(source), target_(std::move(target)) {}

  /// For WriteRequest::refer. A path is relative to the target's directory if both have a common parent other than '/',
  /// so that they can move together; else absolute.
  /// errors  usage: a path that is not UTF-8
  Result<Reference> refer(std::uint32_t file);
  const std::vector<std::string>& paths() const { return paths_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Result<std::string> stored_path(const std::string& root);

  const Source& source_;
  const std::string target_;
  std::map<std::string, std::string> stored_{};  // by root
  std::vector<std::string> paths_{};
  std::uint64_t bytes_ = 0;
};

struct Protection {
  std::vector<Finding> warnings{};               ///< for each checkpoint in which this process must not write
  std::vector<std::unique_ptr<Lease>> leases{};  ///< on what is marked: kept until the target is committed
};
/// Writes a mark into every checkpoint of a store that holds one of the files, so that no policy deletes it: for the
/// virtual checkpoint `target` with this id, before that is committed.
Result<Protection> protect_files(Io& io, const std::vector<std::string>& files, const std::string& target,
                                 const std::string& id);

/// Removes these marks, except from checkpoints that hold one of the files `still`, once the target is replaced. A mark
/// that cannot be removed now is removed by the next prune: it protects nothing.
void release_files(Io& io, const std::vector<std::string>& files, const std::string& target,
                   const std::vector<std::string>& still);

/// The checkpoints of a store that hold one of the files and have no mark of `target`, as after it was moved: a policy
/// may delete them.
std::vector<std::string> find_unprotected(Io& io, const std::vector<std::string>& files, const std::string& target);

}  // namespace ckpt
