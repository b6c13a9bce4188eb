#include "convert/numpy/writer.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "convert/left_out.hpp"
#include "format/files/npy.hpp"
#include "format/hash.hpp"
#include "format/text/error_context.hpp"

namespace ckpt::numpy {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kMostNameBytes = 180;  // of the 255 that a file name may have
constexpr std::size_t kHashDigits = 32;
// NumPy's own alignment of the array's bytes; from 1 MiB on they begin where direct I/O can write them as they come.
constexpr std::size_t kSmallAlignment = 64;
constexpr std::uint64_t kLargeBytes = 1u << 20;

Result<TargetFile> file_of(const Selected& selected, const Tensor& source, std::string path) {
  const Shape& shape = selected.part ? selected.part->shape : source.shape;
  CKPT_TRY(const std::uint64_t bytes, tensor_bytes(selected.dtype, shape));
  auto header = npy::build_header(selected.dtype, shape, bytes < kLargeBytes ? kSmallAlignment : kAlignment);
  if (!header) return fail(with_tensor(with_context(std::move(header).error(), selected.name), selected.name));
  TargetFile file{.path = std::move(path), .bytes = header->size() + bytes};
  const std::uint64_t data_begin = header->size();
  file.placements.push_back({.bytes = header->size(), .from = Placement::From::literal, .literal = *std::move(header)});
  if (bytes > 0) {
    file.placements.push_back({.offset = data_begin,
                               .bytes = bytes,
                               .from = Placement::From::tensor,
                               .tensor = selected.tensor,
                               .chunk = selected.part ? std::optional(Chunk{.box = selected.part->box}) : std::nullopt,
                               .dtype = selected.dtype});
  }
  return file;
}

/// "3 tensors of BF16 are written as uint16, ..." for each element type that NumPy lacks.
std::vector<Finding> bits_notes(const WriteRequest& request) {
  std::map<Dtype, std::size_t> counts;
  for (const Selected& selected : request.tensors) {
    const bool blob = request.source->tensors[selected.tensor].role == Role::blob;
    if (!blob && npy::type_of(selected.dtype).is_bits) ++counts[selected.dtype];
  }
  std::vector<Finding> out;
  for (const auto& [dtype, count] : counts) {
    out.push_back({.text = fmt::format("npy: {} of {} {} as the bits in {}: NumPy has no such type",
                                       count == 1 ? "a tensor" : fmt::format("{} tensors", count), dtype_name(dtype),
                                       count == 1 ? "is written" : "are written", npy::type_of(dtype).name)});
  }
  return out;
}

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  Skeleton out;
  out.directory = !request.target.ends_with(kSuffix);
  for (const Selected& selected : request.tensors) {
    const Tensor& source = request.source->tensors[selected.tensor];
    if (source.role == Role::blob) continue;
    CKPT_TRY(TargetFile file, file_of(selected, source, out.directory ? file_name(selected.name) : ""));
    out.files.push_back(std::move(file));
  }
  if (!out.directory && out.files.size() != 1) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: a .npy file holds one tensor, not {}", request.target, out.files.size()),
                 .hint = "select one with --slice or --only, or name a directory: OUT --to npy"});
  }
  out.dropped = bits_notes(request);
  for (Finding& finding : left_out(request, "NumPy files")) out.dropped.push_back(std::move(finding));
  std::vector<std::string> tied;
  for (const Alias& alias : request.aliases) tied.push_back(alias.name + " = " + alias.target);
  add_left_out(out.dropped, tied, "tied name", "tied names", "NumPy files");
  return out;
}

std::string file_name(std::string_view name) {
  std::string out(name.empty() ? "%" : "");  // each other '%' is followed by digits
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '-' || (c == '.' && i > 0);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  // '~' is in no other name, so this one is unique.
  if (out.size() > kMostNameBytes) out = out.substr(0, kMostNameBytes - kHashDigits - 1) + "~" + hash128(name).hex();
  return out + std::string(kSuffix);
}

}  // namespace ckpt::numpy
