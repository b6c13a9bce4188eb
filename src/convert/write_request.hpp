#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/target_options.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/plan.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/model/rank_layout.hpp"
#include "format/universal/references.hpp"

namespace ckpt {

/// A slice of a tensor.
struct TensorPart {
  Box box{};      ///< inside the source tensor
  Shape shape{};  ///< in the target: the box's sizes, without dimensions that an index took away
};

/// The request to a writer: tensors of the source map, in the source's order, with their names and dtypes in the
/// target.
struct Selected {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string name;          ///< in the target
  Dtype dtype = Dtype::f32;  ///< in the target
  /// In the target, if it differs from the source's: a master used as the weight is a parameter.
  std::optional<Role> role{};
  std::optional<TensorPart> part{};  ///< none: the whole tensor; set only for a FormatPartsWriter
};

/// An extra as the target gets it.
struct WantedExtra {
  std::string path;                   ///< relative to the target, a name that is_extra_name knows
  std::uint32_t tensor = 0;           ///< of the source: its bytes
  std::optional<std::string> text{};  ///< replacements, where they change
  std::uint64_t hash = 0;             ///< of what the target gets beside it: Map::written_beside
};

/// A file of the source as a virtual target refers to it.
struct Reference {
  std::string source{};  ///< ReferencedSource::path
  universal::ReferencedFile file{};
};

struct WriteRequest {
  const Map* source = nullptr;
  std::shared_ptr<const RankLayout> ranks{};  ///< of a source that was opened with its ranks apart; else null
  std::vector<Selected> tensors{};            ///< no extras
  std::vector<Alias> aliases{};               ///< whose targets are selected, with target names
  std::vector<NamedObject> objects{};         ///< with target names
  std::vector<WantedExtra> extras{};          ///< empty unless the format keeps them (FormatWriter::extras)
  std::uint64_t shard_bytes = 0;              ///< 0 = the writer's default
  bool only_weights = false;  ///< weights were asked for, and nothing else: a state dict, not nested state
  TargetOptions options{};    ///< only those of FormatWriter::options
  std::string target;         ///< final path
  std::string id;             ///< 32 hex digits
  std::string source_format;  ///< for the record
  /// Not null: the target refers to the bytes of tensors, and does not copy them. How it names and recognises a file of
  /// the source, by its index in Map::files; called once a file.
  std::function<Result<Reference>(std::uint32_t file)> refer{};
  /// Of a writer with `reads_steps`: values of optimizer state of one element ("step"), by index into Map::tensors.
  std::unordered_map<std::uint32_t, double> scalars{};
  const std::atomic<bool>* stop = nullptr;  ///< once set, laying out ends with `interrupted`; null: never

  bool has_extra(std::string_view path) const {
    return std::ranges::find(extras, path, &WantedExtra::path) != extras.end();
  }
  /// The weights are an adapter's: peft loads files of another name.
  bool is_adapter() const { return has_extra("adapter_config.json") && !has_extra("config.json"); }
};

/// The layout of a target.
struct Skeleton {
  bool directory = true;
  std::vector<TargetFile> files{};
  std::vector<Finding> dropped{};          ///< things that this format cannot hold
  std::vector<MapFile> extra_files{};      ///< sources of raw placements beyond the map's files, absolute paths;
                                           ///< their indices follow Map::files
  std::shared_ptr<void> keep{};            ///< objects that must live until the run is over (temporary files)
  std::vector<std::string> small_names{};  ///< of `finish`, if no checkpoint in our format has such a file
  /// Small files of step 5, the manifest last, from the leaf hashes of `files`; may be empty.
  std::function<Result<std::vector<SmallFile>>(const std::vector<Hash128>& leaves)> finish{};
};

}  // namespace ckpt
