#include "convert/torch_archive.hpp"

#include <algorithm>

#include "convert/torch_legacy.hpp"
#include "convert/torch_stream.hpp"
#include "format/checked.hpp"
#include "format/text/error_context.hpp"

// Foreign rules: caffe2/serialize/inline_container.cc (records below one folder, named by the first entry) and
// torch/serialization.py (_save, _load).

namespace ckpt {
namespace {

constexpr std::uint64_t kFirstTailBytes = 16 << 10;  // holds the directory of about 150 storages
constexpr std::uint64_t kHeadBytes = 512;
constexpr std::uint64_t kDirectoryCost = 5;  // memory of an entry per byte, its names included

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The kind of a stream that is not a zip file, by its first bytes.
Error not_a_zip(const StreamReader& stream, std::string_view head) {
  if (head.size() >= 262 && head.substr(257, 5) == "ustar")
    return stream.at({.code = Errc::unsupported, .message = "a torch file of version 0.1 (tar), which cannot be read"},
                     0);
  return stream.at({.code = Errc::corrupt, .message = "not a zip file, so not a torch file"}, 0);
}

// One archive while it is opened.
class Opener {
 public:
  Opener(StreamReader& stream, const pickle::Budget& budget) : stream_(stream), budget_(budget) {}

  Result<TorchArchive> open() {
    CKPT_CHECK(read_directory());
    CKPT_CHECK(name_root());
    CKPT_CHECK(read_headers());
    CKPT_CHECK(read_byte_order());
    CKPT_TRY(pickle::Graph graph, read_pickle());
    TorchArchive archive{.graph = std::move(graph),
                         .has_crc = has_crc_,
                         .big_endian = big_endian_,
                         .pickle_bytes = pickle_bytes_,
                         .metadata_hash = hasher_.digest(),
                         .folder = root_.substr(0, root_.find('/'))};
    collect_storages(archive);
    CKPT_CHECK(check_storages(archive));
    return archive;
  }

  Result<std::string> serialization_id() {
    constexpr std::uint64_t kMostBytes = 64;
    CKPT_CHECK(read_directory());
    CKPT_CHECK(name_root());
    CKPT_CHECK(read_headers());
    const Record* record = find(".data/serialization_id");
    if (record == nullptr) return std::string();
    CKPT_TRY(const auto bytes, stream_.read(record->begin, std::min(record->entry->bytes, kMostBytes)));
    return std::string(as_text(bytes));
  }

 private:
  struct Record {
    const zip::Entry* entry = nullptr;
    std::uint64_t begin = 0;  // of the data
  };

  Error at(Error error, std::uint64_t offset) const { return stream_.at(std::move(error), offset); }
  tl::unexpected<Error> failed(Errc code, std::string why, std::uint64_t offset) const {
    return fail(at({.code = code, .message = std::move(why)}, offset));
  }

  Result<> check_size(std::string_view what, std::uint64_t bytes, std::uint64_t offset) const {
    if (bytes <= budget_.max_bytes) return {};
    return failed(budget_.over_bytes,
                  "" + std::string(what) + " has " + std::to_string(bytes) + " bytes, over the limit of " +
                      std::to_string(budget_.max_bytes),
                  offset);
  }

  Result<> read_directory() {
    const std::uint64_t size = stream_.size();
    CKPT_TRY(auto tail_bytes, stream_.read(size - std::min(size, kFirstTailBytes), std::min(size, kFirstTailBytes)));
    auto tail = zip::find_tail(tail_bytes, size);
    if (!tail && size > kFirstTailBytes) {
      const std::uint64_t most = std::min(size, zip::kTailBytes);
      CKPT_TRY(tail_bytes, stream_.read(size - most, most));
      tail = zip::find_tail(tail_bytes, size);
    }
    if (!tail) return fail(at(std::move(tail).error(), 0));
    tail_ = *tail;
    CKPT_TRY(const std::uint64_t needed, checked_mul(tail_.directory_bytes, kDirectoryCost));
    CKPT_CHECK(check_size("the zip directory in memory", needed, tail_.directory_offset));
    CKPT_TRY(const auto directory, stream_.read(tail_.directory_offset, tail_.directory_bytes));
    auto entries = zip::parse_directory(directory, tail_, size);
    if (!entries) return fail(at(std::move(entries).error(), 0));
    entries_ = *std::move(entries);
    has_crc_ = !zip::without_crc(entries_);
    hasher_.update(directory);
    return {};
  }

  Result<> name_root() {
    if (entries_.empty()) return failed(Errc::corrupt, "an empty zip file", 0);
    const std::string& first = entries_.front().name;
    root_ = first.substr(0, first.find('/') + 1);
    for (const zip::Entry& entry : entries_) {
      if (entry.name == root_ + "constants.pkl" || entry.name.starts_with(root_ + "code/")) {
        return failed(Errc::unsupported, "a TorchScript program, not a checkpoint", entry.header_offset);
      }
    }
    for (const zip::Entry& entry : entries_) {
      const Result<> stored = zip::check_stored(entry);
      if (!stored) return fail(at(stored.error(), 0));
    }
    return {};
  }

  // The local header of every record has the offset of its data.
  Result<> read_headers() {
    std::vector<const zip::Entry*> order;
    for (const zip::Entry& entry : entries_) order.push_back(&entry);
    std::sort(order.begin(), order.end(),
              [](const zip::Entry* a, const zip::Entry* b) { return a->header_offset < b->header_offset; });
    std::vector<std::uint64_t> begins;
    for (const zip::Entry* entry : order) begins.push_back(entry->header_offset);
    records_.resize(order.size());
    CKPT_CHECK(stream_.read_each(begins, zip::kLocalHeaderBytes, [&](std::size_t index, auto header) -> Result<> {
      const auto begin = zip::data_offset(header, *order[index], tail_);
      if (!begin) return fail(at(begin.error(), 0));
      records_[index] = {order[index], *begin};
      return {};
    }));
    for (std::size_t i = 0; i + 1 < records_.size(); ++i) {
      const Record& record = records_[i];
      if (record.begin + record.entry->bytes <= records_[i + 1].entry->header_offset) continue;
      return failed(Errc::corrupt, "zip: entry '" + record.entry->name + "' overlaps the next one", record.begin);
    }
    return {};
  }

  const Record* find(std::string_view name) const {
    for (const Record& record : records_) {
      if (record.entry->name.size() == root_.size() + name.size() && record.entry->name.starts_with(root_) &&
          record.entry->name.ends_with(name)) {
        return &record;
      }
    }
    return nullptr;
  }

  Result<> read_byte_order() {
    const Record* record = find("byteorder");
    if (record == nullptr) return {};
    CKPT_TRY(const auto bytes, stream_.read(record->begin, std::min<std::uint64_t>(record->entry->bytes, 16)));
    const std::string_view order = as_text(bytes);
    if (order != "little" && order != "big") {
      return failed(Errc::corrupt, "byteorder: neither little nor big", record->begin);
    }
    big_endian_ = order == "big";
    hasher_.update(order);
    return {};
  }

  Result<pickle::Graph> read_pickle() {
    const Record* record = find("data.pkl");
    if (record == nullptr) {
      return failed(Errc::unsupported, "a zip file without " + root_ + "data.pkl: not written by torch.save", 0);
    }
    CKPT_CHECK(check_size("data.pkl", record->entry->bytes, record->begin));
    CKPT_TRY(const auto bytes, stream_.read(record->begin, record->entry->bytes));
    if (has_crc_ && crc32(0, bytes) != record->entry->crc) {
      return failed(Errc::checksum, "data.pkl: its CRC-32 differs from the zip directory's", record->begin);
    }
    hasher_.update(bytes);
    pickle_bytes_ = {stream_.in_file(record->begin), stream_.in_file(record->begin + record->entry->bytes)};
    pickle::Budget budget = budget_;
    budget.max_bytes -= bytes.size();  // which check_size has let through
    auto graph = pickle::parse(bytes, budget);
    if (!graph) return fail(at(with_context(std::move(graph).error(), "data.pkl"), record->begin));
    return graph;
  }

  void collect_storages(TorchArchive& archive) const {
    const std::string folder = root_ + "data/";
    for (const Record& record : records_) {
      if (!record.entry->name.starts_with(folder)) continue;
      archive.storages[record.entry->name.substr(folder.size())] = {
          .offset = stream_.in_file(record.begin), .bytes = record.entry->bytes, .crc = record.entry->crc};
    }
  }

  /// Every storage that the pickle refers to exists and has its length, also those of objects that are kept
  /// unchanged.
  Result<> check_storages(const TorchArchive& archive) const {
    for (pickle::NodeId node = 0; node < archive.graph.node_count(); ++node) {
      if (archive.graph.kind(node) != pickle::Kind::persistent) continue;
      const auto storage = torch::as_storage(archive.graph, node);
      if (!storage || storage->bytes == 0) continue;
      const auto found = archive.storages.find(storage->key);
      if (found != archive.storages.end() && found->second.bytes == storage->bytes) continue;
      return failed(Errc::corrupt,
                    "data.pkl refers to a storage data/" + storage->key + " of " + std::to_string(storage->bytes) +
                        " bytes, which is missing",
                    found == archive.storages.end() ? 0 : found->second.offset);
    }
    return {};
  }

  StreamReader& stream_;
  const pickle::Budget& budget_;
  Hasher hasher_;
  zip::Tail tail_;
  std::vector<zip::Entry> entries_;
  std::vector<Record> records_;  // by header offset
  std::string root_;             // with its slash
  bool has_crc_ = true;
  bool big_endian_ = false;
  Extent pickle_bytes_;
};

// Row-major strides; strides of dimensions with one element do not matter.
bool is_dense(const torch::TensorView& view) {
  std::uint64_t expected = 1;
  for (std::size_t d = view.shape.size(); d-- > 0;) {
    if (view.shape[d] != 1 && static_cast<std::uint64_t>(view.strides[d]) != expected) return false;
    expected *= view.shape[d];
  }
  return true;
}

// Strides of the model's elements, if the view is not dense.
Result<std::vector<std::int64_t>> model_strides(const torch::TensorView& view, const ModelType& type) {
  if (is_packed(type.dtype)) {
    return fail(Errc::unsupported, "tensor: a " + view.dtype_name + " view whose elements are not contiguous");
  }
  const bool is_pair = type.shape.size() == view.shape.size() + 1;  // a complex number is two floats
  std::vector<std::int64_t> strides;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    strides.push_back(view.shape[d] == 1 ? 0 : view.strides[d] * (is_pair ? 2 : 1));
  }
  if (is_pair) strides.push_back(1);
  return strides;
}

}  // namespace

Result<TorchArchive> open_torch_archive(Io& io, FileHandle file, const std::string& path, Extent stream,
                                        const pickle::Budget& budget) {
  StreamReader reader(io, file, path, stream);
  CKPT_TRY(const auto bytes, reader.read(0, std::min(kHeadBytes, reader.size())));
  const std::string_view head = as_text(bytes);
  if (head.starts_with("PK\3\4")) return Opener(reader, budget).open();
  if (is_legacy_torch(head)) return open_legacy_torch(reader, budget);
  if (head.empty()) return fail(reader.at({.code = Errc::corrupt, .message = "the file is empty"}, 0));
  return fail(not_a_zip(reader, head));
}

Result<std::string> read_serialization_id(Io& io, FileHandle file, const std::string& path, std::uint64_t file_bytes) {
  StreamReader reader(io, file, path, {0, file_bytes});
  CKPT_TRY(const auto bytes, reader.read(0, std::min(kHeadBytes, reader.size())));
  if (!as_text(bytes).starts_with("PK\3\4")) return std::string();
  return Opener(reader, {}).serialization_id();
}

Result<ModelType> model_type(const torch::TensorView& view) {
  ModelType type{.shape = view.shape};
  if (const auto known = dtype_from_torch(view.dtype_name)) {
    type.dtype = *known;
    if (view.dtype_name != "float4_e2m1fn_x2") return type;
    if (type.shape.empty()) type.shape.push_back(1);
    CKPT_TRY(type.shape.back(), checked_mul(type.shape.back(), 2));
    return type;
  }
  if (view.dtype_name != "complex128" && view.dtype_name != "complex32") {
    return fail(Errc::unsupported, "tensor: dtype " + view.dtype_name + " has no counterpart");
  }
  type.dtype = view.dtype_name == "complex128" ? Dtype::f64 : Dtype::f16;
  type.shape.push_back(2);
  type.true_dtype = view.dtype_name;
  return type;
}

Result<Locator> TorchArchive::locate(const torch::TensorView& view, std::uint32_t file) const {
  const auto found = storages.find(view.storage_key);
  if (found == storages.end()) {
    return fail(Errc::corrupt, "tensor: its storage data/" + view.storage_key + " is not in the file");
  }
  const StoragePlace& storage = found->second;
  if (storage.bytes != view.storage_bytes) {
    return fail({.code = Errc::corrupt,
                 .message = "tensor: its storage data/" + view.storage_key + " has " + std::to_string(storage.bytes) +
                            " bytes, but the pickle says " + std::to_string(view.storage_bytes),
                 .offset = storage.offset});
  }
  CKPT_TRY(const ModelType type, model_type(view));
  CKPT_TRY(const std::uint64_t volume, checked_volume(view.shape));
  Locator where{
      .file = file, .offset = storage.offset, .dtype = type.dtype, .big_endian = big_endian && view.element_bytes > 1};
  if (volume != 0) where.offset += view.storage_offset * view.element_bytes;  // as_tensor: inside the storage
  if (volume != 0 && !is_dense(view)) {
    CKPT_TRY(where.strides, model_strides(view, type));
  }
  if (has_crc && storage.bytes != 0) {
    where.crc = Crc{.begin = storage.offset, .end = storage.offset + storage.bytes, .value = storage.crc};
  }
  return where;
}

}  // namespace ckpt
