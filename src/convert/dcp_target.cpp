#include "convert/dcp_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "convert/dcp_placement.hpp"
#include "convert/torch_target.hpp"
#include "format/torch/dcp_item.hpp"
#include "format/torch/dcp_metadata_build.hpp"

namespace ckpt::dcp {
namespace {

/// Lays out the files of one request.
class DcpWriter {
 public:
  DcpWriter(const WriteRequest& request, const DcpForm& form) : request_(request), form_(form), ranks_(form.ranks) {}

  Result<Skeleton> lay_out(StateEntries state) {
    CKPT_TRY(const Placements placements, Placements::parse(request_.options.placements, ranks_));
    out_.dropped = std::move(state.notes);
    std::vector<const universal::Layout*> layouts;
    for (const StateEntry& entry : state.entries) {
      NewEntry& added = entries_.emplace_back();
      added.fqn = entry.fqn;
      added.path = entry.path;
      added.dtype = entry.dtype;
      if (!entry.dtype.empty()) added.shape = entry.shape;
      layouts.push_back(nullptr);
      if (entry.dtype.empty()) continue;
      CKPT_TRY(layouts.back(), placements.of(entry.fqn, entry.shape));
    }
    for (const std::string& pattern : placements.unused())
      out_.dropped.push_back(
          {.severity = Severity::warning, .text = "--placement '" + pattern + "': no tensor matches"});

    for (std::uint64_t rank = 0; rank < ranks_; ++rank) {
      if (request_.stop != nullptr && request_.stop->load())
        return fail(Errc::interrupted, request_.target + ": interrupted");
      CKPT_CHECK(add_rank(rank, state.entries, layouts));
    }
    const std::string path = join_path(form_.folder, ".metadata");
    out_.small_names = {path};
    auto text = std::make_shared<std::string>(
        build_metadata(entries_, names_, std::string(kSaveIdPrefix) + request_.id, form_.keys));
    out_.finish = [text, path](const std::vector<Hash128>&) -> Result<std::vector<SmallFile>> {
      return std::vector<SmallFile>{{.path = path, .bytes = *text}};
    };
    return std::move(out_);
  }

 private:
  Result<> add_rank(std::uint64_t rank, const std::vector<StateEntry>& state,
                    const std::vector<const universal::Layout*>& layouts) {
    std::string name = fmt::format("__{}_0.distcp", rank);
    TargetFile file{.path = join_path(form_.folder, name), .writer = static_cast<std::uint32_t>(rank)};
    if (rank == 0) {
      for (std::size_t i = 0; i < state.size(); ++i)
        if (state[i].dtype.empty()) add_bytes(file, state[i], entries_[i]);
    }
    for (std::size_t i = 0; i < state.size(); ++i)
      if (layouts[i] != nullptr) CKPT_CHECK(add_chunks(file, rank, state[i], *layouts[i], entries_[i]));
    if (file.bytes == 0) return {};
    names_.push_back(std::move(name));
    out_.files.push_back(std::move(file));
    return {};
  }

  std::uint32_t file_number() const { return static_cast<std::uint32_t>(names_.size()); }

  void add_item(NewEntry& added, Box box, Extent place) const {
    added.items.push_back(
        {.box = std::move(box), .file = file_number(), .offset = place.begin, .length = place.size()});
  }

  void add_bytes(TargetFile& file, const StateEntry& entry, NewEntry& added) const {
    if (entry.from == StateEntry::From::object) {
      add_item(added, {}, append_torch_object(file, {.pickle = entry.bytes, .id = request_.id}));
      return;
    }
    const Extent place{file.bytes, file.bytes + entry.shape.front()};
    file.placements.push_back(
        {.offset = place.begin, .bytes = place.size(), .tensor = entry.tensor, .dtype = Dtype::u8});
    file.bytes = place.end;
    add_item(added, {}, place);
  }

  /// The part of a tensor that this rank writes. The layout counts torch's elements, which are whole bytes.
  Result<> add_chunks(TargetFile& file, std::uint64_t rank, const StateEntry& entry, const universal::Layout& layout,
                      NewEntry& added) const {
    const Tensor elements{.name = entry.fqn, .dtype = Dtype::u8, .shape = entry.shape};
    CKPT_TRY(const std::vector<Chunk> chunks, universal::written_chunks(layout, elements, 0, rank));
    for (const Chunk& chunk : chunks) {
      CKPT_TRY(const std::uint64_t bytes, tensor_bytes(entry.type.dtype, in_model(chunk.box, entry.type).size));
      TorchStorage storage{.bytes = bytes};
      if (bytes != 0) storage.placements.push_back(elements_of(entry, chunk, bytes));
      add_item(added, chunk.box,
               append_torch_object(file, {.pickle = tensor_pickle(entry.dtype, chunk.box.size, bytes),
                                          .storages = {std::move(storage)},
                                          .id = request_.id}));
    }
    return {};
  }

  static Placement elements_of(const StateEntry& entry, const Chunk& chunk, std::uint64_t bytes) {
    if (entry.from == StateEntry::From::literal)
      return {.bytes = bytes, .from = Placement::From::literal, .literal = entry.bytes};
    Placement out{.bytes = bytes, .tensor = entry.tensor, .dtype = entry.type.dtype};
    if (entry.from == StateEntry::From::tensor) out.chunk = Chunk{.box = in_model(chunk.box, entry.type)};
    return out;
  }

  const WriteRequest& request_;
  const DcpForm& form_;
  const std::uint64_t ranks_;
  Skeleton out_{};
  std::vector<NewEntry> entries_{};   // one for one with the state's
  std::vector<std::string> names_{};  // of the data files
};

}  // namespace

std::uint64_t ranks_of(const WriteRequest& request) {
  const std::uint64_t known = request.source->meta.world_size.value_or(1);
  return request.options.ranks != 0 ? request.options.ranks : std::max<std::uint64_t>(known, 1);
}

Result<Skeleton> lay_out_entries(const WriteRequest& request, StateEntries state, const DcpForm& form) {
  if (form.ranks > kMostTargetRanks)
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: {} ranks are too many: the limit is {}", request.target, form.ranks,
                                        kMostTargetRanks),
                 .hint = "--ranks N    writes the files of N ranks; any number of ranks can load them"});
  return DcpWriter(request, form).lay_out(std::move(state));
}

}  // namespace ckpt::dcp
