#include "api/run/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "loading/model_reads.hpp"

namespace ckpt {
namespace {

Error refuse(Errc code, const std::string& name, std::string reason) {
  return {.code = code, .message = fmt::format("{}: {}", name, reason), .tensor = name};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(Io& io, const std::string& path, bool saved_trees) {
  auto checkpoint = std::make_unique<Checkpoint>();
  checkpoint->path_ = path;
  CKPT_TRY(checkpoint->source_, open_source(io, path, "", {.saved_trees = saved_trees}));
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

Result<Checkpoint::Requests> Checkpoint::requests(std::span<const NamedRead> reads, const ReadOptions& options) const {
  std::vector<const NamedRead*> sorted;
  for (const NamedRead& read : reads) sorted.push_back(&read);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const NamedRead* a, const NamedRead* b) { return a->name < b->name; });
  Requests out;
  for (const NamedRead* wanted : sorted) {
    const NamedRead& read = *wanted;
    const auto found = by_name_.find(read.name);
    if (found == by_name_.end()) {
      if (!options.partial) return fail(refuse(Errc::not_found, read.name, "the checkpoint has no such tensor"));
      out.missing.push_back(read.name);
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
      CKPT_TRY(std::vector<PartRead> parts,
               model_reads(options.model->layouts[row->layout], *row, options.rank, found->second, read.out, bytes));
      const auto number = static_cast<std::uint32_t>(row - options.model->rows.data());
      for (PartRead& part : parts) part.row = number;
      if (bytes == read.bytes) out.parts.insert(out.parts.end(), parts.begin(), parts.end());
    } else {
      const Box box = read.box ? *read.box : Box::whole(tensor.shape);
      if (!fits(box, tensor.shape)) {
        return fail(
            refuse(Errc::usage, read.name, fmt::format("the part lies outside [{}]", fmt::join(tensor.shape, ", "))));
      }
      CKPT_TRY(bytes, tensor_bytes(tensor.dtype, box.size));
      out.parts.push_back({.tensor = found->second, .chunk = {.box = box}, .out = read.out});
    }
    if (bytes != read.bytes) {
      return fail(
          refuse(Errc::usage, read.name, fmt::format("buffer of {} bytes, but the part has {}", read.bytes, bytes)));
    }
  }
  return out;
}

LeavesOf Checkpoint::leaves() const {
  return [this](std::uint32_t file) { return map().hashes.of(file); };
}

Result<ReadReport> Checkpoint::read(std::span<const PartRead> parts, LoadPlan plan, Io& io, BufferPool& pool,
                                    const ReadOptions& options) const {
  auto report = load_into(map(), parts, std::move(plan), leaves(), io,
                          {.root = source_.root,
                           .pool = &pool,
                           .workers = options.workers,
                           .whole_leaves = options.whole_leaves,
                           .stop = options.stop,
                           .pulse = options.pulse});
  // Decoded data was read by another process, not by the run that copied it; files that a virtual checkpoint refers to
  // have no hashes.
  const auto is_unhashed = [](const MapFile& file) { return is_temporary(file) || is_referenced(file); };
  if (report && std::ranges::any_of(map().files, is_unhashed)) CKPT_CHECK(source_.check_unchanged());
  if (report || report.error().code != Errc::not_found) return report;
  Error error = std::move(report).error();
  error.code = Errc::incomplete;  // its files were there when it was opened: an older checkpoint may do
  return fail(std::move(error));
}

Result<Checkpoint::Report> Checkpoint::read(std::span<const NamedRead> reads, Io& io, BufferPool& pool,
                                            const ReadOptions& options) const {
  CKPT_TRY(Requests wanted, requests(reads, options));
  CKPT_TRY(LoadPlan plan, LoadPlan::make(map(), wanted.parts, leaves(), {.whole_leaves = options.whole_leaves}));
  Report report{.missing = std::move(wanted.missing)};
  CKPT_TRY(report.load, read(wanted.parts, std::move(plan), io, pool, options));
  return report;
}

}  // namespace ckpt
