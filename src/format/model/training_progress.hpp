#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/model/object_tree.hpp"
#include "format/model/training_state.hpp"

/// Training state in a source's objects besides the optimizer's groups: loss scale, counters, scheduler.
namespace ckpt {

constexpr std::size_t kMostRootParts = 3;  // "app.optim" and the like before "state" and "param_groups"
constexpr std::string_view kState = "state";
constexpr std::string_view kGroups = "param_groups";

std::string lower_text(std::string text);
Path head(const Path& path, std::size_t parts);
Path tail(const Path& path, std::size_t parts);
bool begins_with(const Path& path, const Path& start);

/// Flattened state has its path in one key ("optimizer", "param_groups.emb.weight.lr"): the words that identify the
/// form become separate parts.
Path with_own_words(const Path& path);

/// Objects by their full paths; recognised ones are removed. The objects outlive it.
class ObjectShelf {
 public:
  ObjectShelf(std::span<const NamedObject> objects, const FullPaths& paths);

  const std::vector<std::pair<const NamedObject*, Path>>& objects() const { return objects_; }
  bool is_taken(const NamedObject& object) const { return taken_.contains(&object); }
  void mark(const NamedObject* object) { taken_.insert(object); }
  /// The object of that path, or the first rank's if ranks have different ones ("NAME@0"); null if there is none.
  const NamedObject* take(const Path& path);
  /// Everything below a path, in order.
  std::vector<TreeLeaf> take_below(const Path& start);

 private:
  std::vector<std::pair<const NamedObject*, Path>> objects_{};
  std::unordered_set<const NamedObject*> taken_{};
};

/// Fills loss_scale, counters and scheduler. Counters stay on the shelf: a target may keep them under their own names.
///
/// optimizer  the path of the optimizer, or null
/// step       Meta::step
void read_progress(ObjectShelf& shelf, const Path* optimizer, std::optional<std::uint64_t> step, TrainingState& out);

}  // namespace ckpt
