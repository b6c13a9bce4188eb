#include "convert/deepspeed/files/files.hpp"

#include <algorithm>
#include <utility>

#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {
namespace {

/// Matches `name` against a pattern in which each '#' matches a decimal number; returns the numbers.
std::optional<std::vector<std::uint64_t>> match(std::string_view name, std::string_view pattern) {
  std::vector<std::uint64_t> numbers;
  for (const char expected : pattern) {
    if (expected != '#') {
      if (name.empty() || name.front() != expected) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    const auto number = take_number<std::uint64_t>(name);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  if (!name.empty()) return std::nullopt;
  return numbers;
}

constexpr std::string_view kLayer = "layer_#-model_states.pt";
constexpr std::string_view kLayerOfRank = "layer_#-model_#-model_states.pt";

std::string two_digits(std::uint64_t number) {
  return (number < 10 ? "0" : "") + std::to_string(number);
}

constexpr std::string_view kExpert = "layer_#_expert_#_mp_rank_#_model_states.pt";
constexpr std::string_view kExpertOptim = "expp_rank_#_mp_rank_#_optim_states.pt";

struct Refusal {
  std::string_view pattern;
  std::string_view kind;
};
constexpr Refusal kRefusals[] = {
    {"expert_#_mp_rank_#_model_states.pt",
     "a DeepSpeed mixture-of-experts checkpoint from before December 2021 (expert files that name no layer)"},
    {kLayer, "a DeepSpeed pipeline-parallel checkpoint (layer files)"},
    {kLayerOfRank, "a DeepSpeed pipeline- and tensor-parallel checkpoint (layer files)"},
    {"mp_rank_#_model_states.pt-#.#", "a DeepSpeed checkpoint in FastPersist parts"},
};
constexpr std::string_view kPrefixes[] = {"", "bf16_", "fp16_"};
constexpr std::string_view kSuffixes[] = {"_optim_states.pt", "optim_states.pt"};

std::optional<std::string_view> refusal(const DirEntry& entry) {
  if (entry.kind == FileInfo::Kind::directory) return std::nullopt;
  for (const Refusal& r : kRefusals) {
    if (match(entry.name, r.pattern)) return r.kind;
  }
  return std::nullopt;
}

struct OptimName {
  std::uint64_t rank = 0;
  std::uint64_t model_rank = 0;
  std::string_view prefix;
  std::string_view suffix;
};

std::optional<OptimName> optim_name_parts(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    for (const std::string_view suffix : kSuffixes) {
      const std::string pattern = std::string(prefix) + "zero_pp_rank_#_mp_rank_#" + std::string(suffix);
      if (const auto numbers = match(name, pattern)) return OptimName{(*numbers)[0], (*numbers)[1], prefix, suffix};
    }
  }
  return std::nullopt;
}

/// The output of ds_to_universal: a directory per parameter below `zero`, model states, no optimizer files.
bool is_universal(const std::vector<DirEntry>& entries) {
  bool has_zero = false;
  for (const DirEntry& entry : entries) {
    has_zero = has_zero || (entry.kind == FileInfo::Kind::directory && entry.name == "zero");
    if (entry.kind == FileInfo::Kind::file && optim_name_parts(entry.name)) return false;
  }
  return has_zero;
}

auto unsupported(const std::string& name, std::string_view kind) {
  return fail({.code = Errc::unsupported,
               .message = name + ": this is " + std::string(kind) + ": not supported",
               .file = name,
               .hint = kWhatIsRead});
}

auto model_parallel(const std::string& name) {
  return unsupported(name, "a DeepSpeed checkpoint of several tensor- or pipeline-parallel ranks");
}

std::string optim_file_name(std::uint64_t rank, std::string_view prefix, std::string_view suffix) {
  return std::string(prefix) + "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00" + std::string(suffix);
}

/// The model-parallel rank of a file of an expert or of an expert-parallel rank.
std::optional<std::uint64_t> expert_model_rank(const DirEntry& entry) {
  if (entry.kind != FileInfo::Kind::file) return std::nullopt;
  if (const auto expert = match(entry.name, kExpert)) return (*expert)[2];
  if (const auto optim = match(entry.name, kExpertOptim)) return (*optim)[1];
  return std::nullopt;
}

/// The files of a model-parallel rank that are about experts.
struct ExpertLists {
  ExpertFiles* experts;
  std::vector<RankFile>* optims;
};

/// Takes the entry if it is the file of an expert, or of an expert-parallel rank.
/// lists    those of a model-parallel rank
/// returns  whether it is one; names that DeepSpeed spells in another way are passed over
template <class Lists>
bool take_expert_file(const DirEntry& entry, const Lists& lists) {
  if (entry.kind != FileInfo::Kind::file) return false;
  if (const auto expert = match(entry.name, kExpert)) {
    const std::uint64_t layer = (*expert)[0];
    const std::uint64_t number = (*expert)[1];
    if (entry.name == expert_file_name(layer, number, (*expert)[2]))
      lists((*expert)[2]).experts->push_back({layer, number, entry.name});
    return true;
  }
  const auto optim = match(entry.name, kExpertOptim);
  if (!optim) return false;
  if (entry.name == expert_optim_name((*optim)[0], (*optim)[1]))
    lists((*optim)[1]).optims->push_back({(*optim)[0], entry.name});
  return true;
}

void sort_by_rank(std::vector<RankFile>& files) {
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
}

void sort_by_expert(ExpertFiles& files) {
  std::ranges::sort(files, {}, [](const ExpertFile& file) { return std::pair(file.layer, file.expert); });
}

}  // namespace

std::string TagFiles::optim_name(std::uint64_t rank) const {
  return optim_file_name(rank, optim_prefix, optim_suffix);
}

std::string expert_file_name(std::uint64_t layer, std::uint64_t expert, std::uint64_t model_rank) {
  return "layer_" + std::to_string(layer) + "_expert_" + std::to_string(expert) + "_mp_rank_" + two_digits(model_rank) +
         "_model_states.pt";
}

std::string expert_optim_name(std::uint64_t expert_rank, std::uint64_t model_rank) {
  return "expp_rank_" + std::to_string(expert_rank) + "_mp_rank_" + two_digits(model_rank) + "_optim_states.pt";
}

std::string rank_model_name(std::uint64_t rank) {
  return "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_model_states.pt";
}

bool is_model_parallel(const std::vector<DirEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const DirEntry& entry) {
    if (entry.kind != FileInfo::Kind::file) return false;
    if (match(entry.name, kLayer) || match(entry.name, kLayerOfRank)) return true;
    if (const auto model_rank = expert_model_rank(entry)) return *model_rank != 0;
    if (const auto numbers = match(entry.name, "mp_rank_#_model_states.pt")) return (*numbers)[0] != 0;
    if (const auto numbers = match(entry.name, "zero_pp_rank_#_mp_rank_#_model_states.pt")) return (*numbers)[1] != 0;
    const auto optim = optim_name_parts(entry.name);
    return optim && optim->model_rank != 0;
  });
}

std::string ModelParallelFiles::model_name(std::uint64_t model_rank) const {
  return "mp_rank_" + two_digits(model_rank) + "_model_states.pt";
}

std::string ModelParallelFiles::rank_model_name(std::uint64_t model_rank, std::uint64_t data_rank) const {
  return "zero_pp_rank_" + std::to_string(data_rank) + "_mp_rank_" + two_digits(model_rank) + "_model_states.pt";
}

std::string ModelParallelFiles::optim_name(std::uint64_t model_rank, std::uint64_t data_rank) const {
  return optim_prefix + "zero_pp_rank_" + std::to_string(data_rank) + "_mp_rank_" + two_digits(model_rank) +
         optim_suffix;
}

Result<ModelParallelFiles> sort_model_parallel_files(const std::vector<DirEntry>& entries) {
  ModelParallelFiles files;
  std::string first_optim;
  const auto lists = [&](std::uint64_t model_rank) {
    return ExpertLists{&files.experts[model_rank], &files.expert_optims[model_rank]};
  };
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    if (take_expert_file(entry, lists)) continue;
    if (const auto layer = match(entry.name, kLayer)) {
      files.layers.push_back({(*layer)[0], 0, entry.name});
    } else if (const auto slice = match(entry.name, kLayerOfRank)) {
      files.layers.push_back({(*slice)[0], (*slice)[1], entry.name});
    } else if (const auto kind = refusal(entry)) {
      return unsupported(entry.name, *kind);
    } else if (const auto model = match(entry.name, "mp_rank_#_model_states.pt")) {
      if (entry.name == files.model_name((*model)[0])) files.models.emplace((*model)[0], entry.name);
    } else if (const auto rank = match(entry.name, "zero_pp_rank_#_mp_rank_#_model_states.pt")) {
      if (entry.name != files.rank_model_name((*rank)[1], (*rank)[0])) continue;
      files.rank_models[(*rank)[1]].push_back({(*rank)[0], entry.name});
    } else if (const auto optim = optim_name_parts(entry.name)) {
      if (!first_optim.empty() && (files.optim_prefix != optim->prefix || files.optim_suffix != optim->suffix)) {
        return fail({.code = Errc::corrupt,
                     .message = entry.name + ": optimizer files of two saves in one tag: the other is " + first_optim,
                     .file = entry.name,
                     .hint = "move the files of the older save away"});
      }
      files.optim_prefix = optim->prefix;
      files.optim_suffix = optim->suffix;
      if (entry.name != files.optim_name(optim->model_rank, optim->rank)) continue;
      first_optim = entry.name;
      files.optims[optim->model_rank].push_back({optim->rank, entry.name});
    }
  }
  for (auto& [model_rank, optims] : files.optims) sort_by_rank(optims);
  for (auto& [model_rank, models] : files.rank_models) sort_by_rank(models);
  for (auto& [model_rank, experts] : files.experts) sort_by_expert(experts);
  for (auto& [model_rank, optims] : files.expert_optims) sort_by_rank(optims);
  std::sort(files.layers.begin(), files.layers.end(), [](const LayerFile& a, const LayerFile& b) {
    return a.layer != b.layer ? a.layer < b.layer : a.tensor_rank < b.tensor_rank;
  });
  return files;
}

WriterNames without_writer_suffix(const std::vector<DirEntry>& entries) {
  constexpr std::string_view kEnd = "states.pt";
  constexpr std::string_view kOneWriter = "-0.1";
  WriterNames out;
  for (const DirEntry& entry : entries) {
    DirEntry& plain = out.entries.emplace_back(entry);
    if (entry.kind != FileInfo::Kind::file) continue;
    if (entry.name.ends_with(kEnd)) return {.entries = entries};
    const std::size_t at = entry.name.rfind(kEnd);
    if (at == std::string::npos || !match(std::string_view(entry.name).substr(at + kEnd.size()), "-#.#")) continue;
    const std::size_t suffix = at + kEnd.size();
    plain.name.resize(suffix);
    if (entry.name.substr(suffix) == kOneWriter) {
      out.suffix = kOneWriter;
    } else if (out.shared.empty()) {
      out.shared = entry.name;
    }
  }
  return out;
}

bool looks_like_tag(const std::vector<DirEntry>& entries) {
  return !is_universal(entries) && std::any_of(entries.begin(), entries.end(), [](const DirEntry& entry) {
    if (entry.kind != FileInfo::Kind::file) return false;
    return match(entry.name, "mp_rank_#_model_states.pt") ||
           match(entry.name, "zero_pp_rank_#_mp_rank_#_model_states.pt") || optim_name_parts(entry.name) ||
           expert_model_rank(entry) || refusal(entry);
  });
}

Result<TagFiles> sort_files(const std::vector<DirEntry>& entries) {
  TagFiles files;
  const auto lists = [&](std::uint64_t) { return ExpertLists{&files.experts, &files.expert_optims}; };
  for (const DirEntry& entry : entries) {
    if (expert_model_rank(entry).value_or(0) != 0) return model_parallel(entry.name);
    if (take_expert_file(entry, lists)) continue;
    if (const auto kind = refusal(entry)) return unsupported(entry.name, *kind);
    if (entry.kind != FileInfo::Kind::file) continue;
    if (const auto numbers = match(entry.name, "mp_rank_#_model_states.pt")) {
      if ((*numbers)[0] != 0) return model_parallel(entry.name);
      files.has_model = files.has_model || entry.name == kModelName;
    } else if (const auto ranks = match(entry.name, "zero_pp_rank_#_mp_rank_#_model_states.pt")) {
      if ((*ranks)[1] != 0) return model_parallel(entry.name);
      if (entry.name == rank_model_name((*ranks)[0])) files.rank_models.push_back({(*ranks)[0], entry.name});
    } else if (const auto optim = optim_name_parts(entry.name)) {
      if (optim->model_rank != 0) return model_parallel(entry.name);
      if (entry.name != optim_file_name(optim->rank, optim->prefix, optim->suffix)) continue;
      if (!files.optims.empty() && (files.optim_prefix != optim->prefix || files.optim_suffix != optim->suffix)) {
        return fail({.code = Errc::corrupt,
                     .message = entry.name + ": optimizer files of two saves in one tag: the other is " +
                                files.optims.front().name,
                     .file = entry.name,
                     .hint = "move the files of the older save away"});
      }
      files.optim_prefix = optim->prefix;
      files.optim_suffix = optim->suffix;
      files.optims.push_back({optim->rank, entry.name});
    }
  }
  if (is_universal(entries)) return unsupported("zero", "a universal DeepSpeed checkpoint");
  sort_by_rank(files.rank_models);
  sort_by_rank(files.optims);
  sort_by_rank(files.expert_optims);
  sort_by_expert(files.experts);
  return files;
}

Missing missing_files(const TagFiles& files, const Expected& expected) {
  constexpr std::size_t kMaxNames = 10;
  Missing missing;
  const auto note = [&](std::string name) {
    if (missing.names.size() < kMaxNames) missing.names.push_back(std::move(name));
    ++missing.count;
  };
  TagFiles spelling = files;
  if (files.optims.empty()) spelling.optim_prefix = expected.optim_prefix;
  if (!expected.rank_models && !files.has_model) note(std::string(kModelName));
  // The lists are sorted: walk them together with the ranks, so that a huge count costs no search.
  std::size_t model = 0;
  std::size_t optim = 0;
  const std::uint64_t listed =
      std::min<std::uint64_t>(expected.optim_count, files.rank_models.size() + files.optims.size() + kMaxNames);
  for (std::uint64_t rank = 0; rank < listed; ++rank) {
    while (model < files.rank_models.size() && files.rank_models[model].rank < rank) ++model;
    while (optim < files.optims.size() && files.optims[optim].rank < rank) ++optim;
    const bool has_model = model < files.rank_models.size() && files.rank_models[model].rank == rank;
    const bool has_optim = optim < files.optims.size() && files.optims[optim].rank == rank;
    if (expected.rank_models && !has_model) note(rank_model_name(rank));
    if (!has_optim) note(spelling.optim_name(rank));
  }
  missing.count += (expected.optim_count - listed) * (expected.rank_models ? 2 : 1);
  auto expert = files.experts.begin();
  for (std::uint64_t layer = 0; layer < expected.experts.size(); ++layer) {
    for (std::uint64_t number = 0; number < expected.experts[layer]; ++number) {
      while (expert != files.experts.end() &&
             (expert->layer < layer || (expert->layer == layer && expert->expert < number))) {
        ++expert;
      }
      const bool there = expert != files.experts.end() && expert->layer == layer && expert->expert == number;
      if (!there) note(expert_file_name(layer, number));
    }
  }
  for (std::uint64_t rank = 0; rank < expected.expert_optim_count; ++rank) {
    const bool there = std::any_of(files.expert_optims.begin(), files.expert_optims.end(),
                                   [&](const RankFile& file) { return file.rank == rank; });
    if (!there) note(expert_optim_name(rank));
  }
  return missing;
}

std::vector<std::string> surplus_files(const TagFiles& files, const Expected& expected) {
  std::vector<std::string> names;
  if (expected.rank_models && files.has_model) names.emplace_back(kModelName);
  for (const RankFile& file : files.rank_models) {
    if (!expected.rank_models || file.rank >= expected.optim_count) names.push_back(file.name);
  }
  for (const RankFile& file : files.optims) {
    if (file.rank >= expected.optim_count) names.push_back(file.name);
  }
  for (const ExpertFile& file : files.experts) {
    const bool known = file.layer < expected.experts.size() && file.expert < expected.experts[file.layer];
    if (!known) names.push_back(file.name);
  }
  for (const RankFile& file : files.expert_optims) {
    if (file.rank >= expected.expert_optim_count) names.push_back(file.name);
  }
  return names;
}

Result<Map> with_paths_under(const std::string& root, Result<Map> read) {
  if (!read && !read.error().file.empty() && read.error().file != root && !read.error().file.starts_with(root + "/"))
    read.error().file = join_path(root, read.error().file);
  return read;
}

}  // namespace ckpt::deepspeed
