#include "convert/deepspeed/writer/target_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "convert/deepspeed/writer/writer.hpp"
#include "format/model/value.hpp"
#include "format/text/file_name.hpp"
#include "format/text/utf8.hpp"
#include "format/torch/tensor_pickle.hpp"

namespace ckpt::deepspeed {

Result<> check_tag(const std::string& target, const std::string& tag) {
  constexpr std::size_t kLongest = 240;  // of 255 bytes that file systems allow, as "_universal" may follow
  const auto refused = [&](std::string_view why) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: '{}' cannot be a tag: {}", target, tag, why),
                 .hint = "--tag NAME    a name such as global_step100"});
  };
  if (tag.size() > kLongest) return refused("it is too long");
  if (!is_utf8(tag)) return refused("DeepSpeed reads it as UTF-8");
  for (std::size_t begin = 0; begin <= tag.size();) {
    const std::size_t end = std::min(tag.find('/', begin), tag.size());
    const std::string_view reason = why_no_file_name(std::string_view(tag).substr(begin, end - begin));
    if (!reason.empty()) return refused(fmt::format("a folder cannot have the name of a part: {}", reason));
    begin = end + 1;
  }
  if (tag.starts_with(' ') || tag.ends_with(' ')) return refused("DeepSpeed ignores spaces around it");
  if (std::ranges::any_of(tag, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return refused("it has a control character");
  if (tag == "latest" || tag == "latest_universal" || tag == kIdFile) return refused("a file beside it has that name");
  return {};
}

Result<> check_names(const WriteRequest& request, const TrainingState& state) {
  for (const ModelTensor& entry : state.model) {
    const std::string& name = entry.name;
    const bool has_empty_part =
        name.empty() || name.starts_with('.') || name.ends_with('.') || name.find("..") != std::string::npos;
    if (!has_empty_part) continue;
    return fail(cannot_hold(
        request, fmt::format("'{}': no module of torch has a parameter or buffer with an empty part in its name", name),
        name, "--map FILE    gives it another name"));
  }
  return {};
}

Result<> check_types(const WriteRequest& request, const TrainingTarget& target) {
  for (const ModelTensor& entry : target.state.model) {
    const auto refused = [&](std::string_view why, std::string hint) {
      return fail(cannot_hold(request, fmt::format("{}: {}", entry.name, why), entry.name, std::move(hint)));
    };
    if (torch::torch_dtype(entry.dtype).empty())
      return refused(fmt::format("torch has no type for {}", dtype_name(entry.dtype)), "");
    const bool is_complex = entry.tensor && !target.map->tensors[*entry.tensor].true_dtype.empty();
    if (entry.kind == ModelTensor::Kind::trained && is_complex)
      return refused("a trained parameter of complex numbers has no place in DeepSpeed", "");
    const bool is_cut = target.stage == 3 && entry.kind == ModelTensor::Kind::frozen;
    if (is_cut && (is_complex || is_packed(entry.dtype)))
      return refused("a frozen parameter of this type cannot be cut among the ranks of ZeRO stage 3",
                     "--zero-stage 2    keeps it whole");
  }
  return {};
}

}  // namespace ckpt::deepspeed
