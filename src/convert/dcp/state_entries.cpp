#include "convert/dcp/state_entries.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "convert/dcp/entry_set.hpp"
#include "convert/dcp/training_entries.hpp"
#include "convert/left_out.hpp"
#include "convert/target_tensors.hpp"

namespace ckpt::dcp {
namespace {

/// The path of a value in the source's nested state. A source of flat names has one level.
Path source_path(bool nested, const std::string& name, const Path& path) {
  if (!path.empty()) return path;
  return nested ? split_at_dots(name) : Path{name};
}

/// The path of a renamed value: stripped or added wrappers are separate levels, any other name is one
/// level.
Path renamed_path(const Path& path, const std::string& old_name, const std::string& new_name) {
  if (new_name == old_name) return path;
  if (old_name.ends_with(new_name)) {
    for (std::size_t dropped = 1; dropped < path.size(); ++dropped) {
      Path rest(path.begin() + static_cast<std::ptrdiff_t>(dropped), path.end());
      if (dotted(rest) == new_name) return rest;
    }
  } else if (new_name.ends_with("." + old_name)) {
    Path out = split_at_dots(std::string_view(new_name).substr(0, new_name.size() - old_name.size() - 1));
    out.insert(out.end(), path.begin(), path.end());
    return out;
  }
  return {new_name};
}

/// A key that was not UTF-8 is kept in the path alone.
std::string key_of(const std::string& name, const Path& path) {
  std::string whole = dotted(path);
  return !is_utf8(whole) && dotted_escaped(path) == name ? whole : name;
}

/// Whether a slot is named "state.<the parameter's name>.<slot>", as by torch's state-dict functions.
bool is_named_slot(const Tensor& tensor) {
  if (tensor.parameter.empty() || tensor.slot == "master") return false;
  const std::string ending = "." + tensor.slot;
  const auto at = tensor.name.find("state.");
  if (at == std::string::npos || !tensor.name.ends_with(ending)) return false;
  const std::string_view key = std::string_view(tensor.name).substr(at + 6);
  return tensor.parameter.ends_with(key.substr(0, std::max(key.size(), ending.size()) - ending.size()));
}

/// Whether the source's own keys are what torch's state-dict functions would make.
bool keeps_keys(const WriteRequest& request) {
  const Map& map = *request.source;
  if (map.format == "dcp" || map.origin == "dcp") return true;
  return std::ranges::all_of(request.tensors, [&](const Selected& selected) {
    const Tensor& tensor = map.tensors[selected.tensor];
    return selected.role.value_or(tensor.role) != Role::slot || (map.nested && is_named_slot(tensor));
  });
}

/// The source's own keys.
class KeptKeys {
 public:
  explicit KeptKeys(const WriteRequest& request)
      : request_(request),
        map_(*request.source),
        names_(request),
        set_(request),
        keeps_items_(map_.format == "dcp" || map_.origin == "dcp") {}

  Result<StateEntries> build() {
    for (std::size_t i = 0; i < request_.tensors.size(); ++i) CKPT_CHECK(add_selected(i));
    CKPT_CHECK(add_tied());
    for (const NamedObject& object : request_.objects) {
      const Path path = source_path(map_.nested, object.name, object.path);
      if (!set_.has(key_of(object.name, path))) set_.add_value(path, object.value);  // else the item itself is kept
    }
    StateEntries out{.entries = std::move(set_.entries())};
    add_left_out(out.notes, lost_blobs_, "opaque blob", "opaque blobs", "dcp");
    add_left_out(out.notes, set_.lost_objects(), "Python object", "Python objects", "dcp");
    return out;
  }

 private:
  Result<> add_selected(std::size_t selected) {
    const std::uint32_t index = request_.tensors[selected].tensor;
    const Tensor& source = map_.tensors[index];
    const Tensor tensor = names_.tensor(selected);
    Path path = renamed_path(source_path(map_.nested, source.name, source.path), source.name, tensor.name);
    std::string key = key_of(tensor.name, path);
    if (tensor.role != Role::blob) {
      paths_.emplace(tensor.name, Kept{index, path, selected});
      return set_.add_tensor(index, tensor, std::move(key), std::move(path));
    }
    if (keeps_items_) return set_.add_item(index, tensor.shape.front(), std::move(key), std::move(path));
    lost_blobs_.push_back(tensor.name);
    return {};
  }

  /// torch saves a tied weight under each of its names, and looks for each of them when it loads.
  Result<> add_tied() {
    for (const Alias& alias : request_.aliases) {
      const auto at = paths_.find(alias.target);
      if (at == paths_.end()) continue;
      const auto& [index, target_path, selected] = at->second;
      Path path{alias.name};
      if (map_.nested) {
        // Beside its tensor, as far as the names agree.
        path.assign(target_path.begin(), target_path.end() - 1);
        const std::string above = dotted(path) + ".";
        if (!path.empty() && alias.name.starts_with(above)) {
          path.emplace_back(alias.name.substr(above.size()));
        } else {
          path = split_at_dots(alias.name);
        }
      }
      CKPT_CHECK(set_.add_tensor(index, names_.tensor(selected), alias.name, std::move(path)));
    }
    return {};
  }

  struct Kept {
    std::uint32_t index;
    Path path;
    std::size_t selected;
  };
  const WriteRequest& request_;
  const Map& map_;
  const TargetTensors names_;
  EntrySet set_;
  const bool keeps_items_;  // blobs are torch.save archives, as DCP's items of bytes are
  std::unordered_map<std::string, Kept> paths_{};
  std::vector<std::string> lost_blobs_{};
};

}  // namespace

Result<StateEntries> state_entries(const WriteRequest& request) {
  if (keeps_keys(request)) return KeptKeys(request).build();
  return training_entries(request);
}

}  // namespace ckpt::dcp
