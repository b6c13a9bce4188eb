#include "format/torch/dcp_metadata_build.hpp"

#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "format/torch/pickle_writer.hpp"

namespace ckpt::dcp {
namespace {

#define CKPT_DCP_METADATA "torch.distributed.checkpoint.metadata "

class MetadataBuild {
 public:
  MetadataBuild(std::span<const NewEntry> entries, std::span<const std::string> files, std::string_view save_id,
                Keys keys)
      : entries_(entries), files_(files), save_id_(save_id), keys_(keys) {}

  std::string build() {
    instance(CKPT_DCP_METADATA "Metadata", 5, [&] {
      add_entries();
      add_paths();
      add_items();
      add_storage_meta();
      out_.text("version"), out_.text("1.0.0");
    });
    return std::move(out_).finish();
  }

 private:
  /// An object without arguments whose state is a dict of `members`, which `add` writes: key, value, key, ...
  template <class Add>
  pickle::MemoIndex instance(std::string_view name, std::uint64_t members, Add add) {
    out_.begin_object();
    out_.global(name);
    out_.begin_tuple(0), out_.end();
    out_.new_object();
    out_.begin_dict(members);
    add();
    out_.end();
    out_.build();
    return out_.end();
  }

  /// name(argument)
  template <class Add>
  void call(std::string_view name, Add argument) {
    out_.begin_object();
    out_.global(name);
    out_.begin_tuple(1);
    argument();
    out_.end();
    out_.reduce();
    out_.end();
  }

  void add_size(const Shape& sizes) {
    call("torch Size", [&] {
      out_.begin_tuple(sizes.size());
      for (const std::uint64_t size : sizes) out_.integer(static_cast<std::int64_t>(size));
      out_.end();
    });
  }

  void add_entries() {
    out_.text("state_dict_metadata");
    out_.begin_dict(entries_.size());
    for (const NewEntry& entry : entries_) {
      out_.text(entry.fqn);
      if (entry.dtype.empty()) {
        instance(CKPT_DCP_METADATA "BytesStorageMetadata", 0, [] {});
        continue;
      }
      instance(CKPT_DCP_METADATA "TensorStorageMetadata", 3, [&] {
        out_.text("properties"), add_properties(entry.dtype);
        out_.text("size"), add_size(entry.shape);
        out_.text("chunks"), add_chunks(entry);
      });
    }
    out_.end();
  }

  /// One object for all tensors of a dtype. Its state is a tuple: dtype, layout, requires_grad, memory format, pinned.
  void add_properties(const std::string& dtype) {
    if (const auto found = properties_.find(dtype); found != properties_.end()) return out_.get(found->second);
    out_.begin_object();
    out_.global(CKPT_DCP_METADATA "TensorProperties");
    out_.begin_tuple(0), out_.end();
    out_.new_object();
    out_.begin_tuple(5);
    out_.global("torch " + dtype);
    call("torch.serialization _get_layout", [&] { out_.text("torch.strided"); });
    out_.boolean(false);
    call(CKPT_DCP_METADATA "_MEM_FORMAT_ENCODING", [&] { out_.integer(0); });  // TORCH_CONTIGUOUS_FORMAT
    out_.boolean(false);
    out_.end();
    out_.build();
    properties_.emplace(dtype, out_.end());
  }

  void add_chunks(const NewEntry& entry) {
    out_.begin_list(entry.items.size());
    for (const NewItem& item : entry.items) {
      instance(CKPT_DCP_METADATA "ChunkStorageMetadata", 2, [&] {
        out_.text("offsets"), add_size(item.box.offset);
        out_.text("sizes"), add_size(item.box.size);
      });
    }
    out_.end();
  }

  void add_paths() {
    out_.text("planner_data");
    if (keys_ == Keys::flat) return out_.none();
    out_.begin_dict(entries_.size());
    for (const NewEntry& entry : entries_) {
      out_.text(entry.fqn);
      out_.begin_tuple(entry.path.size());
      for (const PathPart& part : entry.path) {
        if (const auto* text = std::get_if<std::string>(&part)) {
          out_.text(*text);
        } else {
          out_.integer(std::get<std::int64_t>(part));
        }
      }
      out_.end();
    }
    out_.end();
  }

  void add_items() {
    std::uint64_t count = 0;
    for (const NewEntry& entry : entries_) count += entry.items.size();
    out_.text("storage_data");
    out_.begin_dict(count);
    for (const NewEntry& entry : entries_) {
      std::int64_t number = 0;
      for (const NewItem& item : entry.items) {
        add_index(entry, item, number++);
        instance("torch.distributed.checkpoint.filesystem _StorageInfo", 3, [&] {
          out_.text("relative_path"), out_.text(files_[item.file]);
          out_.text("offset"), out_.integer(static_cast<std::int64_t>(item.offset));
          out_.text("length"), out_.integer(static_cast<std::int64_t>(item.length));
        });
      }
    }
    out_.end();
  }

  /// The key of an item; that of a Python object has neither offset nor number.
  void add_index(const NewEntry& entry, const NewItem& item, std::int64_t number) {
    const bool is_bytes = entry.dtype.empty();
    instance(CKPT_DCP_METADATA "MetadataIndex", 3, [&] {
      out_.text("fqn"), out_.text(entry.fqn);
      out_.text("offset"), is_bytes ? out_.none() : add_size(item.box.offset);
      out_.text("index"), is_bytes ? out_.none() : out_.integer(number);
    });
  }

  void add_storage_meta() {
    out_.text("storage_meta");
    instance(CKPT_DCP_METADATA "StorageMeta", 4, [&] {
      out_.text("checkpoint_id"), out_.none();
      out_.text("save_id"), out_.text(save_id_);
      out_.text("load_id"), out_.none();
      out_.text("modules"), out_.begin_list(0), out_.end();
    });
  }

  std::span<const NewEntry> entries_;
  std::span<const std::string> files_;
  std::string_view save_id_;
  Keys keys_;
  pickle::Writer out_;
  std::unordered_map<std::string, pickle::MemoIndex> properties_;  // by dtype
};

#undef CKPT_DCP_METADATA

}  // namespace

std::string build_metadata(std::span<const NewEntry> entries, std::span<const std::string> files,
                           std::string_view save_id, Keys keys) {
  return MetadataBuild(entries, files, save_id, keys).build();
}

}  // namespace ckpt::dcp
