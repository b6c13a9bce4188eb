#include "convert/deepspeed/files/state_file.hpp"

#include <algorithm>
#include <cstring>

#include "format/text/error_context.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

Result<StateFile> StateFile::open(Io& io, const std::string& root, const std::string& path, std::uint32_t index,
                                  const pickle::Budget& budget) {
  const std::string full = join_path(root, path);
  CKPT_TRY(const FileHandle handle, io.open(full, {.mode = OpenOptions::Mode::read}));
  const auto read = [&]() -> Result<StateFile> {
    CKPT_TRY(const FileInfo info, io.info(handle));
    CKPT_TRY(TorchArchive archive, open_torch_archive(io, handle, path, {0, info.bytes}, budget));
    return StateFile(io, root, handle, {path, info.bytes, info.mtime_ns}, index, std::move(archive));
  };
  auto file = read();
  if (!file) {
    (void)io.close(handle);  // only read: the first error is reported
    return fail(with_file(std::move(file).error(), path));
  }
  return file;
}

StateFile::StateFile(Io& io, std::string root, FileHandle handle, MapFile info, std::uint32_t index,
                     TorchArchive archive)
    : io_(&io),
      root_(std::move(root)),
      handle_(handle),
      info_(std::move(info)),
      index_(index),
      archive_(std::move(archive)) {}

StateFile::StateFile(StateFile&& other) noexcept
    : io_(other.io_),
      root_(std::move(other.root_)),
      handle_(std::exchange(other.handle_, {})),
      info_(std::move(other.info_)),
      index_(other.index_),
      archive_(std::move(other.archive_)) {}

StateFile::~StateFile() {
  if (handle_.value >= 0) (void)io_->close(handle_);  // only read: nothing can be lost
}

Error StateFile::error(Errc code, const std::string& what) const {
  return {.code = code, .message = path() + ": " + what, .file = path()};
}

NodeId StateFile::find(NodeId dict, std::string_view key) const {
  const NodeId node = graph().find(dict, key);
  return node != kNone && graph().kind(node) == Kind::none ? kNone : node;
}

Result<std::optional<std::uint64_t>> StateFile::natural(NodeId dict, std::string_view key) const {
  const NodeId node = find(dict, key);
  if (node == kNone) return std::optional<std::uint64_t>{};
  const auto value = torch::as_integer(graph(), node);
  if (!value || *value < 0) return fail(error(Errc::corrupt, std::string(key) + ": not a count"));
  return std::optional(static_cast<std::uint64_t>(*value));
}

Result<std::vector<std::pair<std::string, NodeId>>> StateFile::named_entries(NodeId dict, std::string_view what) const {
  std::vector<std::pair<std::string, NodeId>> entries;
  if (dict == kNone) return entries;
  const auto mapping = torch::as_mapping(graph(), dict);
  if (!mapping) return fail(error(Errc::corrupt, std::string(what) + ": not a dict"));
  for (const auto& [key, value] : *mapping) {
    if (graph().kind(key) != pickle::Kind::text) {
      return fail(error(Errc::corrupt, std::string(what) + ": a key is not a string"));
    }
    CKPT_TRY(std::string name, text(key, what));
    entries.emplace_back(std::move(name), value);
  }
  return entries;
}

Result<std::string> StateFile::text(NodeId node, std::string_view what) const {
  CKPT_CHECK(count_names(graph().text(node).size()));
  auto text = torch::as_text(graph(), node);
  if (!text) return fail(error(Errc::corrupt, std::string(what) + ": not a string"));
  return *std::move(text);
}

Result<> StateFile::count_names(std::uint64_t bytes) const {
  name_bytes_ += bytes;
  if (name_bytes_ <= graph().text_bytes() + torch::Expansion::most_repeated_bytes) return {};
  return fail(error(Errc::refused, "names expand to more than 256 MiB of repeated text"));
}

Result<std::vector<NodeId>> StateFile::items(NodeId node, std::string_view what) const {
  auto sequence = node == kNone ? std::nullopt : torch::as_sequence(graph(), node);
  if (!sequence) return fail(error(Errc::corrupt, std::string(what) + ": not a list"));
  return *std::move(sequence);
}

Result<std::optional<FileTensor>> StateFile::tensor(NodeId node, std::string_view what) const {
  const auto at = [&](Error error) {
    return fail(with_file(with_context(std::move(error), path() + ": " + std::string(what)), path()));
  };
  if (node == kNone) return std::optional<FileTensor>{};
  auto view = torch::as_tensor(graph(), node);
  if (!view) return at(std::move(view).error());
  if (!*view) {
    const std::string_view kind = torch::unsupported_kind(graph(), node);
    if (kind.empty()) return std::optional<FileTensor>{};
    return fail(error(Errc::unsupported, std::string(what) + ": a " + std::string(kind) + " is not supported"));
  }
  auto type = model_type(**view);
  if (!type) return at(std::move(type).error());
  auto where = archive_.locate(**view, index_);
  if (!where) return at(std::move(where).error());
  return std::optional(FileTensor{**std::move(view), *std::move(type), *std::move(where)});
}

Result<std::vector<std::byte>> StateFile::bytes(std::uint64_t offset, std::uint64_t count) const {
  std::vector<std::byte> out(static_cast<std::size_t>(count));
  auto read = io_->read_at(handle_, offset, out);
  if (!read) return fail(with_file(std::move(read).error(), path(), offset));
  return out;
}

Result<std::vector<std::byte>> StateFile::bytes_of(const std::string& path, std::uint64_t offset,
                                                   std::uint64_t count) const {
  CKPT_TRY(const FileHandle handle, io_->open(join_path(root_, path), {.mode = OpenOptions::Mode::read}));
  std::vector<std::byte> out(static_cast<std::size_t>(count));
  auto read = io_->read_at(handle, offset, out);
  (void)io_->close(handle);  // only read: nothing can be lost
  if (!read) return fail(with_file(std::move(read).error(), path, offset));
  return out;
}

Result<std::optional<Value>> StateFile::scalar(const FileTensor& tensor) const {
  const unsigned size = unit_bytes(tensor.type.dtype);
  if (tensor.elements() != 1 || size > 8 || !tensor.type.true_dtype.empty()) return std::optional<Value>{};
  CKPT_TRY(auto stored, bytes(tensor.where.offset, size));
  if (tensor.where.big_endian) std::reverse(stored.begin(), stored.end());
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, stored.data(), sizeof value);
    return value;
  };
  switch (tensor.type.dtype) {
    case Dtype::f32:
      return std::optional(Value{static_cast<double>(as(float{}))});
    case Dtype::f64:
      return std::optional(Value{as(double{})});
    case Dtype::i64:
      return std::optional(Value{as(std::int64_t{})});
    case Dtype::i32:
      return std::optional(Value{std::int64_t{as(std::int32_t{})}});
    case Dtype::boolean:
      return std::optional(Value{stored[0] != std::byte{0}});
    default:
      return std::optional<Value>{};
  }
}

}  // namespace ckpt::deepspeed
