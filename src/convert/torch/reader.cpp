#include <fmt/format.h>

#include <array>
#include <memory>

#include "convert/formats.hpp"
#include "convert/torch/files.hpp"
#include "convert/torch/map_builder.hpp"

namespace ckpt {
namespace torch {
namespace {

// Not .ckpt, which is as good a name for a checkpoint of the universal format.
constexpr std::array<std::string_view, 3> kFileSuffixes{".pt", ".pth", ".bin"};

// Opens one file and adds what it holds.
Result<> add_file(Io& io, const std::string& root, const StateFile& file, const pickle::Budget& budget,
                  MapBuilder& builder) {
  const std::string path = file.path.empty() ? root : join_path(root, file.path);
  CKPT_TRY(const FileHandle handle, io.open(path, {}));
  const auto read = [&]() -> Result<> {
    CKPT_TRY(const FileInfo info, io.info(handle));
    CKPT_TRY(TorchArchive archive, open_torch_archive(io, handle, path, {0, info.bytes}, budget));
    return builder.add(file, {file.path, info.bytes, info.mtime_ns}, path, std::move(archive));
  };
  const Result<> done = read();
  const Result<> closed = io.close(handle);
  CKPT_CHECK(done);
  return closed;
}

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const FileInfo info, io.stat(root));
  const bool is_directory = info.kind == FileInfo::Kind::directory;
  Hasher metadata;
  FileSet set{.files = {StateFile{}}};
  if (is_directory) {
    CKPT_TRY(set, select_files(io, root, metadata));
  }
  pickle::Budget budget;
  budget.max_bytes = std::min(budget.max_bytes, options.metadata_limit);
  MapBuilder builder(root, std::move(set.listed));
  for (const StateFile& file : set.files) CKPT_CHECK(add_file(io, root, file, budget, builder));
  CKPT_TRY(Map map, builder.build(metadata));
  map.variant = set.files.size() == 1 ? "1 file" : fmt::format("{} files", set.files.size());
  if (!set.index.empty()) map.variant += " with " + set.index;
  return map;
}

}  // namespace
}  // namespace torch

Format torch_format() {
  return {.name = "torch",
          .summary = "torch.save files (.pt, .pth, .bin, .ckpt), alone or in a directory",
          .detect = torch::detect,
          .open = torch::open,
          .lay_out = nullptr,
          .suffix = "",
          .other_suffixes = torch::kFileSuffixes};
}

}  // namespace ckpt
