#include "convert/use_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/apply_profile.hpp"
#include "convert/extras.hpp"
#include "convert/gated_halves.hpp"
#include "convert/model_arguments.hpp"
#include "convert/profile_tensors.hpp"
#include "engine/process/helper_process.hpp"
#include "format/files/config_dtype.hpp"
#include "format/hash.hpp"
#include "format/model/joined_index.hpp"
#include "format/naming/model_config.hpp"
#include "format/naming/side.hpp"
#include "format/text/name_list.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kConfigFile = "config.json";
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{16} << 20;

/// Keeps a file as long as a map's index.
class KeptIndex final : public ChunkIndex {
 public:
  KeptIndex(std::shared_ptr<const ChunkIndex> index, ScratchFile file)
      : index_(std::move(index)), file_(std::move(file)) {}
  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override {
    return index_->chunks(tensor, elements, visit);
  }
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override {
    return index_->regions(tensor, elements, visit);
  }

 private:
  std::shared_ptr<const ChunkIndex> index_;
  ScratchFile file_;
};

/// Adds a small file that is not one of the source's to the map's extras.
Result<> add_made_extra(Map& map, const std::string& name, std::string_view text) {
  CKPT_TRY(ScratchFile file, ScratchFile::open_small());
  CKPT_CHECK(file.write(text));
  const auto tensor = static_cast<std::uint32_t>(map.tensors.size());
  const auto number = static_cast<std::uint32_t>(map.files.size());
  std::unordered_set<std::string_view> taken;
  for (const Tensor& one : map.tensors) taken.insert(one.name);
  std::string blob = name_of_extra(name, taken);
  auto table = std::make_shared<ChunkTable>(1);
  table->add(0, {text.size()}, {.box = Box::whole({text.size()})}, {.dtype = Dtype::u8});
  table->seal();
  map.files.push_back({.path = file.path(), .bytes = text.size()});
  map.tensors.push_back({.name = std::move(blob), .dtype = Dtype::u8, .shape = {text.size()}, .role = Role::blob});
  map.extras.push_back({name, tensor});
  auto joined = std::make_shared<JoinedIndex>();
  joined->add(map.index, 0, 0);
  joined->add(std::move(table), tensor, number);
  map.index = std::make_shared<KeptIndex>(std::move(joined), std::move(file));
  return {};
}

/// Of the first matrix.
std::string_view dtype_of_weights(const Map& map) {
  const auto weight = std::ranges::find_if(
      map.tensors, [](const Tensor& tensor) { return tensor.role == Role::param && tensor.shape.size() > 1; });
  if (weight == map.tensors.end()) return {};
  return config_dtype_name(weight->dtype);
}

class NamesUse {
 public:
  NamesUse(Source& source, const Place& place, const ReadOptions& options)
      : source_(source), place_(place), options_(options), names_(*options.rules->names()) {}

  Result<> run() {
    CKPT_CHECK(find_settings());
    CKPT_TRY(const naming::Profile* const profile, choose());
    const naming::ReadSettings read = arguments_.all().empty() ? naming::from_config(*profile, *config_)
                                                               : naming::from_arguments(*profile, arguments_);
    naming::Settings settings = read.settings;
    if (names_.vocab_size) settings.set("vocab_size", {*names_.vocab_size});
    report(read.differences, arguments_.all().empty() ? kConfigFile : std::string_view("training arguments"));
    if (config_ && !arguments_.all().empty()) report(naming::compare(*profile, *config_, settings), kConfigFile);
    add_to_identity(profile->hash);
    const bool to_hf = names_.to == MapRules::Side::hf;
    Map& map = source_.map;
    if (!has_prediction(map, settings, names_.to)) forget_prediction(settings);
    note_padding(settings, to_hf);
    if (to_hf) join_gated_halves(map);
    CKPT_CHECK(apply_profile(
        map, {.profile = *profile, .settings = settings, .to = names_.to, .vocab_multiple = names_.vocab_multiple},
        source_.root));
    map.findings.push_back({.text = fmt::format("renamed for {} with profile {}",
                                                to_hf ? profile->architecture : "Megatron-LM", profile->family)});
    if (to_hf && options_.extras) CKPT_CHECK(add_config(*profile, settings));
    if (!to_hf) add_arguments(*profile, std::move(settings));
    return {};
  }

 private:
  tl::unexpected<Error> misused(const std::string& reason, std::string hint) const {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: --names {}: {}", source_.root, naming::side_word(names_.to), reason),
                 .file = source_.root,
                 .hint = std::move(hint)});
  }

  Result<> find_settings() {
    arguments_ = model_arguments(source_.map);
    const Map& map = source_.map;
    if (const auto extra = std::ranges::find(map.extras, kConfigFile, &Extra::path); extra != map.extras.end()) {
      CKPT_TRY(const std::string text, read_extra(source_.names_io(), map, source_.root, *extra, kMostConfigBytes));
      CKPT_CHECK(take_config(text, join_path(source_.root, kConfigFile)));
    }
    std::vector<std::string> folders;
    if (place_.directory) folders = {source_.root, place_.root};
    if (!options_.assets.empty()) folders.push_back(options_.assets);
    for (const std::string& folder : folders) {
      if (config_) break;
      const std::string path = join_path(folder, kConfigFile);
      const auto text = read_small_file(source_.names_io(), path, kMostConfigBytes);
      if (!text && text.error().code == Errc::not_found) continue;
      if (!text) return fail(text.error());
      CKPT_CHECK(take_config(*text, path));
    }
    if (config_ || !arguments_.all().empty()) return {};
    return misused("no model config: the source has neither training arguments nor config.json",
                   "--assets DIR reads config.json from DIR");
  }

  Result<> take_config(const std::string& text, const std::string& path) {
    auto config = json::parse(text);
    if (!config) return fail({.code = Errc::corrupt, .message = path + ": " + config.error().message, .file = path});
    config_ = *std::move(config);
    add_to_identity(text);
    return {};
  }

  void add_to_identity(std::string_view text) {
    Hasher hasher;
    hasher.update(source_.map.metadata_hash);
    hasher.update(text);
    source_.map.metadata_hash = hasher.digest().hex();
  }

  /// The profile that the run's arguments nearly fit, and what does not.
  std::string nearest_profile() const {
    std::string out;
    std::size_t least = 0;
    for (const naming::Profile& profile : naming::profiles()) {
      const auto differences = naming::from_arguments(profile, arguments_).differences;
      if (!out.empty() && differences.size() >= least) continue;
      least = differences.size();
      std::vector<std::string> texts;
      for (const naming::Difference& one : differences) texts.push_back(one.name + " is " + one.text);
      out = fmt::format("; nearest is {}: {}", profile.family, name_list(texts, 3));
    }
    return out;
  }

  Result<const naming::Profile*> choose() {
    if (!options_.rules->profile().empty()) {
      CKPT_TRY(own_, naming::parse_profile(options_.rules->profile(), options_.rules->path(), naming::profile_part));
      if (names_.family.empty() || names_.family == own_.family) return &own_;
    }
    std::vector<std::string> known;
    for (const naming::Profile& profile : naming::profiles()) known.push_back(profile.family);
    if (!names_.family.empty()) {
      if (const naming::Profile* found = naming::find_profile(names_.family)) return found;
      const auto meant = nearest(names_.family, known);
      return misused("no profile '" + names_.family + "'",
                     meant ? "did you mean " + *meant + "?" : "see 'ckpt help profiles'");
    }
    const naming::Profile* found = arguments_.all().empty() || config_
                                       ? naming::profile_for_config(naming::profiles(), *config_)
                                       : naming::profile_for_arguments(naming::profiles(), arguments_);
    if (found != nullptr) return found;
    return misused(arguments_.all().empty() || config_
                       ? "no profile matches config.json"
                       : "no profile matches the training arguments" + nearest_profile(),
                   fmt::format("pick one with --names {}:PROFILE ({}); mismatches then become warnings",
                               naming::side_word(names_.to), name_list(known, known.size())));
  }

  void report(const std::vector<naming::Difference>& differences, std::string_view where) {
    for (const naming::Difference& one : differences)
      source_.map.findings.push_back(
          {.severity = Severity::warning, .text = fmt::format("{}: {} is {}", where, one.name, one.text)});
  }

  /// Megatron-LM takes 0 multi-token prediction layers for some.
  void forget_prediction(naming::Settings& settings) {
    if (settings.find("mtp_num_layers") == nullptr) return;
    if (const auto layers = settings.count("mtp_num_layers"); layers && *layers != 0)
      source_.map.findings.push_back(
          {.text =
               fmt::format("no tensors for {} multi-token prediction {} that config.json lists: converted without them",
                           *layers, *layers == 1 ? "layer" : "layers")});
    settings.set("mtp_num_layers", {});
  }

  void note_padding(const naming::Settings& settings, bool to_hf) {
    const auto rows = settings.count("vocab_size");
    const auto padded = settings.count("padded_vocab_size");
    if (to_hf && rows && padded && *padded > *rows)
      source_.map.findings.push_back({.text = fmt::format("dropped vocabulary padding: rows {} to {} of the "
                                                          "embedding and the output layer",
                                                          *rows, *padded - 1)});
  }

  Result<> add_config(const naming::Profile& profile, const naming::Settings& settings) {
    Map& map = source_.map;
    if (std::ranges::find(map.extras, kConfigFile, &Extra::path) != map.extras.end()) return {};
    const std::string text = naming::to_config(profile, settings, dtype_of_weights(map));
    map.findings.push_back(
        {.text = "generated config.json from the training arguments, without token ids or a tokenizer (--assets DIR "
                 "adds them)"});
    return add_made_extra(map, std::string(kConfigFile), text);
  }

  void add_arguments(const naming::Profile& profile, naming::Settings settings) {
    Map& map = source_.map;
    settings = naming::to_arguments(profile, settings);
    if (const auto rows = settings.count("vocab_size"))
      settings.set("padded_vocab_size",
                   {(*rows + names_.vocab_multiple - 1) / names_.vocab_multiple * names_.vocab_multiple});
    if (!arguments_.all().empty()) return;
    map.objects.push_back({.name = std::string(kArguments), .value = as_arguments(settings)});
  }

  Source& source_;
  const Place& place_;
  const ReadOptions& options_;
  const MapRules::Names& names_;
  naming::Settings arguments_{};
  std::optional<json::Value> config_{};
  naming::Profile own_{};
};

}  // namespace

Result<> use_names(Source& source, const Place& place, const ReadOptions& options) {
  return NamesUse(source, place, options).run();
}

}  // namespace ckpt
