#include "convert/megatron/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/dcp_entries.hpp"
#include "convert/dcp_target.hpp"
#include "convert/megatron/common_state.hpp"
#include "convert/megatron/extra_states.hpp"
#include "convert/megatron/iteration.hpp"
#include "convert/megatron/source_state.hpp"
#include "convert/state_archive.hpp"
#include "convert/torch_target.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kConfig =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})";

class MegatronWriter {
 public:
  explicit MegatronWriter(const WriteRequest& request) : request_(request), entries_(request) {}

  Result<Skeleton> lay_out() {
    CKPT_TRY(state_, source_state(request_));
    CKPT_TRY(const CommonState common, common_state(request_, state_.common));
    master_ = common.is_distributed ? "param" : "fp32_param";
    for (std::size_t i = 0; i < state_.tensors.size(); ++i)
      CKPT_CHECK(add(request_.tensors[i].tensor, state_.tensors[i], state_.kinds[i]));
    CKPT_CHECK(add_extra_states());
    const auto step = request_.source->meta.step;
    const std::string folder = iteration_folder(step);
    CKPT_TRY(Skeleton out,
             dcp::lay_out_entries(request_, {.entries = entries_.take_entries()},
                                  {.folder = folder, .ranks = dcp::ranks_of(request_), .keys = dcp::Keys::flat}));
    CKPT_CHECK(add_common(out, folder, common));
    add_small_files(out, folder, tracker_text(step));
    out.dropped.insert(out.dropped.end(), common.notes.begin(), common.notes.end());
    report_left_out(request_, state_, out.dropped);
    if (state_.common.has_buckets)
      out.dropped.push_back(
          {.text = "optimizer state in buckets (dp_reshardable) loads only at the TP and PP of the source"});
    return out;
  }

 private:
  Result<> add(std::uint32_t index, const Tensor& tensor, Kind kind) {
    std::string key = tensor.name;
    switch (kind) {
      case Kind::item:
        if (tensor.name == kCommonItem) return {};  // common.pt has it
        has_extra_states_ = has_extra_states_ || tensor.name.find(kExtraState) != std::string::npos;
        return entries_.add_item(index, tensor.shape.front(), tensor.name, {tensor.name});
      case Kind::state:
        key = fmt::format("optimizer.state.{}.{}", tensor.slot == "master" ? master_ : tensor.slot, tensor.parameter);
        break;
      case Kind::step:  // the parameter groups have it
      case Kind::common:
      case Kind::pickle:
      case Kind::rank_bytes:
      case Kind::other_state:
        return {};
      case Kind::weight:
        CKPT_CHECK(check_mixer(tensor.name));
        break;
      case Kind::bucket:
        break;
    }
    Path path{key};
    return entries_.add_tensor(index, tensor, std::move(key), std::move(path));
  }

  /// Tensor-parallel ranks divide each part of these weights, so torch_dist has the parts.
  ///
  /// source  megatron/core/ssm/mamba_mixer.py: MambaMixer.sharded_state_dict
  Result<> check_mixer(const std::string& name) const {
    constexpr std::array<std::string_view, 3> kDivided{".mixer.in_proj.weight", ".mixer.conv1d.weight",
                                                       ".mixer.conv1d.bias"};
    if (std::ranges::none_of(kDivided, [&](std::string_view end) { return name.ends_with(end); })) return {};
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {}: torch_dist stores the parts of a Mamba mixer apart (z, x, B, C, dt)",
                                        request_.target, name),
                 .tensor = name,
                 .hint = "save the run with --ckpt-format torch_dist"});
  }

  Result<> add_extra_states() {
    if (has_extra_states_) return {};
    Value none;
    none.v = List{.items = {std::make_shared<const Value>()}};
    std::vector<NamedWeight> weights;
    for (std::size_t i = 0; i < state_.tensors.size(); ++i)
      if (state_.kinds[i] == Kind::weight)
        weights.push_back({.name = state_.tensors[i].name, .shape = state_.tensors[i].shape});
    CKPT_TRY(const std::vector<std::string> keys, extra_state_keys(weights));
    for (const std::string& key : keys) entries_.add_value({key}, none);
    return {};
  }

  Result<> add_common(Skeleton& out, const std::string& folder, const CommonState& common) const {
    std::unordered_map<std::string, std::uint32_t> tensors;
    for (const std::string& name : state_.common.tensors) {
      const auto& all = request_.source->tensors;
      tensors.emplace(name, std::ranges::find(all, name, &Tensor::name) - all.begin());
    }
    StateArchive archive(*request_.source, tensors);
    CKPT_TRY(TargetFile file, archive.finish(join_path(folder, kCommonFile), common.value, request_.id));
    out.files.push_back(std::move(file));
    return {};
  }

  /// The tracker last: until then a trainer resumes from nothing here.
  static void add_small_files(Skeleton& out, const std::string& folder, const std::string& iteration) {
    const std::string config = join_path(folder, "metadata.json");
    out.small_names.push_back(config);
    out.small_names.emplace_back(kTracker);
    out.finish = [before = std::move(out.finish), config,
                  iteration](const std::vector<Hash128>& leaves) -> Result<std::vector<SmallFile>> {
      CKPT_TRY(std::vector<SmallFile> files, before(leaves));
      files.push_back({.path = config, .bytes = std::string(kConfig)});
      files.push_back({.path = std::string(kTracker), .bytes = iteration});
      return files;
    };
  }

  const WriteRequest& request_;
  dcp::EntrySet entries_;
  SourceState state_{};
  bool has_extra_states_ = false;
  std::string master_{};
};

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  return MegatronWriter(request).lay_out();
}

}  // namespace ckpt::megatron
