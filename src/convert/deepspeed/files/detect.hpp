#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/place.hpp"

namespace ckpt::deepspeed {

/// True for a tag directory, or a save directory with tags (and perhaps `latest`) in it.
Result<std::optional<Match>> detect(const Place& place);

/// The tag directory that a path means.
struct Tag {
  std::string directory{};            ///< below the path; "" = the path is the tag directory
  std::string chosen{};               ///< for people: "tag global_step3 from 'latest'"
  std::vector<DirEntry> entries{};    ///< of the tag directory, without the writer's suffix
  std::vector<std::string> others{};  ///< further tags of the save directory, which are not read
  std::string suffix{};               ///< that FastPersist put after every name: "-0.1"
};

/// The path of a file of the tag, below the path that was given.
std::string path_in(const Tag& tag, const std::string& name);

/// Follows `latest`; without it the only tag is taken.
/// errors   incomplete: `latest` names a tag that is not there (the others are listed); ambiguous: several tags and no
///          `latest`; refused: `latest` leads out of the directory; unsupported: nothing of DeepSpeed's here, or parts
///          of files that several FastPersist writers shared
Result<Tag> find_tag(Io& io, const std::string& root);

}  // namespace ckpt::deepspeed
