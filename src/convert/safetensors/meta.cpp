#include "convert/safetensors/meta.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "format/files/written_beside.hpp"
#include "format/text/json.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 64 << 20;  // trainer_state.json keeps a log of every step

/// Collects user text and tied names; looked up by hash, since a hostile file may have millions of keys.
class Notes {
 public:
  explicit Notes(Map& map) : map_(map) {
    for (const Tensor& tensor : map.tensors) tensors_.insert(tensor.name);
  }

  void take(const std::string& file, const std::string& key, const std::string& value) {
    if (key == kStepKey) {
      if (const auto step = parse_number<std::uint64_t>(value)) map_.meta.step = step;
      return;
    }
    if (key.starts_with(kOwnPrefix) || key == kSlicesKey || key == kSlicesVersionKey) return;
    if (key == kFormatKey && value == "pt") return;
    const auto [at, fresh] = taken_.emplace(key, value);
    if (!fresh) {
      if (at->second != value && ++differing_ == 1)
        map_.findings.push_back({.severity = Severity::note,
                                 .text = fmt::format("metadata '{}' differs between files; the first is used", key),
                                 .file = file});
    } else if (tensors_.contains(value) && !tensors_.contains(key)) {
      map_.aliases.push_back({key, value});
    } else {
      map_.meta.user.emplace_back(key, value);
    }
  }

 private:
  Map& map_;
  std::unordered_set<std::string_view> tensors_{};
  std::unordered_map<std::string, std::string> taken_{};
  std::size_t differing_ = 0;
};

/// The values of some members of the outermost object; the rest of the document is only checked.
class Members final : public json::Handler {
 public:
  Result<> on(const json::Event& event) override {
    if (event.depth != 1) return {};
    if (event.kind == json::Event::Kind::key) {
      key_ = event.text;
    } else if (key_ == "global_step" && event.kind == json::Event::Kind::natural) {
      step = event.natural;
    } else if (key_ == "transformers_version" && event.kind == json::Event::Kind::text) {
      version = event.text;
    } else if (key_ == "model_type" || key_ == "architectures") {
      is_model = true;
    }
    return {};
  }

  std::optional<std::uint64_t> step{};
  std::string version{};
  bool is_model = false;

 private:
  std::string key_{};
};

}  // namespace

void take_metadata(const std::vector<Shard>& shards, Map& map) {
  Notes notes(map);
  for (const Shard& shard : shards) {
    for (const auto& [key, value] : shard.header.metadata) {
      notes.take(shard.file.path, key, value);
      if (key == kBesideKey) map.written_beside = parse_written_beside(value);
    }
  }
  const bool one_id =
      std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) { return shard.id == shards.front().id; });
  if (one_id && !shards.empty()) map.id = shards.front().id;
}

Result<> read_surroundings(Io& io, const std::string& root, const std::vector<DirEntry>& entries, Hasher& metadata,
                           Map& map) {
  for (const DirEntry& entry : entries) {
    const bool config = entry.name == "config.json";
    if (entry.kind != FileInfo::Kind::file || (!config && entry.name != "trainer_state.json")) continue;
    CKPT_TRY(const std::string text, read_small_file(io, join_path(root, entry.name), kMaxConfigBytes));
    metadata.update_u64(entry.name.size());
    metadata.update(entry.name);
    metadata.update(text);
    Members members;
    if (const auto parsed = json::parse(text, members); !parsed) {
      map.findings.push_back({.severity = Severity::note,
                              .text = entry.name + " is not JSON and is ignored: " + parsed.error().message,
                              .file = entry.name});
    } else if (!config) {
      if (members.step) map.meta.step = members.step;
    } else if (members.is_model || !members.version.empty()) {
      map.meta.framework = "transformers";
      map.meta.framework_version = members.version;
    }
  }
  return {};
}

}  // namespace ckpt::safetensors
