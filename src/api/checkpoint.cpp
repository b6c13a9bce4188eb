#include "api/checkpoint.hpp"

#include <fmt/format.h>

#include <utility>

#include "format/checked.hpp"
#include "writers/model_reads.hpp"

namespace ckpt {
namespace {

Error refuse(Errc code, const std::string& name, std::string reason) {
  return {.code = code, .message = fmt::format("load: {}: {}", name, reason), .tensor = name};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(Io& io, const std::string& path) {
  auto checkpoint = std::make_unique<Checkpoint>();
  checkpoint->path_ = path;
  CKPT_TRY(checkpoint->source_, open_source(io, path, "", {}));
  const Map& map = checkpoint->map();
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) checkpoint->by_name_.emplace(map.tensors[i].name, i);
  for (const Alias& alias : map.aliases) {
    if (const auto target = checkpoint->by_name_.find(alias.target); target != checkpoint->by_name_.end()) {
      checkpoint->by_name_.emplace(alias.name, target->second);
    }
  }
  return checkpoint;
}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &map().tensors[found->second];
}

Result<Checkpoint::Report> Checkpoint::read(std::span<const NamedRead> reads, Io& io, BufferPool& pool,
                                            const ReadOptions& options) const {
  Report report;
  std::vector<LoadRequest> requests;
  for (const NamedRead& read : reads) {
    const auto found = by_name_.find(read.name);
    if (found == by_name_.end()) {
      if (!options.partial) return fail(refuse(Errc::not_found, read.name, "the checkpoint has no such tensor"));
      report.missing.push_back(read.name);
      continue;
    }
    const Tensor& tensor = map().tensors[found->second];
    const universal::TensorRow* row = !read.box && options.model != nullptr ? options.model->find(read.name) : nullptr;
    std::uint64_t bytes = 0;
    if (row != nullptr) {
      if (row->tensor.shape != tensor.shape || row->tensor.dtype != tensor.dtype) {
        return fail(refuse(
            Errc::usage, read.name,
            fmt::format("{} [{}] in the model, {} [{}] in the checkpoint", dtype_name(row->tensor.dtype),
                        fmt::join(row->tensor.shape, ", "), dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "))));
      }
      CKPT_TRY(std::vector<LoadRequest> parts,
               model_reads(options.model->layouts[row->layout], *row, options.rank, found->second, read.out, bytes));
      if (bytes == read.bytes) requests.insert(requests.end(), parts.begin(), parts.end());
    } else {
      const Box box = read.box ? *read.box : Box::whole(tensor.shape);
      if (!fits(box, tensor.shape)) {
        return fail(refuse(Errc::usage, read.name,
                           fmt::format("the part lies outside of [{}]", fmt::join(tensor.shape, ", "))));
      }
      CKPT_TRY(bytes, tensor_bytes(tensor.dtype, box.size));
      requests.push_back({.tensor = found->second, .chunk = {.box = box}, .out = read.out});
    }
    if (bytes != read.bytes) {
      return fail(refuse(Errc::usage, read.name, fmt::format("room for {} bytes, the part has {}", read.bytes, bytes)));
    }
  }
  const auto leaves = [this](std::uint32_t file) { return map().hashes.of(file); };
  CKPT_TRY(report.load, load_into(map(), requests, leaves, io,
                                  {.root = source_.root,
                                   .pool = &pool,
                                   .workers = options.workers,
                                   .whole_leaves = options.whole_leaves,
                                   .stop = options.stop,
                                   .pulse = options.pulse}));
  return report;
}

}  // namespace ckpt
