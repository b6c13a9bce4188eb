#include "api/convert/source_check.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "api/convert/check.hpp"
#include "api/convert/pool.hpp"
#include "api/convert/progress_names.hpp"
#include "api/convert/tensor_values.hpp"
#include "engine/run/run.hpp"
#include "format/checked.hpp"
#include "format/model/chunk_form.hpp"
#include "format/model/finite.hpp"

namespace ckpt {
namespace {

/// Whether several places hold the same part of a tensor.
Result<bool> has_replicas(const Map& map, std::uint32_t tensor) {
  bool several = false;
  std::unordered_set<std::uint64_t> firsts;  // elements of the parts: replicas begin with the same
  const Shape& shape = map.tensors[tensor].shape;
  CKPT_TRY(const std::uint64_t elements, checked_volume(shape));
  CKPT_CHECK(map.index->regions(tensor, {0, elements}, [&](const Chunk& chunk) -> Result<> {
    if (several || chunk.volume() == 0) return {};
    several = !firsts.insert(first_element(chunk, shape)).second;
    return {};
  }));
  return several;
}

/// Whether a checksum of the format covers all of its bytes. Blobs are objects between the tensors: not asked.
Result<bool> is_summed(const Map& map, std::uint32_t tensor) {
  bool all = true;
  if (map.tensors[tensor].role == Role::blob) return true;
  CKPT_TRY(const std::uint64_t elements, checked_volume(map.tensors[tensor].shape));
  if (elements == 0) return true;
  CKPT_CHECK(map.index->chunks(tensor, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
    all = all && (placed.where.crc || placed.chunk.volume() == 0);
    return {};
  }));
  return all;
}

/// The location of one element of a tensor in the files.
struct UnitPlace {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
};

Result<std::optional<UnitPlace>> place_of(const Map& map, std::uint32_t tensor, std::uint64_t element) {
  std::optional<UnitPlace> out;
  const Box whole = Box::whole(map.tensors[tensor].shape);
  CKPT_CHECK(map.index->chunks(tensor, {element, element + 1}, [&](const PlacedChunk& placed) -> Result<> {
    if (out) return {};
    std::vector<Box> parts;
    const Box& outer = placed.chunk.box;
    split_flat(whole, {element, element + 1}, parts);
    if (parts.empty() || !intersect(parts[0], outer)) return {};
    const std::uint64_t linear = linear_index(outer, parts[0].offset);
    if (placed.chunk.flat && (linear < placed.chunk.flat->begin || linear >= placed.chunk.flat->end)) return {};
    std::uint64_t step = linear - (placed.chunk.flat ? placed.chunk.flat->begin : 0);
    if (!placed.where.strides.empty()) {
      step = 0;
      for (std::size_t d = 0; d < outer.size.size(); ++d) {
        step += (parts[0].offset[d] - outer.offset[d]) * static_cast<std::uint64_t>(placed.where.strides[d]);
      }
    }
    out = UnitPlace{placed.where.file, placed.where.offset + step * dtype_bits(placed.where.dtype) / 8};
    return {};
  }));
  return out;
}

std::string hex8(std::uint32_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (int shift = 28; shift >= 0; shift -= 4) out.push_back(digits[value >> shift & 15]);
  return out;
}

/// "[3, 5]": where element number `element` of a tensor is.
std::string index_text(const Shape& shape, std::uint64_t element) {
  std::string out;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::uint64_t size = std::max<std::uint64_t>(shape[d], 1);
    out = std::to_string(element % size) + (out.empty() ? "" : ", ") + out;
    element /= size;
  }
  return "[" + out + "]";
}

/// The findings of a run's workers, by tensor and file.
class Findings {
 public:
  void add(const Discrepancy& one) {
    const std::lock_guard lock(mutex_);
    const Key key{one.kind == Discrepancy::Kind::checksum ? 0 : 1, one.file, one.tensor,
                  one.kind == Discrepancy::Kind::checksum ? one.offset : 0};
    const auto at = found_.find(key);
    if (at == found_.end()) {
      if (found_.size() < kMostDamage) found_.emplace(key, one);
      return;
    }
    const std::uint64_t elements = at->second.elements + one.elements;
    if (std::pair(one.leaf, one.leaf_offset) < std::pair(at->second.leaf, at->second.leaf_offset)) at->second = one;
    at->second.elements = elements;
  }
  /// Findings since the last call.
  std::vector<Discrepancy> take() {
    std::vector<Discrepancy> out;
    for (const auto& [key, one] : found_) out.push_back(one);
    found_.clear();
    return out;
  }

 private:
  using Key = std::tuple<int, std::uint32_t, std::uint32_t, std::uint64_t>;
  std::mutex mutex_;
  std::map<Key, Discrepancy> found_;  // guarded by mutex_
};

/// Counts non-finite values in the leaves of a plan, by tensor.
class FiniteCounts {
 public:
  explicit FiniteCounts(const Plan& plan) : plan_(plan) {}

  void add(std::uint64_t leaf, std::span<const std::byte> bytes) {
    visit_tensors(plan_, leaf, bytes, [&](const Placement& placement, std::span<const std::byte> values) {
      if (!has_nan(placement.dtype)) return;
      const NotFinite found = count_not_finite(placement.dtype, values);
      if (!found.any()) return;
      const std::lock_guard lock(mutex_);
      by_tensor_[placement.tensor] += found;
    });
  }
  const std::map<std::uint32_t, NotFinite>& by_tensor() const { return by_tensor_; }

 private:
  const Plan& plan_;
  std::mutex mutex_;
  std::map<std::uint32_t, NotFinite> by_tensor_;  // guarded by mutex_
};

class SourceChecker {
 public:
  SourceChecker(Session& session, const Map& map, const std::string& root, const SourceCheckRequest& request,
                const std::string& phase)
      : session_(session), map_(map), root_(root), request_(request), phase_(phase) {}

  Result<SourceCheck> run() {
    CKPT_TRY(std::vector<TargetFile> files, lay_out());
    CKPT_TRY(const Plan plan, Plan::make(map_, std::move(files), {.check_replicas = true}));
    FiniteCounts finite(plan);
    CKPT_CHECK(run_plan(plan, request_.finite ? &finite : nullptr));
    for (const Discrepancy& one : findings_.take()) {
      CKPT_TRY(Finding finding, describe(plan, one));
      out_.damage.push_back(std::move(finding));
    }
    if (request_.everything && !request_.sample) CKPT_CHECK(read_rest());
    out_.crc_unread = joiner_.unread();
    for (const auto& [tensor, found] : finite.by_tensor()) {
      out_.not_finite.push_back({map_.tensors[tensor].name, found.nan, found.infinite});
    }
    return std::move(out_);
  }

 private:
  /// Which tensors are read, and with which twin.
  Result<std::vector<Placement>> choose() {
    std::unordered_map<std::uint32_t, std::uint32_t> twins;  // by master
    std::unordered_set<std::uint32_t> beside;                // read with another tensor, or part of its bytes
    for (const MasterPair& pair : request_.masters ? master_pairs(map_) : std::vector<MasterPair>{}) {
      twins.emplace(pair.master, pair.param);
      if (!request_.finite) beside.insert(pair.param);
    }
    out_.masters = twins.size();
    for (const Derived& derived : map_.derived) {
      if (!request_.finite) beside.insert(derived.tensor);
    }
    std::vector<Placement> out;
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) {
      const Tensor& tensor = map_.tensors[i];
      const auto twin = twins.find(i);
      CKPT_TRY(const bool several, has_replicas(map_, i));
      out_.replicated += several ? 1u : 0u;
      CKPT_TRY(const bool summed, is_summed(map_, i));
      out_.without_crc += summed ? 0u : 1u;
      if (beside.count(i) != 0 || (!request_.everything && !several && twin == twins.end())) continue;
      Placement& placement = out.emplace_back(Placement{.tensor = i, .dtype = tensor.dtype});
      CKPT_TRY(placement.bytes, tensor_bytes(tensor.dtype, tensor.shape));
      if (twin != twins.end()) placement.twin = twin->second;
      if (!several && twin == twins.end()) {
        CKPT_TRY(placement.chunk, without_repeats(map_, i));
        if (placement.chunk) placement.bytes = placement.chunk->volume() * unit_bytes(tensor.dtype);
      }
    }
    return out;
  }

  /// Small tensors share a leaf, a large one is a separate file; with a sample it is cut into leaves, and only some are
  /// taken.
  Result<std::vector<TargetFile>> lay_out() {
    CKPT_TRY(std::vector<Placement> placements, choose());
    std::vector<TargetFile> files;
    for (const Placement& whole : placements) {
      for (Placement& placement : request_.sample ? leaves_of(whole) : std::vector<Placement>{whole}) {
        if (placement.bytes == 0) continue;
        if (files.empty() || round_up(files.back().bytes, 8) + placement.bytes > kLeafBytes) files.emplace_back();
        TargetFile& file = files.back();
        placement.offset = round_up(file.bytes, 8);
        file.bytes = placement.offset + placement.bytes;
        file.placements.push_back(std::move(placement));
      }
    }
    for (const TargetFile& file : files) out_.leaves += file.leaf_count();
    if (request_.sample) {
      const std::vector<bool> chosen = choose_sample(*request_.sample, files.size());
      std::size_t next = 0;
      std::erase_if(files, [&](const TargetFile&) { return !chosen[next++]; });
    }
    for (const TargetFile& file : files) out_.leaves_checked += file.leaf_count();
    return files;
  }

  std::vector<Placement> leaves_of(const Placement& whole) const {
    if (whole.bytes <= kLeafBytes || is_packed(whole.dtype) || whole.chunk) return {whole};
    std::vector<Placement> out;
    const std::uint64_t unit = unit_bytes(whole.dtype);
    for (std::uint64_t at = 0; at < whole.bytes; at += kLeafBytes) {
      Placement part = whole;
      part.bytes = std::min(kLeafBytes, whole.bytes - at);
      part.chunk = Chunk{Box::whole(map_.tensors[whole.tensor].shape), Extent{at / unit, (at + part.bytes) / unit}};
      out.push_back(std::move(part));
    }
    return out;
  }

  Result<> run_plan(const Plan& plan, FiniteCounts* finite) {
    if (plan.totals().leaves == 0) return {};
    CKPT_TRY(RunOptions options, run_options(session_, plan));
    options.source_root = root_;
    options.crcs = &joiner_;
    options.found = [this](const Discrepancy& one) {
      findings_.add(one);
      return Result<>();
    };
    if (finite != nullptr) {
      options.deliver = [finite](std::uint64_t leaf, const Hash128&, std::span<const std::byte> bytes) {
        finite->add(leaf, bytes);
        return Result<>();
      };
    }
    const ProgressNames progress_names(plan);
    if (session_.progress) {
      options.progress = [&](std::uint64_t done, std::uint64_t total) {
        session_.progress({phase_, done, total, progress_names.at(done)});
      };
    }
    const auto solo = Comm::solo();
    CKPT_TRY(const RunReport report, ckpt::run(plan, session_.io, *solo, options));
    out_.crc_checked += report.crc_checked;
    out_.bytes += plan.totals().target_bytes + report.compared_bytes;
    return {};
  }

  /// Parts of checksummed entries that no tensor needs: padding, and storages of which views show a part.
  Result<> read_rest() {
    TargetFile rest = missing_ranges(joiner_, UINT64_MAX);
    if (rest.bytes == 0) return {};
    std::vector<TargetFile> files;
    files.push_back(std::move(rest));
    CKPT_TRY(const Plan plan, Plan::make(map_, std::move(files)));
    CKPT_CHECK(run_plan(plan, nullptr));
    for (const Discrepancy& one : findings_.take()) {
      CKPT_TRY(Finding finding, describe(plan, one));
      out_.damage.push_back(std::move(finding));
    }
    return {};
  }

  Result<Finding> describe(const Plan& plan, const Discrepancy& one) const {
    Finding out{.severity = Severity::damage, .file = path_of(map_, one.file, root_), .offset = one.offset};
    if (one.tensor != kNoTensor) out.tensor = map_.tensors[one.tensor].name;
    if (one.kind == Discrepancy::Kind::checksum) {
      out.text = "CRC-32 of the entry at " + std::to_string(one.offset) + ": expected " + hex8(one.stored) + ", got " +
                 hex8(one.computed);
      return out;
    }
    CKPT_TRY(const LeafJob job, plan.leaf(one.leaf));
    const TargetFile& target = plan.targets()[job.file];
    const std::uint64_t at = job.leaf * kLeafBytes + one.leaf_offset;
    const auto after = std::partition_point(target.placements.begin(), target.placements.end(),
                                            [&](const Placement& p) { return p.offset <= at; });
    if (after == target.placements.begin()) return fail(Errc::internal, root_ + ": a difference outside all tensors");
    const Placement& placement = *(after - 1);
    const Tensor& held = map_.tensors[placement.tensor];
    const std::uint64_t element = (placement.chunk && placement.chunk->flat ? placement.chunk->flat->begin : 0) +
                                  (at - placement.offset) * 8 / dtype_bits(placement.dtype);
    CKPT_TRY(const auto first, place_of(map_, placement.tensor, element));
    const std::string other =
        first ? path_of(map_, first->file, root_) + " at " + std::to_string(first->offset) : "another file";
    const std::string where = std::to_string(one.elements) + " of " + std::to_string(volume(held.shape)) +
                              " elements, the first at " + index_text(held.shape, element);
    if (one.tensor == placement.tensor) {
      out.text = "this copy differs from " + other + ": " + where;
      return out;
    }
    out.text = "its fp32 master (" + other + ") does not round to the stored weight: " + where +
               "; the file belongs to another rank, or one of the two was changed";
    return out;
  }

  Session& session_;
  const Map& map_;
  const std::string& root_;
  const SourceCheckRequest& request_;
  const std::string& phase_;
  CrcJoiner joiner_;
  Findings findings_;
  SourceCheck out_;
};

}  // namespace

std::vector<bool> choose_sample(const Sample& sample, std::size_t count) {
  constexpr double kRange = 18446744073709551616.0;  // 2^64
  std::vector<bool> out(count, false);
  std::uint64_t lowest = ~std::uint64_t{0};
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t hash = hash64(std::to_string(sample.seed) + ":" + std::to_string(i));
    out[i] = static_cast<double>(hash) / kRange < sample.share;
    if (hash <= lowest) {
      lowest = hash;
      first = i;
    }
  }
  if (count != 0) out[first] = true;  // never nothing
  return out;
}

std::vector<MasterPair> master_pairs(const Map& map) {
  std::unordered_map<std::string, std::uint32_t> params;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    if (map.tensors[i].role == Role::param) params.emplace(map.tensors[i].name, i);
  }
  for (const Derived& derived : map.derived) params.erase(map.tensors[derived.tensor].name);
  std::vector<MasterPair> pairs;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& master = map.tensors[i];
    if (master.role != Role::slot || master.slot != "master") continue;
    const auto found = params.find(master.parameter);
    if (found == params.end()) continue;
    const Tensor& param = map.tensors[found->second];
    if (param.shape != master.shape || !is_castable(param.dtype) || !is_castable(master.dtype)) continue;
    pairs.push_back({found->second, i});
  }
  return pairs;
}

Result<SourceCheck> check_source(Session& session, const Map& map, const std::string& root,
                                 const SourceCheckRequest& request, const std::string& phase) {
  return SourceChecker(session, map, root, request, phase).run();
}

}  // namespace ckpt
