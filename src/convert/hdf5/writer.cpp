#include "convert/hdf5/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "convert/hdf5/helper.hpp"
#include "convert/hdf5/wire.hpp"
#include "convert/left_out.hpp"
#include "format/checked.hpp"
#include "format/little_endian.hpp"
#include "format/text/error_context.hpp"

namespace ckpt::hdf5 {
namespace {

constexpr std::string_view kScalarName = "__value__";
constexpr auto kWriterPatience = std::chrono::minutes(10);
constexpr std::uint64_t kWriterMemory = 4 * kHelperMemory;
constexpr std::uint64_t kNoBytes = ~std::uint64_t{0};

/// False if a part cannot be the name of a link, or would be ambiguous: like an escaped part, or like the addition in
/// NAME/__value__.
bool is_link_name(std::string_view part) {
  constexpr std::string_view kEscapes[] = {"%2F", "%00", "%25", "%5F"};
  if (part.empty() || part == "%" || part == kScalarName) return false;
  if (part.find('/') != part.npos || part.find('\0') != part.npos) return false;
  return std::none_of(std::begin(kEscapes), std::end(kEscapes),
                      [&](std::string_view escape) { return part.find(escape) != part.npos; });
}

std::string escaped(std::string_view part) {
  std::string out(part.empty() ? "%" : "");
  if (part == kScalarName) {
    out = "%5F";
    part.remove_prefix(1);
  }
  for (const char c : part) {
    switch (c) {
      case '/':
        out += "%2F";
        break;
      case '\0':
        out += "%00";
        break;
      case '%':
        out += "%25";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The path of a name: dots become groups. Parts that cannot be link names are escaped, and the attribute `ckpt_name`
/// keeps the name.
std::string link_path_of(std::string_view name, bool& exact) {
  std::string path;
  std::size_t at = 0;
  exact = true;
  for (;;) {
    const std::size_t dot = name.find('.', at);
    const std::string_view part = name.substr(at, dot == std::string_view::npos ? dot : dot - at);
    path += '/';
    if (is_link_name(part)) {
      path += part;
    } else {
      path += escaped(part);
      exact = false;
    }
    if (dot == std::string_view::npos) return path;
    at = dot + 1;
  }
}

/// Shape of the dataset: packed elements are stored as bytes along the last dimension.
Shape stored_shape(Dtype dtype, const Shape& shape) {
  Shape out = shape;
  if (is_packed(dtype) && !out.empty()) out.back() = out.back() * dtype_bits(dtype) / 8;
  return out;
}

std::string text_of(const Shape& shape) {
  std::string out;
  for (const std::uint64_t size : shape) out += (out.empty() ? "" : ",") + std::to_string(size);
  return out;
}

struct Dataset {
  std::uint32_t tensor = 0;
  std::string path;
  Dtype dtype = Dtype::f32;
  std::uint64_t bytes = 0;
  std::uint64_t offset = kNoBytes;
  bool exact = true;
  std::string_view name;
};

class Layout {
 public:
  explicit Layout(const WriteRequest& request) : request_(request) {}

  Result<Skeleton> run() {
    CKPT_CHECK(name_datasets());
    CKPT_CHECK(ask_helper());
    place();
    return std::move(skeleton_);
  }

 private:
  Result<> name_datasets() {
    std::unordered_set<std::string> groups;
    for (const Selected& selected : request_.tensors) {
      const Tensor& tensor = request_.source->tensors[selected.tensor];
      if (tensor.role == Role::blob) continue;
      if (selected.name.ends_with('\0')) return refuse_name(selected.name);
      Dataset dataset{.tensor = selected.tensor, .dtype = selected.dtype, .name = selected.name};
      dataset.path = link_path_of(selected.name, dataset.exact);
      CKPT_TRY(dataset.bytes, tensor_bytes(selected.dtype, tensor.shape));
      if (is_packed(selected.dtype) && !tensor.shape.empty() &&
          tensor.shape.back() * dtype_bits(selected.dtype) % 8 != 0) {
        return fail(Errc::unsupported, selected.name + ": a packed tensor whose rows do not end on whole bytes");
      }
      add_groups(dataset.path, groups);
      datasets_.push_back(std::move(dataset));
    }
    for (const Alias& alias : request_.aliases) {
      bool exact = true;
      add_groups(link_path_of(alias.name, exact), groups);
    }
    std::sort(datasets_.begin(), datasets_.end(), [](const Dataset& a, const Dataset& b) { return a.path < b.path; });
    for (Dataset& dataset : datasets_) {
      if (groups.contains(dataset.path)) dataset.path.append("/").append(kScalarName);
      paths_.emplace(dataset.name, dataset.path);
    }
    std::vector<std::string> escaped_ties;
    for (const Alias& alias : request_.aliases) {
      bool exact = true;
      std::string path = link_path_of(alias.name, exact);
      if (!exact) escaped_ties.push_back(alias.name);
      if (groups.contains(path)) path.append("/").append(kScalarName);
      const auto target = paths_.find(alias.target);
      if (target != paths_.end()) links_.emplace_back(std::move(path), target->second);
    }
    skeleton_.dropped = left_out(request_, "HDF5");
    if (!escaped_ties.empty())
      skeleton_.dropped.push_back(
          {.severity = Severity::warning,
           .text = fmt::format("{} tied names are not valid HDF5 link names and are written with %XX: {}{}",
                               escaped_ties.size(), escaped_ties.front(), escaped_ties.size() > 1 ? ", ..." : "")});
    return {};
  }

  /// HDF5 ends a string at its trailing NULs, so such a name would change.
  tl::unexpected<Error> refuse_name(const std::string& name) const {
    return fail(
        {.code = Errc::unsupported,
         .message = fmt::format("{}: a tensor name ends in a NUL character, which HDF5 cannot store", request_.target),
         .tensor = name,
         .hint = "convert to another format, or exclude the tensor with --only"});
  }

  static void add_groups(std::string_view path, std::unordered_set<std::string>& groups) {
    for (std::size_t slash = path.find('/', 1); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
      groups.emplace(path.substr(0, slash));
    }
  }

  Result<> ask_helper() {
    Wire wire;
    const Meta& meta = request_.source->meta;
    std::vector<std::pair<std::string, std::string>> root{{"ckpt_id", request_.id},
                                                          {"ckpt_source", request_.source_format}};
    if (meta.step) root.emplace_back("step", std::to_string(*meta.step));
    wire.attributes(root);
    std::unordered_set<std::string_view> tied;
    for (const auto& [path, target] : links_) tied.insert(target);
    wire.number(datasets_.size(), 4);
    for (const Dataset& dataset : datasets_) {
      const Tensor& tensor = request_.source->tensors[dataset.tensor];
      const Shape shape = stored_shape(dataset.dtype, tensor.shape);
      wire.text(dataset.path);
      wire.number(static_cast<std::uint64_t>(dataset.dtype), 1);
      wire.number(shape.size(), 1);
      for (const std::uint64_t size : shape) wire.number(size, 8);
      std::vector<std::pair<std::string, std::string>> attributes{
          {"ckpt_dtype", std::string(dtype_name(dataset.dtype))}};
      if (shape != tensor.shape) attributes.emplace_back("ckpt_shape", text_of(tensor.shape));
      if (!dataset.exact) attributes.emplace_back("ckpt_name", std::string(dataset.name));
      if (tied.contains(dataset.path)) attributes.emplace_back("ckpt_path", dataset.path);
      if (!tensor.true_dtype.empty()) attributes.emplace_back("ckpt_true_dtype", tensor.true_dtype);
      wire.attributes(attributes);
    }
    wire.number(links_.size(), 4);
    for (const auto& [path, target] : links_) {
      wire.text(path);
      wire.text(target);
    }

    CKPT_TRY(ScratchFile scratch, ScratchFile::open_small());
    const std::uint64_t answer_bytes = 8 * (datasets_.size() + 1);
    auto answer = run_h5(kWriterMemory, {"skeleton", scratch.path_for_helper()}, wire.bytes(),
                         {.time = kWriterPatience, .output_bytes = answer_bytes, .stop = request_.stop});
    if (!answer) {
      Error error = std::move(answer).error();
      if (error.code == Errc::corrupt) error.code = Errc::unsupported;  // our own request: HDF5 cannot hold it
      return fail(with_context(std::move(error), request_.target));
    }
    if (answer->size() != answer_bytes) {
      return fail(Errc::internal, request_.target + ": ckpt-h5 returned a wrong number of datasets");
    }
    file_bytes_ = read_little_endian(*answer, 0, 8);
    for (std::size_t i = 0; i < datasets_.size(); ++i)
      datasets_[i].offset = read_little_endian(*answer, 8 * (i + 1), 8);
    skeleton_.extra_files.push_back({scratch.path(), file_bytes_, 0});
    skeleton_.keep = std::make_shared<ScratchFile>(std::move(scratch));
    return {};
  }

  /// Tensors at their offsets, everything between them from the skeleton.
  void place() {
    skeleton_.directory = false;
    TargetFile& file = skeleton_.files.emplace_back();
    file.bytes = file_bytes_;
    const auto scratch_index = static_cast<std::uint32_t>(request_.source->files.size());
    std::sort(datasets_.begin(), datasets_.end(),
              [](const Dataset& a, const Dataset& b) { return a.offset < b.offset; });
    std::uint64_t at = 0;
    const auto between = [&](std::uint64_t end) {
      if (end <= at) return;
      file.placements.push_back(
          {.offset = at, .bytes = end - at, .from = Placement::From::raw, .raw_file = scratch_index, .raw_offset = at});
    };
    for (const Dataset& dataset : datasets_) {
      if (dataset.offset == kNoBytes) break;  // sorted last: tensors without elements
      between(dataset.offset);
      file.placements.push_back(
          {.offset = dataset.offset, .bytes = dataset.bytes, .tensor = dataset.tensor, .dtype = dataset.dtype});
      at = dataset.offset + dataset.bytes;
    }
    between(file_bytes_);
  }

  const WriteRequest& request_;
  Skeleton skeleton_;
  std::vector<Dataset> datasets_;
  std::vector<std::pair<std::string, std::string>> links_;
  std::unordered_map<std::string_view, std::string> paths_;  // tensor name -> dataset path
  std::uint64_t file_bytes_ = 0;
};

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  return Layout(request).run();
}

}  // namespace ckpt::hdf5
