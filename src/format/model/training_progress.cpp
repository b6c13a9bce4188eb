#include "format/model/training_progress.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>

namespace ckpt {

std::string lower_text(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Path head(const Path& path, std::size_t parts) {
  return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(parts)};
}
Path tail(const Path& path, std::size_t parts) {
  return {path.begin() + static_cast<std::ptrdiff_t>(parts), path.end()};
}
bool begins_with(const Path& path, const Path& start) {
  return start.size() <= path.size() && std::equal(start.begin(), start.end(), path.begin());
}

Path with_own_words(const Path& path) {
  for (std::size_t i = 0; i < std::min(path.size(), kMostRootParts + 1); ++i) {
    const auto* text = std::get_if<std::string>(&path[i]);
    if (text == nullptr) continue;
    for (const std::string_view word : {kState, kGroups}) {
      const std::size_t at = text->starts_with(std::string(word) + ".") ? 0 : text->find("." + std::string(word) + ".");
      if (at == std::string::npos) continue;
      const std::size_t begin = at == 0 ? 0 : at + 1;
      Path out = head(path, i);
      if (at != 0) out.emplace_back(text->substr(0, at));
      out.emplace_back(std::string(word));
      out.emplace_back(text->substr(begin + word.size() + 1));
      out.insert(out.end(), path.begin() + static_cast<std::ptrdiff_t>(i) + 1, path.end());
      return out;
    }
  }
  return path;
}

ObjectShelf::ObjectShelf(std::span<const NamedObject> objects, const FullPaths& paths) {
  for (const NamedObject& object : objects)
    objects_.emplace_back(&object, with_own_words(paths.of(object.name, object.path)));
}

std::vector<TreeLeaf> ObjectShelf::take_below(const Path& start) {
  std::vector<TreeLeaf> out;
  for (const auto& [object, path] : objects_) {
    if (!begins_with(path, start)) continue;
    out.push_back({tail(path, start.size()), std::make_shared<Value>(object->value)});
    taken_.insert(object);
  }
  return out;
}

const NamedObject* ObjectShelf::take(const Path& path) {
  for (const auto& [object, at] : objects_) {
    if (at == path) {
      taken_.insert(object);
      return object;
    }
  }
  if (path.empty() || !std::holds_alternative<std::string>(path.back())) return nullptr;
  const std::string of_rank = std::get<std::string>(path.back()) + "@";
  const NamedObject* first = nullptr;
  for (const auto& [object, at] : objects_) {
    if (at.size() != path.size() || !std::equal(path.begin(), path.end() - 1, at.begin())) continue;
    const auto* text = std::get_if<std::string>(&at.back());
    if (text == nullptr || !text->starts_with(of_rank)) continue;
    taken_.insert(object);
    if (first == nullptr) first = object;
  }
  return first;
}

namespace {

/// Reads one state's progress.
class Progress {
 public:
  Progress(ObjectShelf& shelf, const Path* optimizer, std::optional<std::uint64_t> step, TrainingState& out)
      : shelf_(shelf), optimizer_(optimizer), step_(step), out_(out) {}

  void read() {
    if (optimizer_ != nullptr) read_optimizer_scale();
    if (!out_.loss_scale) read_grad_scaler();
    read_counters();
    read_scheduler();
  }

 private:
  static void read_fields(const Value* fields, LossScale& out) {
    if (const auto scale = real_number(member(fields, "cur_scale"))) out.scale = *scale;
    if (const auto dynamic = truth(member(fields, "dynamic"))) out.dynamic = *dynamic;
    if (const auto number = whole_number(member(fields, "cur_iter"))) out.iteration = *number;
    if (const auto number = whole_number(member(fields, "last_overflow_iter"))) out.last_overflow = *number;
    if (const auto factor = real_number(member(fields, "scale_factor"))) out.factor = *factor;
    if (const auto number = whole_number(member(fields, "scale_window"))) out.window = *number;
  }

  void read_optimizer_scale() {
    const auto at = [&](std::string_view name) {
      Path path = *optimizer_;
      path.emplace_back(std::string(name));
      return shelf_.take(path);
    };
    const NamedObject* object = at("loss_scaler");
    const NamedObject* dynamic = at("dynamic_loss_scale");
    if (object != nullptr) {
      LossScale& scale = out_.loss_scale.emplace();
      scale.original = object->value;
      const auto* opaque = std::get_if<Opaque>(&object->value.v);
      if (opaque == nullptr) return;
      // DeepSpeed before 0.8 says it by the class alone.
      scale.dynamic = opaque->global.ends_with(".DynamicLossScaler");
      read_fields(opaque->state.get(), scale);
      return;
    }
    Dict fields;
    for (const std::string_view name :
         {"cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window"}) {
      const NamedObject* field = at(name);
      if (field == nullptr) continue;
      auto key = std::make_shared<Value>();
      key->v = std::string(name);
      fields.items.emplace_back(std::move(key), std::make_shared<Value>(field->value));
    }
    if (fields.items.empty()) return;
    Value value;
    value.v = std::move(fields);
    LossScale& scale = out_.loss_scale.emplace();
    read_fields(&value, scale);
    if (dynamic != nullptr) scale.dynamic = truth(&dynamic->value).value_or(false);
  }

  /// torch.amp.GradScaler.state_dict(), below any key.
  void read_grad_scaler() {
    for (const auto& [object, path] : shelf_.objects()) {
      if (path.empty() || part_text(path.back()) != "_growth_tracker") continue;
      const auto leaves = shelf_.take_below(head(path, path.size() - 1));
      const auto tree = build_tree(leaves);
      if (!tree) return;
      LossScale& scale = out_.loss_scale.emplace();
      scale.dynamic = true;
      scale.scale = real_number(member(&*tree, "scale")).value_or(1);
      scale.factor = real_number(member(&*tree, "growth_factor")).value_or(2);
      scale.window = whole_number(member(&*tree, "growth_interval")).value_or(2000);
      const std::int64_t good = whole_number(member(&*tree, "_growth_tracker")).value_or(0);
      scale.iteration = step_ ? static_cast<std::int64_t>(*step_) : good;
      scale.last_overflow = scale.iteration - good - 1;
      scale.original = *tree;
      return;
    }
  }

  void read_counters() {
    const auto number = [&](std::string_view name) -> std::optional<std::int64_t> {
      for (const auto& [object, path] : shelf_.objects()) {
        if (path.size() == 1 && part_text(path[0]) == name) return whole_number(&object->value);
      }
      return std::nullopt;
    };
    Counters& to = out_.counters;
    to.skipped_steps = number("skipped_steps");
    to.samples = number("global_samples");
    to.epoch = number("epoch");
    to.steps = number("global_steps");
    if (!to.steps) to.steps = number("global_step");
    if (!to.steps && step_) to.steps = static_cast<std::int64_t>(*step_);
  }

  void read_scheduler() {
    std::set<Path> found;
    for (const auto& [object, path] : shelf_.objects()) {
      for (std::size_t i = 0; i < std::min<std::size_t>(path.size(), 2); ++i) {
        const std::string word = lower_text(part_text(path[i]));
        if (word.find("sched") == std::string::npos) continue;
        Path at = head(path, i + 1);
        // Lightning's list of schedulers.
        if (word.ends_with("schedulers") && path.size() > i + 1 && index_of(path[i + 1])) at.push_back(path[i + 1]);
        found.insert(std::move(at));
        break;
      }
    }
    if (found.size() != 1) {
      if (found.size() > 1)
        out_.notes.push_back({.text = std::to_string(found.size()) +
                                      " schedulers are kept as objects, and none is used as the optimizer's"});
      return;
    }
    const auto leaves = shelf_.take_below(*found.begin());
    auto tree = build_tree(leaves);
    if (tree && !std::holds_alternative<None>(tree->v)) out_.scheduler = *std::move(tree);
  }

  ObjectShelf& shelf_;
  const Path* optimizer_;
  std::optional<std::uint64_t> step_;
  TrainingState& out_;
};

}  // namespace

void read_progress(ObjectShelf& shelf, const Path* optimizer, std::optional<std::uint64_t> step, TrainingState& out) {
  Progress(shelf, optimizer, step, out).read();
}

}  // namespace ckpt
