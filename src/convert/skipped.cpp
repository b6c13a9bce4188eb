#include "convert/skipped.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "format/files/extra_names.hpp"
#include "format/text/glob.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostFoldersBeside = 256;
constexpr std::size_t kMostFilesBeside = 1024;  // of which the first bytes are checked
constexpr std::size_t kDeepestFolder = 4;       // folders inside folders

// File names of training state, which is not weights, by trainer.
constexpr std::array<std::string_view, 10> kStateNames{
    "*optim*",    "scheduler*",     "*lr_scheduler*",  "scaler*",   "sampler*",
    "rng_state*", "random_states*", "*dl_state_dict*", "*rng*.pt*", "custom_checkpoint_*"};
// The text before the number in the name of a step's folder.
constexpr std::array<std::string_view, 5> kStepWords{"checkpoint", "ckpt", "step", "epoch", "iter"};
// The same, if the checkpoint itself is in such a folder; elsewhere they are parts of one: the Hugging Face Trainer
// keeps DeepSpeed's optimizer of a checkpoint in a folder global_step3 inside it.
constexpr std::array<std::string_view, 2> kTagWords{"", "global_step"};
// In addition to is_extra_name: files that describe weights that are not here.
constexpr std::array<std::string_view, 2> kSettingsNames{"*.json", "*.py"};
// Data by name alone: a pickle has no characteristic first bytes, and no format here recognises the others.
constexpr std::array<std::string_view, 14> kDataNames{
    "*.pkl",         "*.pickle", "*.msgpack", "*.onnx",          "*.gguf", "*.npz",   "*.npy",
    "*.safetensors", "*.pt",     "*.pth",     "*.safetensors.*", "*.pt.*", "*.pth.*", "*.bin.*"};

// Weights as a trainer writes them for inference.
constexpr std::array<std::string_view, 3> kWeightsNames{"model*.safetensors", "adapter_model.safetensors",
                                                        "pytorch_model*.bin"};

constexpr std::array<std::string_view, 4> kTextNames{"*.txt", "*.md", "*.log", "*.csv"};

bool matches_any(std::string_view name, std::span<const std::string_view> globs) {
  return std::ranges::any_of(globs, [&](std::string_view glob) { return matches_glob(name, glob); });
}

/// "checkpoint-500", "step-000000001.g7", with kTagWords "global_step3".
bool is_step_folder(std::string_view name, std::span<const std::string_view> words) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t begin = name.find_first_of(kDigits);
  if (begin == std::string_view::npos) return false;
  std::string_view word = name.substr(0, begin);
  const std::string_view rest = name.substr(std::min(name.find_first_not_of(kDigits, begin), name.size()));
  if (word.ends_with('-') || word.ends_with('_') || word.ends_with('=')) word.remove_suffix(1);
  return std::ranges::find(words, word) != words.end() && (rest.empty() || rest.starts_with(".g"));
}

class LookBeside {
 public:
  LookBeside(Io& io, const std::string& root, const Format& format, const Map& map)
      : io_(io), root_(root), format_(format), map_(map) {
    for (const MapFile& file : map.files) {
      if (is_temporary(file)) continue;
      mapped_.insert(file.path);
      for (std::string folder = parent_of(file.path);; folder = parent_of(folder)) {
        if (!folders_.insert(folder).second || folder.empty()) break;
      }
    }
    folders_.insert("");
    holds_weights_ = std::ranges::any_of(map.tensors, [](const Tensor& tensor) { return tensor.role == Role::param; });
  }

  Result<Beside> run() {
    for (const std::string& folder : folders_) {
      // Folders of a format with hashes are covered by its own check (Format::hashes).
      if (!folder.empty() && format_.hashes != nullptr) continue;
      CKPT_TRY(const auto entries, io_.list(join_path(root_, folder)));
      if (folder.empty())
        is_trainers_ =
            std::ranges::any_of(entries, [](const DirEntry& entry) { return marks_trainer_folder(entry.name); });
      CKPT_CHECK(look(folder, entries, true));
    }
    report();
    return std::move(out_);
  }

 private:
  static std::string parent_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
  }

  /// `mapped`: the folder holds files of the map, or folders with such.
  Result<> look(const std::string& folder, const std::vector<DirEntry>& entries, bool mapped) {
    for (const DirEntry& entry : entries) {
      const std::string path = join_path(folder, entry.name);
      if (entry.kind == FileInfo::Kind::directory) {
        if (!folders_.contains(path) && !entry.name.starts_with('.') && !is_own_folder(path))
          CKPT_CHECK(look_into(path, entry.name));
      } else if (!mapped_.contains(path) && !matches_any(path, format_.own_names) &&
                 !matches_any(entry.name, format_.own_names)) {
        CKPT_CHECK(look_at(path, entry, mapped));
      }
    }
    return {};
  }

  /// The format keeps its own files there.
  bool is_own_folder(const std::string& path) const {
    return std::ranges::any_of(format_.own_names, [&](std::string_view own) { return own.starts_with(path + "/"); });
  }

  /// A folder without a file of the map.
  Result<> look_into(const std::string& folder, const std::string& name) {
    if (static_cast<std::size_t>(std::ranges::count(folder, '/')) >= kDeepestFolder ||
        ++looked_into_ > kMostFoldersBeside) {
      unseen_ = true;
      return {};
    }
    const auto entries = io_.list(join_path(root_, folder));
    if (!entries) {
      unread_.push_back(folder + "/");
      return entries.error().code == Errc::interrupted ? Result<>(fail(entries.error())) : Result<>();
    }
    if (is_other_step(folder, name)) {
      if (!entries->empty()) others_.push_back(folder);
      return {};
    }
    const std::size_t before = found();
    CKPT_CHECK(look(folder, *entries, false));
    if (found() != before) return {};
    // No file of it is a checkpoint alone.
    const Place place{.io = io_, .root = join_path(root_, folder), .directory = true, .entries = *entries};
    CKPT_TRY(const bool is_checkpoint, is_known(place, folder + "/"));
    if (is_checkpoint) (matches_any(name, kStateNames) ? state_ : data_).push_back(folder + "/");
    return {};
  }

  /// The folder is another checkpoint of the same run.
  bool is_other_step(const std::string& folder, std::string_view name) const {
    if (is_step_folder(name, kStepWords)) return true;
    return is_step_folder(name, kTagWords) && std::ranges::any_of(folders_, [&](const std::string& own) {
             return !own.empty() && parent_of(own) == parent_of(folder) &&
                    is_step_folder(std::string_view(own).substr(own.rfind('/') + 1), kTagWords);
           });
  }

  Result<> look_at(const std::string& path, const DirEntry& entry, bool mapped) {
    if (is_extra_name(entry.name) || matches_any(entry.name, kSettingsNames)) {
      if (mapped && parent_of(path).empty()) out_.settings.push_back(path);
      return {};
    }
    if (matches_any(entry.name, kStateNames) && !matches_any(entry.name, kTextNames)) {
      const auto info = io_.stat(join_path(root_, path));
      const bool is_empty = info && info->kind == FileInfo::Kind::file && info->bytes == 0;
      (is_empty ? empty_ : state_).push_back(path);
      return {};
    }
    bool is_data = matches_any(entry.name, kDataNames);
    if (!is_data && entry.kind == FileInfo::Kind::file) {
      if (++looked_at_ > kMostFilesBeside) {
        unseen_ = true;
        return {};
      }
      Place place{.io = io_, .root = join_path(root_, path)};
      place.read_first();
      CKPT_TRY(is_data, is_known(place, path));
    }
    if (is_data) (is_copy_of_weights(path) ? copies_ : data_).push_back(path);
    return {};
  }

  /// A trainer writes the weights of its checkpoint once more, for inference.
  bool is_copy_of_weights(const std::string& path) const {
    return is_trainers_ && holds_weights_ && parent_of(path).empty() && matches_any(path, kWeightsNames);
  }

  /// Whether a format recognises it. Unreadable files may be data too.
  Result<bool> is_known(const Place& place, const std::string& name) {
    bool failed = false;
    for (const Format& format : formats()) {
      const auto match = format.detect(place);
      if (match && match->has_value()) return true;
      if (!match && match.error().code == Errc::interrupted) return fail(match.error());
      failed = failed || !match;
    }
    if (failed) unread_.push_back(name);
    return false;
  }

  std::size_t found() const {
    return state_.size() + empty_.size() + data_.size() + copies_.size() + unread_.size() + others_.size();
  }

  void report() {
    report_skipped(state_, Skipped::training_state);
    if (!empty_.empty())
      out_.findings.push_back(
          {.severity = Severity::damage,
           .text = fmt::format("without content: {}: the save never finished, or the disk was full", name_list(empty_)),
           .file = join_path(root_, empty_.front()),
           .skipped = Skipped::training_state});
    report_skipped(data_, Skipped::data);
    if (!copies_.empty())
      out_.findings.push_back({.text = fmt::format("{}: the trainer's copy of the weights, not read: the {} checkpoint "
                                                   "holds them",
                                                   name_list(copies_), map_.format),
                               .file = join_path(root_, copies_[0])});
    if (!others_.empty())
      out_.findings.push_back({.text = fmt::format("beside the checkpoint, not part of it: {}", name_list(others_)),
                               .file = join_path(root_, others_[0])});
    if (!unread_.empty()) warn(fmt::format("cannot read {}; data in it would be left out", name_list(unread_)));
    if (unseen_)
      warn(
          fmt::format("{}: too many files and folders beside the checkpoint to check each; some may hold data that is "
                      "not part of the checkpoint",
                      root_));
  }

  void warn(std::string text) {
    out_.findings.push_back(
        {.severity = Severity::warning, .text = std::move(text), .file = root_, .skipped = Skipped::data});
  }

  void report_skipped(const std::vector<std::string>& names, Skipped kind) {
    if (names.empty()) return;
    out_.findings.push_back({.severity = Severity::warning,
                             .text = fmt::format("skipped {}, not part of the {} checkpoint: {}; convert {} by {}",
                                                 names.size() == 1 ? "a file" : fmt::format("{} files", names.size()),
                                                 map_.format, name_list(names), names.size() == 1 ? "it" : "them",
                                                 names.size() == 1 ? "its own path" : "their own paths"),
                             .file = join_path(root_, names.front()),
                             .skipped = kind});
  }

  Io& io_;
  const std::string& root_;
  const Format& format_;
  const Map& map_;
  std::set<std::string> mapped_;   // files
  std::set<std::string> folders_;  // that hold files of the map, or folders with such
  std::vector<std::string> state_;
  std::vector<std::string> empty_;  // state without a byte
  std::vector<std::string> data_;
  std::vector<std::string> copies_;
  std::vector<std::string> others_;
  std::vector<std::string> unread_;
  std::size_t looked_into_ = 0;
  std::size_t looked_at_ = 0;
  bool unseen_ = false;
  bool is_trainers_ = false;    // the root is the folder of a trainer
  bool holds_weights_ = false;  // the map does
  Beside out_;
};

}  // namespace

Result<Beside> find_beside(Io& io, const std::string& root, const Format& format, const Map& map) {
  return LookBeside(io, root, format, map).run();
}

}  // namespace ckpt
