#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/torch_archive.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::deepspeed {

/// A tensor as a torch file describes it.
struct FileTensor {
  torch::TensorView view;
  ModelType type;
  Locator where;

  std::uint64_t elements() const { return volume(type.shape); }
};

/// One torch file of a tag, opened. Dropped as soon as its facts are taken: with thousands of ranks their graphs would
/// not fit. The Io must outlive it. All errors name the file.
class StateFile {
 public:
  /// index  of the file in Map::files
  static Result<StateFile> open(Io& io, const std::string& root, const std::string& path, std::uint32_t index,
                                const pickle::Budget& budget);
  ~StateFile();
  StateFile(StateFile&& other) noexcept;
  StateFile& operator=(StateFile&&) = delete;

  const std::string& path() const { return info_.path; }
  const MapFile& info() const { return info_; }
  std::uint32_t index() const { return index_; }
  const TorchArchive& archive() const { return archive_; }
  const pickle::Graph& graph() const { return archive_.graph; }
  pickle::NodeId root() const { return archive_.graph.root(); }
  /// The value of a key of a dict node; kNone if it is absent or Python's None.
  pickle::NodeId find(pickle::NodeId dict, std::string_view key) const;

  /// An integer >= 0 under a key; nothing if it is absent. corrupt if it is something else.
  Result<std::optional<std::uint64_t>> natural(pickle::NodeId dict, std::string_view key) const;
  /// Entries of a dict with text keys, in order; empty for kNone. corrupt if it is not such a dict; `what` names it in
  /// messages.
  Result<std::vector<std::pair<std::string, pickle::NodeId>>> named_entries(pickle::NodeId dict,
                                                                            std::string_view what) const;
  /// A text. corrupt if it is something else; refused as count_names.
  Result<std::string> text(pickle::NodeId node, std::string_view what) const;
  /// Items of a list or tuple. corrupt if it is neither.
  Result<std::vector<pickle::NodeId>> items(pickle::NodeId node, std::string_view what) const;
  /// The plain tensor of a node; nothing if it is not a tensor. unsupported for sparse, quantised and other kinds.
  Result<std::optional<FileTensor>> tensor(pickle::NodeId node, std::string_view what) const;
  /// The value of a tensor of one element, read from the file: an int, a float or a bool. Nothing for other types.
  Result<std::optional<Value>> scalar(const FileTensor& tensor) const;

  /// Bytes of the file, unchanged.
  Result<std::vector<std::byte>> bytes(std::uint64_t offset, std::uint64_t count) const;
  /// The same of another file of the checkpoint; `path` is below its root.
  Result<std::vector<std::byte>> bytes_of(const std::string& path, std::uint64_t offset, std::uint64_t count) const;

  /// To be called before names are copied: a pickle may hold a long one once and use it many times. refused when all that
  /// were copied exceed what the pickle holds by more than torch::Expansion::most_repeated_bytes.
  Result<> count_names(std::uint64_t bytes) const;

  /// An error about this file: "PATH: what".
  Error error(Errc code, const std::string& what) const;

 private:
  StateFile(Io& io, std::string root, FileHandle handle, MapFile info, std::uint32_t index, TorchArchive archive);

  Io* io_;
  std::string root_;
  FileHandle handle_;
  MapFile info_;
  std::uint32_t index_;
  TorchArchive archive_;
  mutable std::uint64_t name_bytes_ = 0;
};

}  // namespace ckpt::deepspeed
