#include "convert/dcp/objects.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "convert/dcp/compressed_item.hpp"
#include "convert/dcp/names.hpp"
#include "format/text/name_list.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::uint64_t kMaxItemBytes = 1 << 20;
constexpr std::uint64_t kMaxPickleBytes = 4 << 20;     // in total
constexpr std::uint64_t kMaxDecodedBytes = 256 << 20;  // of one compressed item

/// True when no part of the value is an object of an unknown class or a tensor.
bool is_plain(const ValuePtr& root) {
  std::vector<const Value*> open{root.get()};
  std::unordered_set<const Value*> seen;
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    if (value == nullptr || std::holds_alternative<Opaque>(value->v) || std::holds_alternative<TensorRef>(value->v)) {
      return false;
    }
    if (const auto* list = std::get_if<List>(&value->v); list != nullptr && seen.insert(value).second) {
      for (const ValuePtr& item : list->items) open.push_back(item.get());
    } else if (const auto* dict = std::get_if<Dict>(&value->v); dict != nullptr && seen.insert(value).second) {
      for (const auto& [key, item] : dict->items) {
        open.push_back(key.get());
        open.push_back(item.get());
      }
    }
  }
  return true;
}

/// The object of a pickle if it is plain.
Result<ValuePtr> plain_object(const pickle::Graph& graph, bool& has_tensor) {
  has_tensor = false;
  CKPT_TRY(ValuePtr value, torch::to_value(graph, graph.root(), [&](pickle::NodeId) -> std::optional<std::string> {
             has_tensor = true;
             return std::nullopt;
           }));
  return has_tensor || !is_plain(value) ? ValuePtr{} : value;
}

}  // namespace

Result<> read_objects(const Metadata& metadata, RangeReader& reader, std::optional<Codec> codec,
                      std::vector<std::uint64_t>& decoded_bytes, Hasher& hasher, std::vector<NamedObject>& objects,
                      std::vector<Finding>& findings) {
  std::vector<const Entry*> entries;
  for (const Entry& entry : metadata.entries) {
    if (entry.is_tensor) continue;  // which may have no item at all
    if (codec || metadata.item_length[entry.first_item] <= kMaxItemBytes) entries.push_back(&entry);
  }
  std::sort(entries.begin(), entries.end(), [&](const Entry* a, const Entry* b) {
    const std::uint64_t i = a->first_item;
    const std::uint64_t j = b->first_item;
    return std::tie(metadata.item_file[i], metadata.item_offset[i]) <
           std::tie(metadata.item_file[j], metadata.item_offset[j]);
  });
  std::vector<Range> items;
  items.reserve(entries.size());
  for (const Entry* entry : entries) {
    const std::uint64_t begin = metadata.item_offset[entry->first_item];
    items.push_back({metadata.item_file[entry->first_item], {begin, begin + metadata.item_length[entry->first_item]}});
  }

  ItemOpener opener;
  std::uint64_t pickle_bytes = 0;
  std::size_t left_out = 0;
  std::vector<std::string> with_tensors;
  std::vector<ValuePtr> values(metadata.entries.size());
  const auto take = [&](std::size_t k, const HeldRanges& held, Extent item, Result<OpenedItem> opened) -> Result<> {
    if (!opened) {
      // Planners of other projects store other bytes: only a zip stream comes from torch.save.
      const Extent first{item.begin, item.begin + std::min<std::uint64_t>(4, item.size())};
      const auto magic = held.held(items[k].file, first);
      if (magic.size() < 4 || std::memcmp(magic.data(), "PK\3\4", 4) != 0) return {};
      return fail(with_tensor(std::move(opened).error(), entries[k]->fqn));
    }
    pickle_bytes += opened->archive.pickle_bytes.size();
    if (pickle_bytes > kMaxPickleBytes) {
      ++left_out;
      return {};
    }
    hasher.update(held.held(items[k].file, opened->archive.pickle_bytes));
    bool has_tensor = false;
    auto value = plain_object(opened->archive.graph, has_tensor);
    if (!value)
      return fail(with_tensor(with_file(std::move(value).error(), held.path(items[k].file)), entries[k]->fqn));
    if (has_tensor) with_tensors.push_back(name_of(*entries[k]).name);
    values[static_cast<std::size_t>(entries[k] - metadata.entries.data())] = *std::move(value);
    return {};
  };
  if (codec) {
    HeldRanges ends = reader.empty();
    decoded_bytes.resize(metadata.item_file.size());
    for (std::size_t k = 0; k < items.size(); ++k) {
      ends.drop();
      const Compressed compressed{.codec = *codec, .stored = items[k].bytes, .bytes = kMaxDecodedBytes};
      auto bytes = decode_ends(reader, items[k].file, compressed, ends);
      if (!bytes) return fail(with_tensor(std::move(bytes).error(), entries[k]->fqn));
      decoded_bytes[entries[k]->first_item] = *bytes;
      if (items[k].bytes.size() > kMaxItemBytes) continue;
      CKPT_CHECK(take(k, ends, {0, *bytes}, open_decoded(opener, ends, items[k].file, *bytes)));
    }
  } else {
    CKPT_CHECK(open_items(reader, opener, items, [&](std::size_t k, Result<OpenedItem> opened) {
      return take(k, reader, items[k].bytes, std::move(opened));
    }));
  }

  for (std::size_t e = 0; e < values.size(); ++e) {
    if (!values[e]) continue;
    EntryName name = name_of(metadata.entries[e]);
    objects.push_back({std::move(name.name), std::move(name.path), *values[e]});
  }
  if (!with_tensors.empty()) {
    std::sort(with_tensors.begin(), with_tensors.end());
    findings.push_back({.severity = Severity::warning,
                        .text = "Python objects contain tensors (in tuples, class instances), which are kept as "
                                "bytes of the objects, not as tensors: " +
                                name_list(with_tensors),
                        .tensor = with_tensors.front()});
  }
  if (left_out > 0) {
    findings.push_back({.severity = Severity::note,
                        .text = std::to_string(left_out) + " Python objects are kept as bytes only: more than " +
                                std::to_string(kMaxPickleBytes >> 20) + " MiB in total"});
  }
  return {};
}

}  // namespace ckpt::dcp
