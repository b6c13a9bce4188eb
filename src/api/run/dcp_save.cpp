#include "api/run/dcp_save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "convert/torch_archive.hpp"
#include "convert/torch_target.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/run/run.hpp"
#include "format/text/error_context.hpp"
#include "format/torch/dcp_item.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kMetadata = ".metadata";
constexpr std::size_t kBuffersPerThread = 4;  // one is copied to, one is written, and some wait in between

/// Of the target's name only: the save that a process finds is the one that another began.
std::string partial_id(const std::string& target) {
  return hash128("dcp save " + base_name(target)).hex();
}

bool is_dcp_name(std::string_view name) {
  return name == kMetadata || name == ".metadata.tmp" || dcp::rank_of(name) ||
         (name.starts_with("__") && name.ends_with(kMetadata));
}

/// The files of a DCP directory that publishing replaces.
Result<std::vector<std::string>> files_to_replace(Io& io, const std::string& path, DcpTarget mode) {
  CKPT_TRY(const FileInfo info, io.stat(path));
  if (info.kind != FileInfo::Kind::directory)
    return fail({.code = Errc::usage, .message = path + ": not a directory", .file = path});
  CKPT_TRY(const auto entries, io.list(path));
  if (!entries.empty() && mode == DcpTarget::fresh)
    return fail({.code = Errc::target_exists,
                 .message = path + ": already exists",
                 .file = path,
                 .hint = "choose another target or allow overwriting"});
  std::vector<std::string> names;
  for (const DirEntry& entry : entries) {
    if (is_dcp_name(entry.name)) names.push_back(entry.name);
  }
  return names;
}

/// A data file from memory: the plan's source is `source`, whose files are `memory`.
struct MemoryFile {
  Map source{};
  std::vector<MemorySource> memory{};
  TargetFile target{};
  std::vector<Extent> places{};

  /// The bytes of an item, as a tensor of the source.
  Placement placement_of(std::span<const std::byte> bytes, ChunkTable& index) {
    const auto number = static_cast<std::uint32_t>(memory.size());
    source.tensors.push_back({.dtype = Dtype::u8, .shape = {bytes.size()}});
    source.files.push_back({.bytes = bytes.size()});
    memory.push_back({.data = bytes.data(), .bytes = bytes.size()});
    index.add(number, {bytes.size()}, Chunk{.box = Box::whole({bytes.size()})},
              {.file = number, .dtype = Dtype::u8, .strides = {1}});
    return {.bytes = bytes.size(), .tensor = number, .dtype = Dtype::u8};
  }
};

/// The bytes of a tensor must be those that its pickle announces.
Result<> check_tensor(const DcpItem& item) {
  torch::TensorView view;
  view.dtype_name = item.dtype;
  view.shape = item.shape;
  CKPT_TRY(const ModelType type, model_type(view));
  CKPT_TRY(const std::uint64_t bytes, tensor_bytes(type.dtype, type.shape));
  if (bytes == item.bytes.size()) return {};
  return fail(Errc::usage, fmt::format("a {} tensor [{}] has {} bytes, but {} were given", item.dtype,
                                       fmt::join(item.shape, ", "), bytes, item.bytes.size()));
}

Result<std::unique_ptr<MemoryFile>> lay_out_file(const std::string& name, std::span<const DcpItem> items) {
  auto out = std::make_unique<MemoryFile>();
  out->target.path = name;
  std::uint32_t sources = 0;
  for (const DcpItem& item : items) sources += item.bytes.empty() ? 0U : 1U;
  const auto index = std::make_shared<ChunkTable>(sources);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const DcpItem& item = items[i];
    if (item.dtype.empty()) {
      const Extent place{out->target.bytes, out->target.bytes + item.bytes.size()};
      if (!item.bytes.empty()) {
        Placement placement = out->placement_of(item.bytes, *index);
        placement.offset = place.begin;
        out->target.placements.push_back(std::move(placement));
      }
      out->target.bytes = place.end;
      out->places.push_back(place);
      continue;
    }
    auto right = check_tensor(item);
    if (!right) return fail(with_context(std::move(right).error(), fmt::format("{}: item {}", name, i)));
    TorchStorage storage{.bytes = item.bytes.size()};
    if (!item.bytes.empty()) storage.placements.push_back(out->placement_of(item.bytes, *index));
    out->places.push_back(append_torch_object(
        out->target,
        {.pickle = dcp::tensor_pickle(item.dtype, item.shape, item.bytes.size()), .storages = {std::move(storage)}}));
  }
  index->seal();
  out->source.format = "memory";
  out->source.index = index;
  return out;
}

/// Hashes, checksums and writes the file in threads of the engine, while `options.threads` threads copy to its buffers.
Result<> write_from_memory(Io& io, const std::string& root, const Plan& plan, const MemoryFile& file,
                           const DcpWriteOptions& options) {
  const unsigned threads = std::max(options.threads, 1u);
  CKPT_TRY(const auto pool,
           BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = kBuffersPerThread * threads}));
  Staging staging(plan, file.memory, *pool);
  std::atomic<bool> stop{false};
  RunOptions run_options{
      .target_root = root, .workers = threads, .pool = pool.get(), .staging = &staging, .stop = &stop};
  if (options.progress) {
    run_options.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (!options.progress(done, total)) stop.store(true);
    };
  }
  const std::jthread filler([&] { static_cast<void>(staging.fill(threads, true)); });  // its failure is the run's
  const auto solo = Comm::solo();
  auto written = ckpt::run(plan, io, *solo, run_options);
  staging.close();
  if (!written) return fail(std::move(written).error());
  return {};
}

}  // namespace

Result<std::unique_ptr<Publication>> begin_dcp_save(Io& io, const std::string& target, DcpTarget mode) {
  return Publication::begin(
      io,
      {.target = target,
       .id = partial_id(join_path(target, "")),
       .overwrite = true,  // of an empty directory in any case
       .own_files = [&io, mode](const std::string& path) { return files_to_replace(io, path, mode); },
       .own_name = is_dcp_name},
      {});
}

Result<std::vector<Extent>> write_dcp_file(Io& io, const std::string& target, const std::string& name,
                                           std::span<const DcpItem> items, const DcpWriteOptions& options) {
  if (!dcp::rank_of(name)) return fail(Errc::usage, name + ": not a DCP data file name");
  const std::string whole = join_path(target, "");
  const std::string root = partial_path(whole, partial_id(whole));
  CKPT_TRY(const auto file, lay_out_file(name, items));
  if (file->target.bytes == 0) return std::move(file->places);
  CKPT_TRY(const auto held, hold_directory(io, parent_path(whole), {.follow = true}));
  CKPT_TRY(const auto begun, stat_if_present(io, root));
  if (!begun) return fail({.code = Errc::not_found, .message = target + ": no save in progress", .file = root});
  std::vector<TargetFile> targets;
  targets.push_back(std::move(file->target));
  CKPT_TRY(const Plan plan, Plan::make(file->source, std::move(targets)));
  CKPT_CHECK(make_files(io, root, plan.targets()));
  CKPT_CHECK(write_from_memory(io, root, plan, *file, options));
  return std::move(file->places);
}

Result<> publish_dcp_save(Publication& publication, std::string metadata) {
  return publication.commit({{.path = std::string(kMetadata), .bytes = std::move(metadata)}});
}

}  // namespace ckpt
