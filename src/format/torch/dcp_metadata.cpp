#include "format/torch/dcp_metadata.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "format/checked.hpp"
#include "format/text/relative_path.hpp"

namespace ckpt::dcp {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

constexpr std::size_t kMaxRank = 64;        // torch itself stops at 64 dimensions
constexpr std::size_t kMaxTransforms = 16;  // torch has one
constexpr std::size_t kMaxAttributes = 16;  // Metadata has five
// No element type is larger than complex128: a volume below this bound cannot overflow 64 bits as bytes.
constexpr std::uint64_t kMaxElements = std::numeric_limits<std::uint64_t>::max() / 16;

Error corrupt(std::string reason, std::string_view tensor = {}) {
  return Error{.code = Errc::corrupt, .message = ".metadata: " + std::move(reason), .tensor = std::string(tensor)};
}

/// The name of a text or of a class, found again by its node: equal texts are one node, and so are equal globals, so a
/// file with a million chunks is asked for each name once.
struct CachedName {
  std::string_view name;
  NodeId node = kNone;
};

/// True for an instance of torch.distributed....NAME; the module moved between torch releases, the class did not.
bool is_instance(const Graph& graph, NodeId node, CachedName& known) {
  if (node == kNone || graph.kind(node) != Kind::call) return false;
  const NodeId callee_node = graph.callee(node);
  if (callee_node == known.node) return true;
  const std::string_view callee = graph.callee_name(node);
  const std::string_view name = known.name;
  if (!callee.starts_with("torch.distributed.") || callee.size() <= name.size() || !callee.ends_with(name) ||
      callee[callee.size() - name.size() - 1] != ' ') {
    return false;
  }
  known.node = callee_node;
  return true;
}

/// A Metadata, or an object of a class that a framework derives from it, as megatron-core 0.15 does (MCoreMetadata): what it
/// must have is asked for by name.
bool is_metadata(const Graph& graph, NodeId node) {
  return node != kNone && graph.kind(node) == Kind::call && graph.callee_name(node).ends_with("Metadata");
}

/// The value of an instance's attribute, or kNone. No class here has many: a long dict, perhaps shared by many
/// instances, is not searched.
NodeId attribute(const Graph& graph, NodeId instance, CachedName& known) {
  const NodeId state = graph.state(instance);
  if (state == kNone || !graph.has_pairs(state)) return kNone;
  const auto pairs = graph.items(state);
  if (pairs.size() > 2 * kMaxAttributes) return kNone;
  for (std::size_t i = pairs.size(); i >= 2; i -= 2) {  // from the end: a key set again replaces the earlier value
    const NodeId key = pairs[i - 2];
    if (key == known.node) return pairs[i - 1];
    if (known.node != kNone || graph.kind(key) != Kind::text || graph.text(key) != known.name) continue;
    known.node = key;
    return pairs[i - 1];
  }
  return kNone;
}

std::optional<std::uint64_t> as_count(const Graph& graph, NodeId node) {
  if (node == kNone || graph.kind(node) != Kind::integer || graph.integer(node) < 0) return std::nullopt;
  return static_cast<std::uint64_t>(graph.integer(node));
}

/// torch.Size, or a tuple or list, of at most kMaxRank sizes, into `out`; false if it is something else. Checks the
/// length first: a long list may be shared.
bool read_shape(const Graph& graph, NodeId node, CachedName& torch_size, Shape& out) {
  out.clear();
  if (node == kNone) return false;
  if (graph.kind(node) == Kind::call) {
    const NodeId callee = graph.callee(node);
    if (callee != torch_size.node) {
      if (!graph.is_global(callee, torch_size.name)) return false;
      torch_size.node = callee;
    }
    const auto arguments = graph.items(graph.arguments(node));
    if (arguments.size() != 1) return false;
    node = arguments[0];
  }
  const Kind kind = graph.kind(node);
  if (kind != Kind::tuple && kind != Kind::list) return false;
  const auto items = graph.items(node);
  if (items.size() > kMaxRank) return false;
  for (const NodeId item : items) {
    const auto count = as_count(graph, item);
    if (!count) return false;
    out.push_back(*count);
  }
  return true;
}

/// The path whose parts, joined by dots, are the key: how DCP flattens nested state. Anything else gives nothing.
Path path_to(const Graph& graph, NodeId node, std::string_view fqn) {
  if (graph.kind(node) != Kind::tuple && graph.kind(node) != Kind::list) return {};
  Path out;
  for (const NodeId part : graph.items(node)) {
    const bool is_text = graph.kind(part) == Kind::text;
    if (!is_text && graph.kind(part) != Kind::integer) return {};
    const std::string number = is_text ? std::string() : std::to_string(graph.integer(part));
    const std::string_view text = is_text ? graph.text(part) : std::string_view(number);
    if (!out.empty()) {
      if (!fqn.starts_with('.')) return {};
      fqn.remove_prefix(1);
    }
    if (!fqn.starts_with(text)) return {};
    fqn.remove_prefix(text.size());
    if (is_text) {
      out.emplace_back(std::string(text));
    } else {
      out.emplace_back(graph.integer(part));
    }
  }
  return fqn.empty() ? out : Path{};
}

std::string text_of(const Shape& shape) {
  std::string out = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) out += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return out + "]";
}

/// A tensor's chunks while they wait for their records: bounds are offset then size, rank numbers each.
struct PendingChunks {
  std::size_t rank = 0;
  std::vector<std::uint64_t> bounds{};
  std::vector<std::uint64_t> records{};  // how many storage records name the chunk

  std::size_t count() const { return records.size(); }
  std::span<const std::uint64_t> offset(std::size_t chunk) const { return {bounds.data() + chunk * 2 * rank, rank}; }
  std::span<const std::uint64_t> size(std::size_t chunk) const {
    return {bounds.data() + (chunk * 2 + 1) * rank, rank};
  }
  bool empty(std::size_t chunk) const {
    const auto sizes = size(chunk);
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  }
};

bool before(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

struct Record {
  std::uint32_t entry = 0;
  std::uint32_t file = 0;
  std::uint64_t chunk = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class Parser {
 public:
  Parser(const Graph& graph, std::uint64_t pickle_bytes) : graph_(graph), pickle_bytes_(pickle_bytes) {}

  Result<Metadata> run() {
    const NodeId root = graph_.root();
    if (!is_metadata(graph_, root)) return fail(corrupt("its top object is not a DCP Metadata"));
    CKPT_CHECK(read_entries(attribute(graph_, root, known_.state_dict_metadata)));
    CKPT_CHECK(read_records(attribute(graph_, root, known_.storage_data)));
    read_paths(attribute(graph_, root, known_.planner_data));
    const NodeId version = attribute(graph_, root, known_.version);
    if (version != kNone && graph_.kind(version) == Kind::text) out_.version = graph_.text(version);
    const NodeId storage_meta = attribute(graph_, root, known_.storage_meta);
    if (storage_meta != kNone && graph_.kind(storage_meta) == Kind::call) {
      const NodeId save_id = attribute(graph_, storage_meta, known_.save_id);
      if (save_id != kNone && graph_.kind(save_id) == Kind::text) out_.save_id = graph_.text(save_id);
    }
    CKPT_CHECK(join());
    return std::move(out_);
  }

 private:
  Result<> read_entries(NodeId dict) {
    if (dict == kNone || graph_.kind(dict) != Kind::dict) return fail(corrupt("it has no state_dict_metadata"));
    const auto items = graph_.items(dict);
    out_.entries.reserve(items.size() / 2);
    pending_.resize(items.size() / 2);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph_.kind(items[i]) != Kind::text) return fail(corrupt("a key of state_dict_metadata is not text"));
      const std::string_view fqn = graph_.text(items[i]);
      const auto index = static_cast<std::uint32_t>(out_.entries.size());
      if (!entry_of_.emplace(fqn, index).second) return fail(corrupt("the key occurs twice", fqn));
      Entry& entry = out_.entries.emplace_back();
      entry.fqn = fqn;
      if (is_instance(graph_, items[i + 1], known_.tensor)) {
        entry.is_tensor = true;
        CKPT_CHECK(read_tensor(items[i + 1], entry, pending_[index]));
      } else if (!is_instance(graph_, items[i + 1], known_.bytes)) {
        return fail(corrupt("neither tensor nor bytes metadata", fqn));
      }
    }
    return {};
  }

  Result<> read_tensor(NodeId node, Entry& entry, PendingChunks& chunks) {
    CKPT_CHECK(read_properties(attribute(graph_, node, known_.properties), entry));
    Shape shape;
    if (!read_shape(graph_, attribute(graph_, node, known_.size), known_.torch_size, shape))
      return fail(corrupt("its size is not a shape of at most 64 dimensions", entry.fqn));
    const auto elements = checked_volume(shape);
    if (!elements || *elements > kMaxElements) {
      return fail(corrupt("the shape " + text_of(shape) + " overflows 64 bits", entry.fqn));
    }
    entry.shape = std::move(shape);
    entry.wide = std::any_of(entry.shape.begin(), entry.shape.end(),
                             [](std::uint64_t n) { return n > std::numeric_limits<std::uint32_t>::max(); });

    const NodeId list = attribute(graph_, node, known_.chunks);
    if (list == kNone || (graph_.kind(list) != Kind::list && graph_.kind(list) != Kind::tuple)) {
      return fail(corrupt("its chunks are not a list", entry.fqn));
    }
    return read_chunks(graph_.items(list), entry, chunks);
  }

  /// Reads the chunks in row-major order of their offsets, one for each offset. Chunks without elements may share
  /// their offset with others; they are kept only to recognise their records.
  Result<> read_chunks(std::span<const NodeId> list, const Entry& entry, PendingChunks& chunks) {
    const std::size_t rank = entry.shape.size();
    // A written chunk takes more than 30 bytes. Lists that are shared between tensors must not multiply.
    bounds_seen_ += list.size() * 2 * rank + 1;
    if (bounds_seen_ > 4 * pickle_bytes_) {
      return fail(Error{.code = Errc::refused, .message = ".metadata: more chunks than it holds", .tensor = entry.fqn});
    }
    PendingChunks read{.rank = rank};
    read.bounds.reserve(list.size() * 2 * rank);
    Box box;
    for (const NodeId node : list) {
      if (!is_instance(graph_, node, known_.chunk)) return fail(corrupt("an invalid chunk", entry.fqn));
      if (!read_shape(graph_, attribute(graph_, node, known_.offsets), known_.torch_size, box.offset) ||
          !read_shape(graph_, attribute(graph_, node, known_.sizes), known_.torch_size, box.size)) {
        return fail(corrupt("a chunk without offsets and sizes", entry.fqn));
      }
      if (!fits(box, entry.shape)) {
        return fail(corrupt("the chunk at " + text_of(box.offset) + " of size " + text_of(box.size) +
                                " is outside the tensor " + text_of(entry.shape),
                            entry.fqn));
      }
      read.bounds.insert(read.bounds.end(), box.offset.begin(), box.offset.end());
      read.bounds.insert(read.bounds.end(), box.size.begin(), box.size.end());
      read.records.push_back(0);
    }

    std::vector<std::size_t> order(read.count());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (before(read.offset(a), read.offset(b))) return true;
      if (before(read.offset(b), read.offset(a))) return false;
      return before(read.size(b), read.size(a));
    });
    chunks.rank = rank;
    chunks.bounds.reserve(read.bounds.size());
    for (const std::size_t chunk : order) {
      const bool again =
          chunks.count() > 0 && std::ranges::equal(chunks.offset(chunks.count() - 1), read.offset(chunk));
      if (again) {
        const std::size_t last = chunks.count() - 1;
        if (read.empty(chunk) || std::ranges::equal(chunks.size(last), read.size(chunk))) continue;
        if (!chunks.empty(last)) {
          const auto offset = read.offset(chunk);
          return fail(
              corrupt("two chunks of different sizes begin at " + text_of({offset.begin(), offset.end()}), entry.fqn));
        }
        chunks.bounds.resize(last * 2 * rank);
        chunks.records.pop_back();
      }
      const auto offset = read.offset(chunk);
      const auto size = read.size(chunk);
      chunks.bounds.insert(chunks.bounds.end(), offset.begin(), offset.end());
      chunks.bounds.insert(chunks.bounds.end(), size.begin(), size.end());
      chunks.records.push_back(0);
    }
    return {};
  }

  /// TensorProperties pickle themselves as (dtype, layout, requires_grad, memory format, pin_memory); a dict is the
  /// form of a dataclass without that method.
  Result<> read_properties(NodeId node, Entry& entry) {
    if (!is_instance(graph_, node, known_.tensor_properties)) return fail(corrupt("it has no properties", entry.fqn));
    const NodeId state = graph_.state(node);
    NodeId dtype = kNone;
    NodeId layout = kNone;
    if (state != kNone && graph_.kind(state) == Kind::tuple) {
      const auto parts = graph_.items(state);
      if (!parts.empty()) dtype = parts[0];
      if (parts.size() > 1) layout = parts[1];
    } else if (state != kNone) {
      dtype = attribute(graph_, node, known_.dtype);
      layout = attribute(graph_, node, known_.layout);
    }
    constexpr std::string_view kTorch = "torch ";
    if (dtype == kNone || graph_.kind(dtype) != Kind::global || !graph_.text(dtype).starts_with(kTorch)) {
      return fail(corrupt("its properties name no dtype", entry.fqn));
    }
    if (const std::string_view name = layout_name(layout); !name.empty() && name != "torch.strided") {
      return fail(Error{.code = Errc::unsupported,
                        .message = ".metadata: a tensor of layout " + std::string(name) + " is not yet read",
                        .tensor = entry.fqn});
    }
    const std::string_view name = graph_.text(dtype).substr(kTorch.size());
    const auto [at, is_new] = dtype_of_.emplace(name, static_cast<std::uint32_t>(out_.dtypes.size()));
    if (is_new) out_.dtypes.emplace_back(name);
    entry.dtype = at->second;
    return {};
  }

  /// "torch.strided" of _get_layout('torch.strided'); empty if it is written otherwise.
  std::string_view layout_name(NodeId node) const {
    if (node == kNone || graph_.kind(node) != Kind::call) return {};
    const auto arguments = graph_.items(graph_.arguments(node));
    return arguments.size() == 1 && graph_.kind(arguments[0]) == Kind::text ? graph_.text(arguments[0])
                                                                            : std::string_view{};
  }

  Result<> read_records(NodeId dict) {
    if (dict == kNone || graph_.kind(dict) != Kind::dict) return fail(corrupt("it has no storage_data"));
    const auto items = graph_.items(dict);
    records_.reserve(items.size() / 2);
    bytes_seen_.resize(out_.entries.size());
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!is_instance(graph_, items[i], known_.index)) return fail(corrupt("a key of storage_data is not an index"));
      const NodeId fqn = attribute(graph_, items[i], known_.fqn);
      if (fqn == kNone || graph_.kind(fqn) != Kind::text) return fail(corrupt("a storage record names no entry"));
      const auto found = entry_of_.find(graph_.text(fqn));
      if (found == entry_of_.end()) {
        return fail(corrupt("a storage record for an entry that state_dict_metadata lacks", graph_.text(fqn)));
      }
      Record record{.entry = found->second};
      const Entry& entry = out_.entries[record.entry];
      CKPT_CHECK(read_storage(items[i + 1], entry, record));
      if (entry.is_tensor) {
        CKPT_CHECK(find_chunk(attribute(graph_, items[i], known_.offset), entry, record));
      } else {
        if (bytes_seen_[record.entry]) return fail(corrupt("its bytes are stored twice", entry.fqn));
        bytes_seen_[record.entry] = true;
      }
      records_.push_back(record);
    }
    return {};
  }

  Result<> read_storage(NodeId node, const Entry& entry, Record& record) {
    if (!is_instance(graph_, node, known_.storage_info)) return fail(corrupt("an invalid storage record", entry.fqn));
    const NodeId path = attribute(graph_, node, known_.relative_path);
    const auto offset = as_count(graph_, attribute(graph_, node, known_.offset));
    const auto length = as_count(graph_, attribute(graph_, node, known_.length));
    if (path == kNone || graph_.kind(path) != Kind::text || !offset || !length) {
      return fail(corrupt("a storage record without path, offset and length", entry.fqn));
    }
    const auto [at, is_new] = file_of_.emplace(graph_.text(path), static_cast<std::uint32_t>(out_.files.size()));
    if (is_new) {
      if (!stays_inside(graph_.text(path))) {
        return fail(Error{.code = Errc::refused,
                          .message = ".metadata: a data file outside the checkpoint: " + std::string(graph_.text(path)),
                          .tensor = entry.fqn});
      }
      out_.files.push_back({std::string(graph_.text(path)), 0});
    }
    record.file = at->second;
    record.offset = *offset;
    record.length = *length;  // both are below 2^63: the sum fits
    DataFile& file = out_.files[record.file];
    file.end = std::max(file.end, record.offset + record.length);

    return read_transforms(attribute(graph_, node, known_.transform_descriptors), entry);
  }

  /// The first record decides, all others must agree.
  Result<> read_transforms(NodeId node, const Entry& entry) {
    std::span<const NodeId> names;
    if (node != kNone && graph_.kind(node) != Kind::none) {
      if (graph_.kind(node) != Kind::list && graph_.kind(node) != Kind::tuple) {
        return fail(corrupt("its transform descriptors are not a list", entry.fqn));
      }
      names = graph_.items(node);
    }
    if (names.size() > kMaxTransforms) return fail(corrupt("too many transform descriptors", entry.fqn));
    std::vector<std::string> found;
    for (const NodeId name : names) {
      if (graph_.kind(name) != Kind::text) return fail(corrupt("a transform descriptor is not text", entry.fqn));
      found.emplace_back(graph_.text(name));
    }
    if (std::exchange(transforms_known_, true) && found != out_.transforms) {
      return fail(Error{
          .code = Errc::unsupported, .message = ".metadata: items with different transforms", .tensor = entry.fqn});
    }
    out_.transforms = std::move(found);
    return {};
  }

  /// The chunk that a record's index means: equal offsets decide (MetadataIndex compares fqn and offset only).
  Result<> find_chunk(NodeId offset_node, const Entry& entry, Record& record) {
    PendingChunks& chunks = pending_[record.entry];
    bool has_offset = false;
    if (offset_node == kNone || graph_.kind(offset_node) == Kind::none) {
      if (chunks.count() != 1) return fail(corrupt("a storage record without offset", entry.fqn));
    } else {
      has_offset = read_shape(graph_, offset_node, known_.torch_size, offset_);
      if (!has_offset) return fail(corrupt("the offset of a storage record is not a shape", entry.fqn));
    }
    std::size_t low = 0;
    if (has_offset) {
      std::size_t high = chunks.count();
      while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (before(chunks.offset(middle), offset_)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (low == chunks.count() || !std::ranges::equal(chunks.offset(low), offset_)) {
        return fail(corrupt("a storage record at " + text_of(offset_) + ", where no chunk begins", entry.fqn));
      }
    }
    ++chunks.records[low];
    record.chunk = low;
    return {};
  }

  void read_paths(NodeId dict) {
    if (dict == kNone || graph_.kind(dict) != Kind::dict) return;  // planners may keep anything here
    const auto items = graph_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph_.kind(items[i]) != Kind::text) continue;
      const auto found = entry_of_.find(graph_.text(items[i]));
      if (found == entry_of_.end()) continue;
      Entry& entry = out_.entries[found->second];
      entry.path = path_to(graph_, items[i + 1], entry.fqn);
    }
  }

  /// Arranges the records as columns, by counting: entries in order, chunks in order within a tensor.
  Result<> join() {
    std::uint64_t total = 0;
    for (std::size_t e = 0; e < out_.entries.size(); ++e) {
      Entry& entry = out_.entries[e];
      PendingChunks& chunks = pending_[e];
      entry.first_item = total;
      entry.first_bound = entry.wide ? out_.wide_bounds.size() : out_.narrow_bounds.size();
      if (!entry.is_tensor) {
        if (!bytes_seen_[e]) return fail(corrupt("no storage record", entry.fqn));
        entry.item_count = 1;
        ++total;
        continue;
      }
      for (std::size_t c = 0; c < chunks.count(); ++c) {
        const std::uint64_t replicas = chunks.records[c];
        if (chunks.empty(c)) continue;
        if (replicas == 0) {
          const auto offset = chunks.offset(c);
          return fail(
              corrupt("the chunk at " + text_of({offset.begin(), offset.end()}) + " has no storage record", entry.fqn));
        }
        append_bounds(entry, chunks, c);
        chunks.records[c] = total;  // from here on: the position of the chunk's next item
        total += replicas;
      }
      entry.item_count = total - entry.first_item;
    }
    out_.item_file.resize(total);
    out_.item_offset.resize(total);
    out_.item_length.resize(total);
    for (const Record& record : records_) {
      const Entry& entry = out_.entries[record.entry];
      PendingChunks& chunks = pending_[record.entry];
      if (entry.is_tensor && chunks.empty(record.chunk)) continue;
      const std::uint64_t at = entry.is_tensor ? chunks.records[record.chunk]++ : entry.first_item;
      out_.item_file[at] = record.file;
      out_.item_offset[at] = record.offset;
      out_.item_length[at] = record.length;
    }
    return {};
  }

  void append_bounds(const Entry& entry, const PendingChunks& chunks, std::size_t chunk) {
    const auto from = chunks.bounds.begin() + static_cast<std::ptrdiff_t>(chunk * 2 * chunks.rank);
    const auto to = from + static_cast<std::ptrdiff_t>(2 * chunks.rank);
    for (std::uint64_t copy = 0; copy < chunks.records[chunk]; ++copy) {
      if (entry.wide) {
        out_.wide_bounds.insert(out_.wide_bounds.end(), from, to);
      } else {
        std::transform(from, to, std::back_inserter(out_.narrow_bounds),
                       [](std::uint64_t n) { return static_cast<std::uint32_t>(n); });
      }
    }
  }

  struct {
    CachedName tensor{"TensorStorageMetadata"}, bytes{"BytesStorageMetadata"};
    CachedName chunk{"ChunkStorageMetadata"}, tensor_properties{"TensorProperties"}, index{"MetadataIndex"};
    CachedName storage_info{"_StorageInfo"}, torch_size{"torch Size"};
    CachedName chunks{"chunks"}, dtype{"dtype"}, fqn{"fqn"}, layout{"layout"}, length{"length"}, offset{"offset"},
        offsets{"offsets"}, planner_data{"planner_data"}, properties{"properties"}, relative_path{"relative_path"},
        save_id{"save_id"}, size{"size"}, sizes{"sizes"}, state_dict_metadata{"state_dict_metadata"},
        storage_data{"storage_data"}, storage_meta{"storage_meta"}, transform_descriptors{"transform_descriptors"},
        version{"version"};
  } known_;
  const Graph& graph_;
  std::uint64_t pickle_bytes_;
  Shape offset_;  // of the current record
  Metadata out_;
  std::vector<PendingChunks> pending_;  // one per entry
  std::vector<Record> records_;
  std::vector<bool> bytes_seen_;
  std::uint64_t bounds_seen_ = 0;
  bool transforms_known_ = false;
  // Keys are views into the graph.
  std::unordered_map<std::string_view, std::uint32_t> entry_of_;
  std::unordered_map<std::string_view, std::uint32_t> file_of_;
  std::unordered_map<std::string_view, std::uint32_t> dtype_of_;
};

}  // namespace

Box Metadata::box(const Entry& entry, std::uint64_t item) const {
  const std::size_t rank = entry.shape.size();
  Box out{Shape(rank), Shape(rank)};
  for (std::size_t d = 0; d < rank; ++d) {
    out.offset[d] = bound(entry, item, d);
    out.size[d] = bound(entry, item, rank + d);
  }
  return out;
}

Result<Metadata> parse_metadata(std::span<const std::byte> data, const pickle::Budget& budget) {
  CKPT_TRY(const Graph graph, pickle::parse(data, budget));
  return Parser(graph, data.size()).run();
}

}  // namespace ckpt::dcp
