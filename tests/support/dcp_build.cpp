#include "support/dcp_build.hpp"

#include <span>
#include <unordered_map>

#include "format/hash.hpp"
#include "support/pickle_writer.hpp"

namespace ckpt::dcp_build {
namespace {

/// The opcodes by their meaning, and classes as each protocol names them.
class Pickle {
 public:
  explicit Pickle(int protocol) : protocol_(protocol), out_(protocol) {}

  void none() { out_.raw("N"); }
  void boolean(bool value) { out_.raw(value ? "\x88" : "\x89"); }
  void integer(std::int64_t value) { out_.integer(value); }
  /// Attribute names and the like: written once, then taken from the memo.
  void text(std::string_view value) {
    if (get('\'', value)) return;
    out_.text(value);
    put('\'', value);
  }
  /// Keys and file names, which ranks pickle separately.
  void own_text(std::string_view value) { out_.text(value); }
  void global(std::string_view module, std::string_view name) {
    const std::string both = std::string(module) + ' ' + std::string(name);
    if (get('.', both)) return;
    if (protocol_ >= 4) {
      out_.text(module).text(name).raw("\x93");
    } else {
      out_.global(module, name);
    }
    put('.', both);
  }
  void mark() { out_.raw("("); }
  void tuple() { out_.raw("t"); }
  void empty_tuple() { out_.raw(")"); }
  void empty_list() { out_.raw("]"); }
  void list() { out_.raw("]("); }
  void end_list() { out_.raw("e"); }
  void dict() { out_.raw("}("); }
  void end_dict() { out_.raw("u"); }
  void reduce() { out_.raw("R"); }
  void build() { out_.raw("b"); }
  void persistent() { out_.raw("Q"); }
  /// cls.__new__(cls); a state and build() follow.
  void instance(std::string_view module, std::string_view name) {
    global(module, name);
    out_.raw(")\x81");
  }
  std::string finish() { return out_.stop(); }

 private:
  bool get(char kind, std::string_view value) {
    const auto found = memo_.find(kind + std::string(value));
    if (found == memo_.end()) return false;
    out_.raw("j").little(found->second, 4);
    return true;
  }
  void put(char kind, std::string_view value) {
    const auto index = static_cast<std::uint32_t>(memo_.size());
    memo_.emplace(kind + std::string(value), index);
    out_.raw("r").little(index, 4);
  }

  int protocol_;
  test::PickleWriter out_;
  std::unordered_map<std::string, std::uint32_t> memo_;
};

void size(Pickle& out, const Shape& shape) {
  out.global("torch", "Size");
  out.mark();
  out.mark();
  for (const std::uint64_t n : shape) out.integer(static_cast<std::int64_t>(n));
  out.tuple();
  out.tuple();
  out.reduce();
}

void tensor_metadata(Pickle& out, const Entry& entry, const Style& style) {
  out.instance(style.metadata_module, "TensorStorageMetadata");
  out.dict();
  out.text("properties");
  out.instance(style.properties_module, "TensorProperties");
  out.mark();
  out.global("torch", entry.dtype);
  out.global("torch.serialization", "_get_layout");
  out.mark();
  out.text("torch." + entry.layout);
  out.tuple();
  out.reduce();
  out.boolean(false);
  if (style.enum_by_value) {
    out.global(style.properties_module,
               style.properties_module == style.metadata_module ? "_MEM_FORMAT_ENCODING" : "MEM_FORMAT_ENCODING");
    out.mark();
    out.integer(0);
  } else {
    out.global("builtins", "getattr");
    out.mark();
    out.global(style.properties_module, "_MEM_FORMAT_ENCODING");
    out.text("TORCH_CONTIGUOUS_FORMAT");
  }
  out.tuple();
  out.reduce();
  out.boolean(false);
  out.tuple();
  out.build();
  out.text("size");
  size(out, entry.shape);
  out.text("chunks");
  out.list();
  for (const Box& chunk : entry.chunks) {
    out.instance(style.metadata_module, "ChunkStorageMetadata");
    out.dict();
    out.text("offsets");
    size(out, chunk.offset);
    out.text("sizes");
    size(out, chunk.size);
    out.end_dict();
    out.build();
  }
  out.end_list();
  out.end_dict();
  out.build();
}

void record(Pickle& out, const Entry& entry, const std::optional<Shape>& offset, const StorageInfo& info,
            const Style& style) {
  out.instance(style.metadata_module, "MetadataIndex");
  out.dict();
  out.text("fqn");
  out.own_text(entry.fqn);
  out.text("index");
  out.none();
  if (offset) {
    out.text("offset");
    size(out, *offset);
  }
  out.end_dict();
  out.build();
  out.instance(style.filesystem_module, "_StorageInfo");
  out.dict();
  out.text("relative_path");
  out.own_text(info.file);
  out.text("offset");
  out.integer(static_cast<std::int64_t>(info.offset));
  out.text("length");
  out.integer(static_cast<std::int64_t>(info.length));
  if (!info.transforms.empty()) {
    out.text("transform_descriptors");
    out.list();
    for (const std::string& name : info.transforms) out.text(name);
    out.end_list();
  }
  out.end_dict();
  out.build();
}

void planner_data(Pickle& out, const std::vector<Entry>& entries) {
  out.text("planner_data");
  out.dict();
  for (const Entry& entry : entries) {
    if (!entry.path) continue;
    out.own_text(entry.fqn);
    out.mark();
    for (const PathPart& part : *entry.path) {
      if (const auto* text = std::get_if<std::string>(&part)) {
        out.text(*text);
      } else {
        out.integer(std::get<std::int64_t>(part));
      }
    }
    out.tuple();
  }
  out.end_dict();
}

void storage_meta(Pickle& out, const Style& style) {
  out.text("storage_meta");
  out.instance(style.metadata_module, "StorageMeta");
  out.dict();
  out.text("checkpoint_id");
  out.global(style.path_module, "PosixPath");
  out.mark();
  out.text("/");
  out.text("run");
  out.tuple();
  out.reduce();
  out.text("save_id");
  out.text("980f6ca7-f55b-4a61-8e21-ff669b5fc03d");
  out.text("load_id");
  out.none();
  out.text("modules");
  out.empty_list();
  out.end_dict();
  out.build();
}

/// A stored zip stream as torch writes it: aligned data, descriptors after it, zip64 end records.
class Zip {
 public:
  explicit Zip(const Stream& stream) : stream_(stream) {}

  void add(const std::string& name, const std::string& data) {
    const std::uint64_t header = out_.size();
    const std::uint32_t crc = stream_.with_crc ? crc32(0, std::as_bytes(std::span(data))) : 0;
    const bool described = !data.empty();
    const std::uint64_t start = header + 30 + name.size() + 4;
    const std::uint64_t padding = (stream_.alignment - start % stream_.alignment) % stream_.alignment;
    number(out_, 0x04034b50, 4);
    number(out_, 0, 2);
    number(out_, described ? 0x0808 : 0x0800, 2);
    number(out_, 0, 2 + 4 + 4 + 4 + 4);
    number(out_, name.size(), 2);
    number(out_, 4 + padding, 2);
    out_ += name;
    out_ += "FB";
    number(out_, padding, 2);
    out_.append(padding, 'Z');
    out_ += data;
    if (described) {
      number(out_, 0x08074b50, 4);
      number(out_, crc, 4);
      number(out_, data.size(), 4);
      number(out_, data.size(), 4);
    }
    number(directory_, 0x02014b50, 4);
    number(directory_, 0, 4);
    number(directory_, described ? 0x0808 : 0x0800, 2);
    number(directory_, 0, 2 + 4);
    number(directory_, crc, 4);
    number(directory_, data.size(), 4);
    number(directory_, data.size(), 4);
    number(directory_, name.size(), 2);
    number(directory_, 0, 2 + 2 + 2 + 2 + 4);
    number(directory_, header, 4);
    directory_ += name;
    ++count_;
  }

  std::string finish() && {
    const std::uint64_t begin = out_.size();
    out_ += directory_;
    const std::uint64_t end = out_.size();
    number(out_, 0x06064b50, 4);
    number(out_, 44, 8);
    number(out_, 0x031e, 2);
    number(out_, 0x2d, 2);
    number(out_, 0, 8);
    number(out_, count_, 8);
    number(out_, count_, 8);
    number(out_, directory_.size(), 8);
    number(out_, begin, 8);
    number(out_, 0x07064b50, 4);
    number(out_, 0, 4);
    number(out_, end, 8);
    number(out_, 1, 4);
    number(out_, 0x06054b50, 4);
    number(out_, 0, 4);
    number(out_, count_, 2);
    number(out_, count_, 2);
    number(out_, directory_.size(), 4);
    number(out_, begin, 4);
    number(out_, 0, 2);
    return std::move(out_);
  }

 private:
  static void number(std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
  }
  Stream stream_;
  std::string out_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

std::string save(const std::string& pickle, const std::string* storage, const Stream& stream) {
  Zip zip(stream);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", std::to_string(stream.alignment));
  if (!stream.byteorder.empty()) zip.add("archive/byteorder", std::string(stream.byteorder));
  if (storage != nullptr) zip.add("archive/data/0", *storage);
  zip.add("archive/version", "3\n");
  zip.add("archive/.data/serialization_id", std::string(40, '7'));
  for (unsigned i = 0; i < stream.extra_records; ++i) zip.add("archive/extra/" + std::to_string(i), "x");
  return std::move(zip).finish();
}

}  // namespace

std::string metadata(const std::vector<Entry>& entries, const Style& style) {
  Pickle out(style.protocol);
  out.instance(style.metadata_module, "Metadata");
  out.dict();
  out.text("state_dict_metadata");
  out.dict();
  for (const Entry& entry : entries) {
    out.own_text(entry.fqn);
    if (entry.is_tensor) {
      tensor_metadata(out, entry, style);
    } else {
      out.instance(style.metadata_module, "BytesStorageMetadata");
    }
  }
  out.end_dict();
  if (style.with_planner_data) {
    planner_data(out, entries);
  } else {
    out.text("planner_data");
    out.none();
  }
  out.text("storage_data");
  out.dict();
  for (const Entry& entry : entries) {
    for (const auto& [offset, info] : entry.records) record(out, entry, offset, info, style);
  }
  out.end_dict();
  if (style.with_storage_meta) storage_meta(out, style);
  if (style.with_version) {
    out.text("version");
    out.text("1.0.0");
  }
  out.end_dict();
  out.build();
  return out.finish();
}

std::string save_object(const std::string& pickle, const Stream& stream) {
  return save(pickle, nullptr, stream);
}

std::string save_tensor(const View& view, const std::string& storage, const Stream& stream) {
  Pickle out(2);
  out.global("torch._utils", "_rebuild_tensor_v2");
  out.mark();
  out.mark();
  out.text("storage");
  out.global("torch", view.storage_class);
  out.text("0");
  out.text("cpu");
  out.integer(static_cast<std::int64_t>(view.storage_elements));
  out.tuple();
  out.persistent();
  out.integer(static_cast<std::int64_t>(view.offset));
  for (const Shape* numbers : {&view.shape, &view.strides}) {
    out.mark();
    for (const std::uint64_t n : *numbers) out.integer(static_cast<std::int64_t>(n));
    out.tuple();
  }
  out.boolean(false);
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.reduce();
  out.tuple();
  out.reduce();
  return save(out.finish(), &storage, stream);
}

std::string integer_pickle(std::int64_t value) {
  Pickle out(2);
  out.integer(value);
  return out.finish();
}

}  // namespace ckpt::dcp_build
