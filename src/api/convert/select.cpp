#include "api/convert/select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "api/convert/only_rule.hpp"
#include "convert/optimizer_roles.hpp"
#include "format/model/slot_name.hpp"
#include "format/text/name_list.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

/// The root key of nested state above a tensor.
std::string root_key(const Tensor& tensor) {
  if (!tensor.path.empty()) {
    const auto* text = std::get_if<std::string>(&tensor.path.front());
    return text != nullptr ? *text : std::string();
  }
  return tensor.name.substr(0, tensor.name.find('.'));
}

class Selector {
 public:
  Selector(const Map& map, const ConvertRequest& request) : map_(map), request_(request), wanted_(request.only) {}

  Result<Selection> run() {
    for (const Extra& extra : map_.extras) extras_.insert(extra.tensor);
    index_masters();
    for (const Alias& alias : map_.aliases) tied_.emplace(alias.target, alias.name);
    find_wrapper();
    pick_tensors();
    if (out_.tensors.empty() && !wanted_.everything()) return fail(nothing());
    report_weights();
    report_globs();
    pick_aliases();
    CKPT_CHECK(settle_names());
    pick_objects();
    return std::move(out_);
  }

 private:
  void note(Severity severity, std::string text) { out_.notes.push_back({severity, std::move(text)}); }

  void index_masters() {
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) {
      const Tensor& tensor = map_.tensors[i];
      if (tensor.role == Role::slot && tensor.slot == "master") masters_.emplace(tensor.parameter, i);
      if (tensor.role == Role::slot) trained_.insert(tensor.parameter);
    }
  }

  bool prefers_master() const {
    if (request_.weights == WeightsFrom::param) return false;
    return request_.weights == WeightsFrom::master || takes_weights_alone();
  }
  /// Of a weight that is cast, the master is nearer than the stored one, which was rounded.
  bool prefers_master(const Tensor& weight) const {
    const bool is_cast = request_.dtype && is_castable(weight.dtype) && *request_.dtype != weight.dtype;
    return prefers_master() || (request_.weights == WeightsFrom::automatic && is_cast);
  }
  bool takes_weights_alone() const { return wanted_.weights && !wanted_.optim && wanted_.globs.empty(); }

  /// State of a training that lies next to the model: a random state, a scheduler's rates.
  bool is_beside_model(const Tensor& tensor) const {
    constexpr std::array<std::string_view, 6> kOthers{"random",       "rng",    "scheduler",
                                                      "lr_scheduler", "scaler", "grad_scaler"};
    if (wrapper_.empty() || !takes_weights_alone()) return false;
    const std::string root = root_key(tensor);
    return std::ranges::any_of(kOthers, [&](std::string_view other) { return root.starts_with(other); });
  }

  /// --only weights of nested state: a root key that only wraps the model is dropped.
  void find_wrapper() {
    if (!map_.nested || !takes_weights_alone()) return;
    std::unordered_set<std::string> roots;
    bool optimizer = false;
    for (const Tensor& tensor : map_.tensors) {
      const std::string root = root_key(tensor);
      optimizer = optimizer || tensor.role == Role::slot || root.starts_with("optim");
      if (tensor.role == Role::param || tensor.role == Role::buffer) roots.insert(root);
    }
    for (const NamedObject& object : map_.objects) optimizer = optimizer || object.name.starts_with("optim");
    constexpr std::array<std::string_view, 3> kWrappers{"state_dict", "module", "model"};
    for (const std::string_view wrapper : kWrappers) {
      if (!roots.contains(std::string(wrapper)) || (wrapper == "model" && !optimizer)) continue;
      wrapper_ = std::string(wrapper) + ".";
      note(Severity::note, "removed prefix '" + wrapper_ + "'");
      return;
    }
    // One of several files holds all weights: its name prefixes theirs only because of the other files.
    if (roots.size() != 1) return;
    const std::string file = *roots.begin() + "/";
    const bool prefixed = std::any_of(map_.tensors.begin(), map_.tensors.end(),
                                      [&](const Tensor& tensor) { return tensor.name.starts_with(file); });
    if (!prefixed) return;
    wrapper_ = file;
    note(Severity::note, "removed the file name '" + wrapper_ + "'");
  }

  /// The name in the target of a weight; slots carry their parameter's name inside their own.
  std::string renamed(std::string_view name) {
    if (!request_.strip_prefix.empty() && name.starts_with(request_.strip_prefix)) {
      name.remove_prefix(request_.strip_prefix.size());
      stripped_ = true;
    }
    return request_.add_prefix + std::string(name);
  }

  std::string target_name(const Tensor& tensor) {
    if (tensor.role == Role::blob) return tensor.name;
    if (tensor.role == Role::slot) {
      const bool carries_it = parameter_in(tensor.name, tensor.slot) == tensor.parameter;
      return carries_it ? slot_name(renamed(tensor.parameter), tensor.slot) : tensor.name;
    }
    return weight_name(tensor.name, root_key(tensor));
  }

  std::string weight_name(std::string_view name, const std::string& root) {
    if (!wrapper_.empty() && wrapper_.compare(0, wrapper_.size() - 1, root) == 0 && name.starts_with(wrapper_))
      name.remove_prefix(wrapper_.size());
    return renamed(name);
  }

  bool takes(const Tensor& tensor) {
    if (is_beside_model(tensor)) {
      beside_.push_back(tensor.name);
      return false;
    }
    if (wanted_.everything() || wanted_.by_role(tensor.role)) return true;
    const auto [first, last] = tied_.equal_range(tensor.name);
    bool taken = wanted_.names.contains(tensor.name);
    if (taken) hit_.insert(tensor.name);
    const auto by_tie = [&](const std::string& glob, const std::string& name) {
      note(Severity::note, "--only '" + glob + "': " + name + " is stored as " + tensor.name);
      hit_.insert(glob);
      taken = true;
    };
    for (auto tie = first; tie != last; ++tie)
      if (wanted_.names.contains(tie->second)) by_tie(tie->second, tie->second);
    for (const std::string& glob : wanted_.wildcards) {
      if (matches_glob(tensor.name, glob)) {
        hit_.insert(glob);
        taken = true;
        continue;
      }
      const auto tie = std::find_if(first, last, [&](const auto& pair) { return matches_glob(pair.second, glob); });
      if (tie != last) by_tie(glob, tie->second);
    }
    return taken;
  }

  Dtype target_dtype(const Tensor& tensor, Role as) {
    const bool weight = as == Role::param || as == Role::buffer;
    if (!request_.dtype || !weight || *request_.dtype == tensor.dtype) return tensor.dtype;
    if (is_castable(tensor.dtype)) return *request_.dtype;
    ++kept_dtype_;
    return tensor.dtype;
  }

  void pick_tensors() {
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) {
      const Tensor& tensor = map_.tensors[i];
      if (extras_.contains(i) || !takes(tensor)) continue;
      std::uint32_t source = i;
      if (tensor.role == Role::param && prefers_master(tensor)) {
        const auto master = masters_.find(tensor.name);
        if (master != masters_.end() && map_.tensors[master->second].shape == tensor.shape) {
          source = master->second;
          ++from_master_;
        } else {
          ++from_param_;
          if (masters_.empty() || trained_.contains(tensor.name)) ++lacking_masters_;  // else it is frozen
        }
      }
      out_.tensors.push_back({source, target_name(tensor), target_dtype(map_.tensors[source], tensor.role)});
      if (source != i) out_.tensors.back().role = tensor.role;
      if (!map_.aliases.empty()) names_.emplace(tensor.name, out_.tensors.back().name);
    }
    if (!beside_.empty()) note(Severity::note, "not weights of the model, left out: " + name_list(beside_));
    if (!request_.strip_prefix.empty() && !stripped_) {
      note(Severity::warning, "--strip-prefix: no tensor name begins with '" + request_.strip_prefix + "'");
      out_.partial = true;
    }
  }

  void report_weights() {
    if (from_master_ > 0) {
      std::string text = "weights taken from the fp32 masters (" + std::to_string(from_master_) + " parameters)";
      if (from_param_ > 0) text += "; " + std::to_string(from_param_) + " without a master taken as stored";
      note(Severity::note, std::move(text));
    } else if (wanted_.weights && map_.derived.empty()) {  // derived ones are stored nowhere
      note(Severity::note, "weights taken as stored");
    }
    if (request_.weights == WeightsFrom::master && lacking_masters_ > 0) {
      note(Severity::warning, "--weights master: " + std::to_string(lacking_masters_) +
                                  " parameters have no master and were taken as stored");
      out_.partial = true;
    }
    if (kept_dtype_ > 0) {
      note(Severity::note,
           "--dtype: " + std::to_string(kept_dtype_) + " tensors are not F64, F32, F16 or BF16 and keep their dtype");
    }
  }

  void report_globs() {
    for (const std::string& glob : wanted_.globs) {
      if (hit_.contains(glob)) continue;
      note(Severity::warning, "--only '" + glob + "': no tensor matches");
      out_.partial = true;
    }
    if (wanted_.optim &&
        std::none_of(map_.tensors.begin(), map_.tensors.end(), [](const Tensor& t) { return t.role == Role::slot; })) {
      note(Severity::warning, "--only optim: the checkpoint has no optimizer state");
      out_.partial = true;
    }
  }

  Error nothing() const {
    std::string asked;
    const std::vector<std::string> words{"weights", "optim"};
    std::vector<std::string> known = words;
    for (const Tensor& tensor : map_.tensors) known.push_back(tensor.name);
    std::optional<std::string> near;
    for (const std::string& word : request_.only) {
      asked += (asked.empty() ? "" : ", ") + word;
      if (!near && std::ranges::find(words, word) == words.end()) near = nearest(word, known);
    }
    return {.code = Errc::not_found,
            .message = request_.source + ": no tensor matches --only " + asked,
            .hint = near ? "did you mean --only " + *near + "?"
                         : "'ckpt ls " + request_.source + "' lists the tensors, with --objects the other values"};
  }

  void pick_aliases() {
    std::vector<Tensor> others;
    std::vector<Path> paths;
    for (const Alias& alias : map_.aliases) {
      others.push_back({.name = alias.name});
      paths.push_back(alias.path.empty() ? split_at_dots(alias.name) : alias.path);
    }
    if (map_.nested) assign_roles(others, paths);
    for (std::size_t i = 0; i < others.size(); ++i) {
      const Alias& alias = map_.aliases[i];
      const auto target = names_.find(alias.target);
      if (target == names_.end() || (takes_weights_alone() && others[i].role == Role::slot)) continue;
      const bool wrapped = !wrapper_.empty() && alias.name.starts_with(wrapper_);
      const std::string root = wrapped ? wrapper_.substr(0, wrapper_.size() - 1) : std::string();
      Alias& tied = out_.aliases.emplace_back(Alias{.name = weight_name(alias.name, root), .target = target->second});
      if (!alias.path.empty()) tied.path = renamed_path(alias.path, alias.name, tied.name);
      alias_names_.push_back(alias.name);
    }
  }

  /// No tensor loses its name, and every name is unique, tied ones too. A tied name that renaming has made equal to its
  /// tensor's, or to another of its tied names, is redundant and dropped.
  Result<> settle_names() {
    struct Named {
      std::string_view before;  // in the source
      std::string_view tensor;  // its name in the target
    };
    std::unordered_map<std::string_view, Named> seen;
    seen.reserve(out_.tensors.size() + out_.aliases.size());
    const auto clash = [&](const Named& first, std::string_view second, std::string_view name) {
      return fail(Errc::usage, request_.source + ": '" + std::string(first.before) + "' and '" + std::string(second) +
                                   "' would both be named '" + std::string(name) + "'");
    };
    for (const Selected& selected : out_.tensors) {
      const std::string_view before = map_.tensors[selected.tensor].name;
      if (selected.name.empty() && !before.empty())
        return fail(Errc::usage,
                    request_.source + ": --strip-prefix would leave an empty name for '" + std::string(before) + "'");
      const auto [at, fresh] = seen.emplace(selected.name, Named{before, selected.name});
      if (!fresh) return clash(at->second, before, selected.name);
    }
    std::vector<Alias> kept;
    for (std::size_t i = 0; i < out_.aliases.size(); ++i) {
      const Alias& alias = out_.aliases[i];
      const auto [at, fresh] = seen.emplace(alias.name, Named{alias_names_[i], alias.target});
      if (!fresh && at->second.tensor != alias.target) return clash(at->second, alias_names_[i], alias.name);
      if (fresh) kept.push_back(alias);
    }
    out_.aliases = std::move(kept);
    return {};
  }

  void pick_objects() {
    for (const NamedObject& object : map_.objects) {
      const bool optim = object.name.starts_with("optim");
      const bool matched = wanted_.matches(object.name);
      if (wanted_.everything() || (wanted_.optim && optim) || matched) out_.objects.push_back(object);
    }
  }

  const Map& map_;
  const ConvertRequest& request_;
  OnlyRule wanted_;
  Selection out_;
  std::unordered_map<std::string, std::uint32_t> masters_;  // parameter name -> tensor index
  std::unordered_map<std::string, std::string> names_;      // source name -> target name, if there are aliases
  std::unordered_multimap<std::string, std::string> tied_;  // tensor name -> its other names
  std::unordered_set<std::string> trained_;                 // parameters that the optimizer has state of
  std::unordered_set<std::string> hit_;                     // globs that matched
  std::vector<std::string> beside_{};                       // the model: see is_beside_model
  std::vector<std::string> alias_names_;                    // in the source, of out_.aliases
  std::unordered_set<std::uint32_t> extras_;                // tensors that are not selected by name or role
  std::string wrapper_;                                     // with its separator: "model.", "pytorch_model.bin/"
  bool stripped_ = false;
  std::size_t from_master_ = 0;
  std::size_t from_param_ = 0;
  std::size_t lacking_masters_ = 0;
  std::size_t kept_dtype_ = 0;
};

/// Whether a finding names something that was asked for and is not part of the source's map, or that the target has no
/// place for.
bool is_requested(const Finding& finding, const ConvertRequest& request, const Format& target) {
  if (finding.skipped == Skipped::nothing) return false;
  const auto asks = [&](std::string_view what) {
    return request.only.empty() || std::ranges::find(request.only, what) != request.only.end();
  };
  if (finding.skipped == Skipped::unless_blobs)
    return (asks("weights") || asks("optim")) &&
           (!request.only.empty() || !(target.writer && target.writer->holds_blobs));
  return asks("optim") || (finding.skipped == Skipped::data && asks("weights"));
}

}  // namespace

Result<Selection> select(const Map& map, const ConvertRequest& request, bool keeps_ranks) {
  if (!keeps_ranks) return Selector(map, request).run();
  if (request.weights == WeightsFrom::master)
    return fail(
        {.code = Errc::unsupported,
         .message = fmt::format("{}: --weights master is not supported where the target keeps the model-parallel ranks",
                                request.target),
         .hint = "omit --weights, or convert to another format"});
  ConvertRequest as_stored = request;
  as_stored.weights = WeightsFrom::param;
  return Selector(map, as_stored).run();
}

std::vector<Finding> findings_for(const Map& map, const ConvertRequest& request, const Format& target) {
  std::vector<Finding> out = map.findings;
  for (Finding& finding : out) {
    const bool by_files = finding.skipped == Skipped::training_state || finding.skipped == Skipped::data;
    if (by_files && !is_requested(finding, request, target)) finding.severity = Severity::note;
    if (finding.skipped == Skipped::unless_blobs && is_requested(finding, request, target))
      finding.text += "; left out here";
  }
  // A request for weights alone needs no word about files of the optimizer.
  std::erase_if(out, [](const Finding& finding) {
    return finding.severity == Severity::note && finding.skipped == Skipped::training_state;
  });
  return out;
}

bool skips_requested(const Map& map, const ConvertRequest& request, const Format& target) {
  return !request.allow_skipped && std::ranges::any_of(map.findings, [&](const Finding& finding) {
    return is_requested(finding, request, target);
  });
}

}  // namespace ckpt
