#include "convert/deepspeed/universal/universal_parameter.hpp"

#include <algorithm>

#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::kNone;
using pickle::NodeId;

namespace {

constexpr std::string_view kMasterFile = "fp32";
constexpr std::string_view kSuffix = ".pt";

std::string text_of(const Shape& shape) {
  std::string out = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) out += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return out + "]";
}

bool flag(const StateFile& file, NodeId dict, std::string_view key) {
  const NodeId node = file.find(dict, key);
  return node != kNone && file.graph().kind(node) == pickle::Kind::boolean && file.graph().boolean(node);
}

/// Gives the tensor of a file the parameter's shape, or reports why it has another.
Result<> fit(const StateFile& file, FileTensor& tensor, bool bare, const UniversalParameter& parameter,
             const NamedShape* expected) {
  const auto corrupt = [&](const std::string& what) {
    return fail(with_tensor(file.error(Errc::corrupt, what), parameter.name));
  };
  Shape& shape = tensor.type.shape;
  if (expected == nullptr) {
    if (!bare) return {};
    return corrupt("a flat tensor of a parameter that param_shapes does not name: its shape is not known");
  }
  if (shape == expected->shape) return {};
  if (parameter.vocabulary) {
    const bool rows = !shape.empty() && shape.size() == expected->shape.size() && shape[0] <= expected->shape[0] &&
                      std::equal(shape.begin() + 1, shape.end(), expected->shape.begin() + 1);
    if (rows) return {};
  } else if (shape.size() == 1 && tensor.elements() == expected->elements && tensor.where.strides.empty()) {
    shape = expected->shape;
    return {};
  }
  return corrupt("its shape is " + text_of(shape) + ", param_shapes says " + text_of(expected->shape));
}

Result<> read_part(const StateFile& file, const std::string& slot, UniversalParameter& out, const NamedShape* shape) {
  const NodeId root = file.root();
  CKPT_TRY(auto tensor, file.tensor(root, slot));
  const bool bare = tensor.has_value();
  if (!tensor && torch::as_mapping(file.graph(), root)) {
    const NodeId param = file.find(root, "param");
    if (param == kNone) return fail(with_tensor(file.error(Errc::corrupt, "no key 'param'"), out.name));
    CKPT_TRY(tensor, file.tensor(param, slot));
    if (!tensor) return fail(with_tensor(file.error(Errc::corrupt, "'param' is not a tensor"), out.name));
    out.vocabulary = out.vocabulary || flag(file, root, "vocab_tensor");
  }
  const bool is_value = slot != "master" && (!tensor || (bare && tensor->type.shape.empty()));
  if (is_value) {
    std::optional<Value> value;
    if (tensor) {
      CKPT_TRY(value, file.scalar(*tensor));
    } else if (const auto count = torch::as_integer(file.graph(), root)) {
      value = Value{*count};
    }
    if (!value) return fail(with_tensor(file.error(Errc::unsupported, "neither a tensor nor a number"), out.name));
    out.values.emplace_back(slot, *std::move(value));
    return {};
  }
  if (!tensor) return fail(with_tensor(file.error(Errc::corrupt, "not a tensor"), out.name));
  CKPT_CHECK(fit(file, *tensor, bare, out, shape));
  out.slots.emplace_back(slot, *std::move(tensor));
  return {};
}

}  // namespace

const FileTensor* UniversalParameter::find(std::string_view slot) const {
  for (const auto& [held, tensor] : slots) {
    if (held == slot) return &tensor;
  }
  return nullptr;
}

Result<UniversalParameter> read_universal_parameter(FileSet& files, const std::string& folder,
                                                    const NamedShape* shape) {
  UniversalParameter out{.name = base_name(folder), .folder = folder};
  CKPT_TRY(const auto entries, files.io().list(join_path(files.root(), folder)));
  std::vector<std::string> stems;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file || !std::string_view(entry.name).ends_with(kSuffix)) continue;
    stems.push_back(entry.name.substr(0, entry.name.size() - kSuffix.size()));
  }
  const auto master = std::find(stems.begin(), stems.end(), kMasterFile);
  if (master == stems.end()) {
    const std::string path = join_path(folder, std::string(kMasterFile) + std::string(kSuffix));
    return fail({.code = Errc::incomplete,
                 .message = path + ": the file is missing",
                 .file = path,
                 .tensor = out.name,
                 .hint = "copy it here, or run ds_to_universal.py again"});
  }
  std::rotate(stems.begin(), master, master + 1);
  for (const std::string& stem : stems) {
    CKPT_TRY(const StateFile file, files.open(join_path(folder, stem + std::string(kSuffix))));
    CKPT_CHECK(read_part(file, stem == kMasterFile ? std::string(kMasterSlot) : stem, out, shape));
  }
  return out;
}

}  // namespace ckpt::deepspeed
