#include "format/torch/dcp_merge.hpp"

#include <algorithm>
#include <utility>

#include "format/torch/random_state.hpp"

namespace ckpt::dcp {
namespace {

tl::unexpected<Error> corrupt_rank(std::string message, const std::string& tensor) {
  return fail(Error{.code = Errc::corrupt, .message = std::move(message), .tensor = tensor});
}

}  // namespace

Result<> MetadataMerge::add(const Metadata& part, const std::string& file) {
  const auto part_index = static_cast<std::uint32_t>(parts_.size());
  parts_.push_back(file);
  std::vector<std::uint32_t> files;
  for (const DataFile& data : part.files) files.push_back(file_for(data));
  if (part_index == 0) out_.transforms = part.transforms;
  if (part.transforms != out_.transforms) {
    return fail(Errc::unsupported, file + ": its items have different transforms from those of " + parts_.front());
  }
  if (out_.version.empty()) out_.version = part.version;

  rows_.reserve(rows_.size() + part.item_file.size());
  for (const Entry& entry : part.entries) {
    CKPT_TRY(const std::uint32_t index, entry_for(part, entry, file));
    for (std::uint64_t item = entry.first_item; item < entry.first_item + entry.item_count; ++item) {
      rows_.push_back({.entry = index,
                       .file = files[part.item_file[item]],
                       .part = part_index,
                       .offset = part.item_offset[item],
                       .length = part.item_length[item],
                       .bounds = entry.wide ? wide_.size() : narrow_.size()});
      for (std::size_t i = 0; i < 2 * entry.shape.size(); ++i) {
        const std::uint64_t value = part.bound(entry, item, i);
        if (entry.wide) {
          wide_.push_back(value);
        } else {
          narrow_.push_back(static_cast<std::uint32_t>(value));
        }
      }
    }
  }
  return {};
}

Result<std::uint32_t> MetadataMerge::entry_for(const Metadata& part, const Entry& entry, const std::string& file) {
  const auto [at, is_new] = entry_of_.emplace(entry.fqn, static_cast<std::uint32_t>(out_.entries.size()));
  if (is_new) {
    Entry& own = out_.entries.emplace_back(
        Entry{.fqn = entry.fqn, .path = entry.path, .is_tensor = entry.is_tensor, .shape = entry.shape});
    own.wide = entry.wide;
    if (entry.is_tensor) own.dtype = dtype_for(part.dtypes[entry.dtype]);
    first_part_.push_back(static_cast<std::uint32_t>(parts_.size() - 1));
    return at->second;
  }
  const Entry& own = out_.entries[at->second];
  const std::string& earlier = parts_[first_part_[at->second]];
  if (own.is_tensor != entry.is_tensor) {
    return corrupt_rank(file + ": " + (entry.is_tensor ? "a tensor" : "an object") + ", which is " +
                            (own.is_tensor ? "a tensor" : "an object") + " in " + earlier,
                        entry.fqn);
  }
  if (!entry.is_tensor) return at->second;
  if (own.shape != entry.shape) return corrupt_rank(file + ": its shape differs from that in " + earlier, entry.fqn);
  if (out_.dtypes[own.dtype] != part.dtypes[entry.dtype]) {
    return corrupt_rank(
        file + ": its dtype is " + part.dtypes[entry.dtype] + ", but " + out_.dtypes[own.dtype] + " in " + earlier,
        entry.fqn);
  }
  return at->second;
}

std::uint32_t MetadataMerge::dtype_for(const std::string& name) {
  const auto [at, is_new] = dtype_of_.emplace(name, static_cast<std::uint32_t>(out_.dtypes.size()));
  if (is_new) out_.dtypes.push_back(name);
  return at->second;
}

std::uint32_t MetadataMerge::file_for(const DataFile& file) {
  const auto [at, is_new] = file_of_.emplace(file.path, static_cast<std::uint32_t>(out_.files.size()));
  if (is_new) out_.files.push_back({file.path, 0});
  out_.files[at->second].end = std::max(out_.files[at->second].end, file.end);
  return at->second;
}

std::uint64_t MetadataMerge::bound(const Row& row, std::size_t index) const {
  return out_.entries[row.entry].wide ? wide_[row.bounds + index] : narrow_[row.bounds + index];
}

/// Compares the first `bounds` numbers of two rows of one entry: negative, 0, positive.
int MetadataMerge::order(const Row& a, const Row& b, std::size_t bounds) const {
  for (std::size_t i = 0; i < bounds; ++i) {
    if (bound(a, i) != bound(b, i)) return bound(a, i) < bound(b, i) ? -1 : 1;
  }
  return 0;
}

void MetadataMerge::append(const Row& row) {
  out_.item_file.push_back(row.file);
  out_.item_offset.push_back(row.offset);
  out_.item_length.push_back(row.length);
}

Result<Metadata> MetadataMerge::finish() {
  const auto is_own = [&](const Entry& entry) {  // of each rank: bytes, and states of random number generators
    return !entry.is_tensor || torch::is_random_state(entry.fqn, out_.dtypes[entry.dtype], entry.shape.size());
  };
  const auto numbers = [&](const Row& row) { return 2 * out_.entries[row.entry].shape.size(); };
  std::stable_sort(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) {
    return a.entry != b.entry ? a.entry < b.entry : order(a, b, numbers(a)) < 0;
  });
  out_.item_file.reserve(rows_.size());
  out_.item_offset.reserve(rows_.size());
  out_.item_length.reserve(rows_.size());

  std::vector<Entry> entries;
  std::size_t at = 0;
  for (std::uint32_t e = 0; e < out_.entries.size(); ++e) {
    Entry& entry = entries.emplace_back(out_.entries[e]);
    entry.first_item = at;
    const std::size_t rank = entry.shape.size();
    const auto next_bound = [&, wide = entry.wide] {
      return wide ? out_.wide_bounds.size() : out_.narrow_bounds.size();
    };
    const auto append_bounds = [&, wide = entry.wide](const Row& row) {
      for (std::size_t i = 0; i < 2 * rank; ++i) {
        if (wide) {
          out_.wide_bounds.push_back(bound(row, i));
        } else {
          out_.narrow_bounds.push_back(static_cast<std::uint32_t>(bound(row, i)));
        }
      }
    };
    entry.first_bound = next_bound();
    if (is_own(entry)) {
      for (; at < rows_.size() && rows_[at].entry == e; ++at) {
        if (rows_[at].part != first_part_[e]) {
          Entry copy = out_.entries[e];
          copy.first_item = at;
          copy.first_bound = next_bound();
          copy.owner = parts_[rows_[at].part];
          entries.push_back(std::move(copy));
        }
        ++entries.back().item_count;
        append(rows_[at]);
        append_bounds(rows_[at]);
      }
      continue;
    }
    for (; at < rows_.size() && rows_[at].entry == e; ++at) {
      const Row& row = rows_[at];
      if (at > entry.first_item && order(rows_[at - 1], row, rank) == 0 && order(rows_[at - 1], row, 2 * rank) != 0) {
        return corrupt_rank(
            parts_[row.part] + ": a chunk begins where one of another size begins in " + parts_[rows_[at - 1].part],
            entry.fqn);
      }
      append(row);
      append_bounds(row);
    }
    entry.item_count = at - entry.first_item;
  }
  out_.entries = std::move(entries);
  return std::move(out_);
}

}  // namespace ckpt::dcp
