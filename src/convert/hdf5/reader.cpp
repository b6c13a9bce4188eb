#include "convert/hdf5/reader.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/hdf5/answer.hpp"
#include "convert/hdf5/decoded_index.hpp"
#include "convert/hdf5/helper.hpp"
#include "convert/metadata_memory.hpp"
#include "convert/optimizer_roles.hpp"
#include "engine/run/source_files.hpp"
#include "format/checked.hpp"
#include "format/files/zip.hpp"
#include "format/text/error_context.hpp"
#include "format/text/parse_number.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::hdf5 {
namespace {

constexpr std::string_view kWeights = "model.weights.h5";  // in a Keras archive: keras/src/saving/saving_lib.py
constexpr std::string_view kValue = "__value__";           // of a name that is a group too: writer.cpp
constexpr std::array<std::string_view, 4> kSuffixes{".h5", ".hdf5", ".hdf", ".keras"};
constexpr auto kPatience =
    std::chrono::minutes(10);  // for a slow disk: the time that it works the helper bounds itself
// A bound that no filter exceeds: deflate expands 1032 times (RFC 1951), and never-written chunks expand without limit.
constexpr std::uint64_t kMostExpansion = 1100;
constexpr std::uint64_t kAlwaysDecoded = std::uint64_t{64} << 20;

/// The one file of a directory, or the root itself ("").
Result<std::string> choose_file(Io& io, const std::string& root) {
  CKPT_TRY(const FileInfo info, io.stat(root));
  if (info.kind != FileInfo::Kind::directory) return std::string();
  CKPT_TRY(const auto entries, io.list(root));
  std::vector<std::string> found;
  for (const DirEntry& entry : entries) {
    const bool wanted = std::any_of(kSuffixes.begin(), kSuffixes.end(),
                                    [&](std::string_view suffix) { return entry.name.ends_with(suffix); });
    if (wanted && entry.kind == FileInfo::Kind::file) found.push_back(entry.name);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) return fail(Errc::not_found, root + ": not an HDF5 file, and contains none");
  return fail({.code = Errc::ambiguous,
               .message = root + ": several HDF5 files: " + found[0] + ", " + found[1],
               .file = root,
               .hint = "name one of them"});
}

/// The weights in a Keras archive, and its other files.
struct Archive {
  Range range{};
  std::vector<std::string> others{};
};
Result<Archive> find_weights(Io& io, FileHandle file, const std::string& path, std::uint64_t file_bytes,
                             std::uint64_t metadata_limit) {
  const std::uint64_t tail_bytes = std::min(file_bytes, zip::kTailBytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tail_bytes));
  CKPT_CHECK(io.read_at(file, file_bytes - tail_bytes, bytes));
  CKPT_TRY(const zip::Tail tail, zip::find_tail(bytes, file_bytes));
  if (tail.directory_bytes > metadata_limit)
    return fail({.code = Errc::memory, .message = "the archive's directory is over the limit", .file = path});
  bytes.resize(static_cast<std::size_t>(tail.directory_bytes));
  CKPT_CHECK(io.read_at(file, tail.directory_offset, bytes));
  CKPT_TRY(const std::vector<zip::Entry> entries, zip::parse_directory(bytes, tail, file_bytes));
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [](const zip::Entry& each) { return each.name == kWeights; });
  if (entry == entries.end()) return fail(Errc::incomplete, "a Keras archive without model.weights.h5");
  CKPT_CHECK(zip::check_stored(*entry));
  bytes.resize(zip::kLocalHeaderBytes);
  CKPT_CHECK(io.read_at(file, entry->header_offset, bytes));
  CKPT_TRY(const std::uint64_t offset, zip::data_offset(bytes, *entry, tail));
  Archive out{.range = {.path = path, .offset = offset, .bytes = entry->bytes}};
  if (!zip::without_crc(entries))
    out.range.crc = Crc{.begin = offset, .end = offset + entry->bytes, .value = entry->crc};
  for (const zip::Entry& each : entries) {
    if (&each != &*entry) out.others.push_back(each.name);
  }
  return out;
}

Result<Archive> find_range(Io& io, const std::string& path, const FileInfo& info, std::uint64_t metadata_limit) {
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  const auto find = [&]() -> Result<Archive> {
    const Archive plain{.range = {.path = path, .bytes = info.bytes}};
    std::array<std::byte, 4> head{};
    if (info.bytes < head.size()) return plain;
    CKPT_CHECK(io.read_at(file, 0, head));
    const bool is_zip = head == std::array{std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
    return is_zip ? find_weights(io, file, path, info.bytes, metadata_limit) : Result<Archive>(plain);
  };
  auto archive = find();
  auto closed = io.close(file);
  if (!archive) return fail(with_file(with_context(std::move(archive).error(), path), path));
  CKPT_CHECK(std::move(closed));
  return archive;
}

const std::string* find(const Attributes& attributes, std::string_view name) {
  const auto at =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& pair) { return pair.first == name; });
  return at == attributes.end() ? nullptr : &at->second;
}

Path path_of(std::string_view path, bool ours) {
  Path out;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t slash = std::min(path.find('/', at + 1), path.size());
    out.emplace_back(std::string(path.substr(at + 1, slash - at - 1)));
    at = slash;
  }
  if (ours && out.size() > 1 && std::get<std::string>(out.back()) == kValue) out.pop_back();
  return out;
}

/// "2,3", from our attribute.
std::optional<Shape> shape_of(std::string_view text) {
  Shape out;
  while (!text.empty()) {
    const auto size = take_number<std::uint64_t>(text);
    if (!size) return std::nullopt;
    out.push_back(*size);
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return out;
}

/// Of several names of one of our datasets, the name of its tensor.
void choose_own_names(Answer& answer) {
  const std::unordered_map<std::string_view, std::string_view> targets(answer.names.begin(), answer.names.end());
  std::unordered_map<std::string_view, std::string_view> chosen;  // by the path that the helper chose
  for (const FoundDataset& dataset : answer.datasets) {
    const std::string* own = find(dataset.attributes, "ckpt_path");
    const auto target = own == nullptr ? targets.end() : targets.find(*own);
    if (target != targets.end() && target->second == dataset.path) chosen.emplace(dataset.path, *own);
  }
  Answer out = answer;
  for (FoundDataset& dataset : out.datasets) {
    if (const auto own = chosen.find(dataset.path); own != chosen.end()) dataset.path = own->second;
  }
  for (auto& [name, target] : out.names) {
    const auto own = chosen.find(target);
    if (own == chosen.end()) continue;
    if (name == own->second) name = target;
    target = own->second;
  }
  answer = std::move(out);
}

class Reader {
 public:
  Reader(Range range, Answer answer, Decoding decoding)
      : range_(std::move(range)), answer_(std::move(answer)), decoding_(decoding) {}

  Result<Map> read() {
    take_meta();
    if (!map_.id.empty()) choose_own_names(answer_);
    for (const FoundDataset& dataset : answer_.datasets) CKPT_CHECK(take(dataset));
    name_tensors();
    take_aliases();
    for (const std::string& note : answer_.notes) map_.findings.push_back({.text = note});
    assign_roles(map_.tensors, paths_);
    CKPT_CHECK(make_index());
    return std::move(map_);
  }

 private:
  void take_meta() {
    if (const std::string* id = find(answer_.root, "ckpt_id")) map_.id = *id;
    for (const auto& [name, value] : answer_.root) {
      if (name == "step") {
        if (const auto step = parse_number<std::uint64_t>(value)) map_.meta.step = step;
      }
      if (!name.starts_with("ckpt_")) map_.meta.user.emplace_back(name, value);
    }
  }

  Result<> take(const FoundDataset& found) {
    if (found.type == kNoType) {
      map_.findings.push_back({.severity = Severity::warning,
                               .text = found.path + ": a dataset of " + found.type_text + ": left out",
                               .tensor = found.path,
                               .skipped = Skipped::data});
      return {};
    }
    Tensor tensor;
    tensor.shape = found.shape;
    const bool complex128 = found.type == kComplex128;
    tensor.dtype = complex128 ? Dtype::f64 : static_cast<Dtype>(found.type);
    if (complex128) {
      tensor.shape.push_back(2);
      tensor.true_dtype = "complex128";
    }
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    Place place{.shape = tensor.shape,
                .dtype = tensor.dtype,
                .bytes = bytes,
                .big_endian = found.big_endian,
                .path = found.path,
                .address = found.address,
                .rows = found.shape.empty() ? 1 : found.shape.front(),
                .chunk_rows = found.chunk_rows};
    CKPT_CHECK(locate(found, place));
    if (!map_.id.empty()) CKPT_CHECK(take_own(found, tensor, place));
    map_.tensors.push_back(std::move(tensor));
    places_.push_back(std::move(place));
    found_.push_back(found.path);
    const std::string* name = find(found.attributes, "ckpt_name");
    own_names_.push_back(name != nullptr && !map_.id.empty() ? std::optional(*name) : std::nullopt);
    return {};
  }

  Result<> locate(const FoundDataset& found, Place& place) const {
    const auto refuse = [&](Errc code, std::string_view reason) {
      return fail({.code = code,
                   .message = range_.path + ": " + found.path + ": " + std::string(reason),
                   .file = range_.path,
                   .tensor = found.path});
    };
    if (found.offset != kNoOffset) {
      if (found.offset > range_.bytes || place.bytes > range_.bytes - found.offset)
        return refuse(Errc::corrupt, "its bytes run past the end of the file");
      // The engine would turn the two halves of a complex number round, too.
      if (!(found.big_endian && place.dtype == Dtype::c64)) place.offset = range_.offset + found.offset;
    }
    if (found.stored_bytes > range_.bytes) return refuse(Errc::corrupt, "needs more bytes than the file has");
    if (!place.offset && place.bytes > kAlwaysDecoded && place.bytes / kMostExpansion > found.stored_bytes)
      return refuse(Errc::refused, "expands " + std::to_string(kMostExpansion) + " times or more");
    return {};
  }

  /// A file of ours records types that HDF5 lacks.
  Result<> take_own(const FoundDataset& found, Tensor& tensor, Place& place) const {
    if (const std::string* text = find(found.attributes, "ckpt_true_dtype")) tensor.true_dtype = *text;
    const std::string* dtype_text = find(found.attributes, "ckpt_dtype");
    if (dtype_text == nullptr) return {};
    const auto dtype = dtype_from_name(*dtype_text);
    const std::string* shape_text = find(found.attributes, "ckpt_shape");
    const auto shape = shape_text != nullptr ? shape_of(*shape_text) : tensor.shape;
    if (!dtype || !shape) return {};
    const auto bytes = tensor_bytes(*dtype, *shape);
    if (!bytes || *bytes != place.bytes) {
      return fail({.code = Errc::corrupt,
                   .message = range_.path + ": " + found.path + ": its ckpt_dtype or ckpt_shape does not fit its size",
                   .file = range_.path,
                   .tensor = found.path});
    }
    tensor.dtype = place.dtype = *dtype;
    tensor.shape = place.shape = *shape;
    return {};
  }

  /// The dotted path; if two are equal, both with the dots of their parts escaped.
  void name_tensors() {
    std::unordered_map<std::string, std::size_t> uses;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      paths_.push_back(path_of(found_[i], !map_.id.empty()));
      map_.tensors[i].name = own_names_[i] ? *own_names_[i] : dotted(paths_[i]);
      ++uses[map_.tensors[i].name];
    }
    for (std::size_t i = 0; i < found_.size(); ++i) {
      Tensor& tensor = map_.tensors[i];
      if (uses[tensor.name] > 1 || !is_utf8(tensor.name)) tensor.name = dotted_escaped(path_of(found_[i], false));
      if (!own_names_[i] && !splits_to(tensor.name, paths_[i])) tensor.path = paths_[i];
      names_.emplace(found_[i], tensor.name);
    }
  }

  void take_aliases() {
    std::unordered_map<std::string_view, bool> taken;
    for (const Tensor& tensor : map_.tensors) taken.emplace(tensor.name, true);
    for (const auto& [path, target] : answer_.names) {
      const auto tensor = names_.find(target);
      if (tensor == names_.end()) continue;  // of a dataset that was left out
      std::string name = dotted(path_of(path, !map_.id.empty()));
      if (taken.contains(name) || !is_utf8(name)) name = dotted_escaped(path_of(path, false));
      map_.aliases.push_back({.name = std::move(name), .target = tensor->second});
    }
  }

  Result<> make_index() {
    std::optional<ScratchFile> scratch;
    const bool decodes =
        std::any_of(places_.begin(), places_.end(), [](const Place& p) { return !p.offset && p.bytes > 0; });
    if (decodes) {
      CKPT_TRY(scratch, ScratchFile::open_large());
      scratch_path_ = scratch->path();
    }
    CKPT_TRY(DecodedIndex index, DecodedIndex::make(range_, std::move(places_), std::move(scratch), 1, decoding_));
    map_.index = std::make_shared<DecodedIndex>(std::move(index));
    if (decodes) map_.files.push_back({.path = scratch_path_});
    return {};
  }

  Range range_;
  Answer answer_;
  Decoding decoding_;
  Map map_;
  std::vector<Place> places_;
  std::vector<std::string> found_;                     // paths, by tensor
  std::vector<std::optional<std::string>> own_names_;  // by tensor; none if the path is its name
  std::vector<Path> paths_;
  std::unordered_map<std::string, std::string> names_;  // by path
  std::string scratch_path_;
};

}  // namespace

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::string name, choose_file(io, root));
  const std::string path = name.empty() ? root : join_path(root, name);
  CKPT_TRY(const FileInfo info, io.stat(path));
  CKPT_TRY(Archive archive, find_range(io, path, info, options.metadata_limit));
  Range& range = archive.range;
  range.device = info.device;
  range.inode = info.inode;
  const HelperLimits limits{
      .time = kPatience,
      .output_bytes = options.metadata_limit / static_cast<std::uint64_t>(MetadataCost::hdf5_answer),
      .stop = options.stop};
  const std::uint64_t memory = std::max(kHelperMemory, options.metadata_limit);
  std::vector<std::string> words{"map"};
  for (std::string& word : range.words()) words.push_back(std::move(word));
  auto answered = run_h5(memory, std::move(words), "", limits);
  if (!answered) return fail(with_file(with_context(std::move(answered).error(), path), path));
  CKPT_TRY(const FileInfo mapped, io.stat(path));  // the helper opened it by its name
  CKPT_CHECK(check_unchanged(path, info, mapped));
  CKPT_TRY(Answer answer, parse_answer(*answered));
  CKPT_TRY(Map map, Reader(range, std::move(answer), {.memory_bytes = memory, .stop = options.stop}).read());
  map.files.insert(map.files.begin(), {name, info.bytes, info.mtime_ns});
  map.variant = range.offset == 0 ? "" : "a Keras archive";
  map.metadata_hash = hash128(*answered).hex();
  if (!archive.others.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(archive.others.size(), 4); ++i) {
      names += (i == 0 ? "" : ", ") + archive.others[i];
    }
    if (archive.others.size() > 4) names += ", ...";
    map.findings.push_back({.text = "of the Keras archive only model.weights.h5 is read, not " + names, .file = path});
  }
  return map;
}

}  // namespace ckpt::hdf5
