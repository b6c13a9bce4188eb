#include "convert/dcp/state_entries.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "convert/dcp/training_entries.hpp"
#include "convert/dcp_entries.hpp"
#include "convert/left_out.hpp"
#include "convert/target_tensors.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::dcp {
namespace {

/// The path of a value in the source's nested state. A source of flat names has one level.
Path source_path(bool nested, const std::string& name, const Path& path) {
  if (!path.empty()) return path;
  return nested ? split_at_dots(name) : Path{name};
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

/// Whether parameter groups list numbers, as torch.optim's own state dict does.
bool numbers_parameters(const WriteRequest& request) {
  return std::ranges::any_of(request.objects, [](const NamedObject& object) {
    const Path path = object.path.empty() ? split_at_dots(object.name) : object.path;
    const auto groups = std::ranges::find(path, PathPart(std::string("param_groups")));
    if (path.end() - groups < 3 || groups[2] != PathPart(std::string("params"))) return false;
    const auto* list = std::get_if<List>(&object.value.v);
    const Value* first = list == nullptr ? &object.value : list->items.empty() ? nullptr : list->items.front().get();
    return first != nullptr && std::holds_alternative<std::int64_t>(first->v);
  });
}

/// Whether the source's own keys are what torch's state-dict functions would make.
bool keeps_keys(const WriteRequest& request) {
  const Map& map = *request.source;
  if (map.format == "dcp" || map.origin == "dcp") return true;
  if (numbers_parameters(request)) return false;
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
        is_value_(written_tensors(request)),
        keeps_items_(map_.format == "dcp" || map_.origin == "dcp") {}

  Result<StateEntries> build() {
    for (std::size_t i = 0; i < request_.tensors.size(); ++i) CKPT_CHECK(add_selected(i));
    CKPT_CHECK(add_tied());
    keeps_items_ ? add_items() : add_leaves();
    StateEntries out{.entries = set_.take_entries()};
    add_left_out(out.notes, lost_blobs_, "opaque blob", "opaque blobs", "dcp", Skipped::training_state);
    add_left_out(out.notes, set_.lost_objects(), "Python object", "Python objects", "dcp", Skipped::training_state);
    return out;
  }

 private:
  Result<> add_selected(std::size_t selected) {
    const std::uint32_t index = request_.tensors[selected].tensor;
    const Tensor& source = map_.tensors[index];
    const Tensor tensor = names_.tensor(selected);
    Path path = renamed_path(source_path(map_.nested, source.name, source.path), source.name, tensor.name);
    std::string key = key_of(tensor.name, path);
    if (tensor.role != Role::blob || (!keeps_items_ && is_value_[selected])) {
      kept_.emplace(tensor.name, Kept{index, selected});
      return set_.add_tensor(index, tensor, std::move(key), std::move(path));
    }
    if (keeps_items_) return set_.add_item(index, tensor.shape.front(), std::move(key), std::move(path));
    lost_blobs_.push_back(tensor.name);
    return {};
  }

  /// Objects as DCP saved them.
  void add_items() {
    for (const NamedObject& object : request_.objects) {
      const Path path = source_path(true, object.name, object.path);
      if (!set_.has(key_of(object.name, path))) set_.add_value(path, object.value);  // else the item itself is kept
    }
  }

  void add_leaves() {
    std::vector<TreeLeaf> leaves;
    for (const NamedObject& object : request_.objects) {
      const ValuePtr borrowed(&object.value, [](const Value*) {});
      leaves.push_back({source_path(map_.nested, object.name, object.path), borrowed});
    }
    set_.add_leaves(leaves);
  }

  /// torch saves a tied weight under each of its names, and looks for each of them when it loads.
  Result<> add_tied() {
    for (const Alias& alias : request_.aliases) {
      const auto at = kept_.find(alias.target);
      if (at == kept_.end()) continue;
      const auto& [index, selected] = at->second;
      Path path = source_path(map_.nested, alias.name, alias.path);
      CKPT_CHECK(set_.add_tensor(index, names_.tensor(selected), alias.name, std::move(path)));
    }
    return {};
  }

  struct Kept {
    std::uint32_t index;
    std::size_t selected;
  };
  const WriteRequest& request_;
  const Map& map_;
  const TargetTensors names_;
  EntrySet set_;
  const std::vector<bool> is_value_;  // by WriteRequest::tensors
  const bool keeps_items_;            // blobs are torch.save archives, as DCP's items of bytes are
  std::unordered_map<std::string, Kept> kept_{};
  std::vector<std::string> lost_blobs_{};
};

}  // namespace

Result<StateEntries> state_entries(const WriteRequest& request) {
  if (keeps_keys(request)) return KeptKeys(request).build();
  return training_entries(request);
}

}  // namespace ckpt::dcp
