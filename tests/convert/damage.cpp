#include "convert/damage.hpp"
#include "convert/open_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "format/checked.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/objects.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"

namespace ckpt::damage {
namespace {

namespace fs = std::filesystem;

std::string in_copy(const std::string& path) {
  return std::string(Copy::kRoot) + "/" + path;
}

void append(std::string& out, const Shape& shape) {
  out += '[';
  for (const std::uint64_t size : shape) out += std::to_string(size) + ",";
  out += ']';
}

void append(std::string& out, const PlacedChunk& placed, const Map& map) {
  out += "  ";
  append(out, placed.chunk.box.offset);
  append(out, placed.chunk.box.size);
  if (placed.chunk.flat)
    out += std::to_string(placed.chunk.flat->begin) + ".." + std::to_string(placed.chunk.flat->end);
  out += " " + map.files.at(placed.where.file).path + " " + std::to_string(placed.where.offset) + " " +
         std::string(dtype_name(placed.where.dtype)) + (placed.where.big_endian ? " big " : " ");
  for (const std::int64_t stride : placed.where.strides) out += std::to_string(stride) + ",";
  out += "\n";
}

/// The bytes of a file that a chunk is read from.
Extent bytes_of(const PlacedChunk& placed) {
  std::uint64_t elements = placed.chunk.volume();
  if (!placed.where.strides.empty()) {
    elements = 1;
    for (std::size_t d = 0; d < placed.where.strides.size(); ++d) {
      elements += (placed.chunk.box.size[d] - 1) * static_cast<std::uint64_t>(placed.where.strides[d]);
    }
  }
  return {placed.where.offset, placed.where.offset + tensor_bytes(placed.where.dtype, {elements}).value()};
}

Result<> each_chunk(const Map& map, std::size_t tensor, const ChunkVisitor& visit) {
  const auto elements = checked_volume(map.tensors[tensor].shape);
  if (!elements) return fail(elements.error());
  return map.index->chunks(tensor, {0, *elements}, visit);
}

/// What a damaged checkpoint may answer.
bool fits_damage(Errc code) {
  static const std::set<Errc> codes{Errc::unsupported, Errc::newer,   Errc::ambiguous, Errc::incomplete,
                                    Errc::uncommitted, Errc::corrupt, Errc::uncovered, Errc::overlap,
                                    Errc::checksum,    Errc::refused};
  return codes.contains(code);
}

}  // namespace

Copy::Copy(const std::string& name) : io_(disk_.io()) {
  const std::string root = golden_root(name);
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    files_.emplace(fs::relative(entry.path(), root), test::read_file(entry.path()));
  }
  for (const auto& [path, bytes] : files_) put(path, bytes);
}

void Copy::put(const std::string& path, const std::string& bytes) {
  disk_.put(in_copy(path), bytes);
  now_[path] = bytes;
}

Result<Opened> open(Copy& copy) {
  CKPT_TRY(Source source, open_source(copy.io(), Copy::kRoot, "", {.metadata_limit = std::uint64_t{64} << 20}));
  Opened out{.map = std::move(source.map)};
  Map& map = out.map;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    std::string& text = tensor.role == Role::blob ? out.objects : out.text;
    text += tensor.name + " " + std::string(dtype_name(tensor.dtype)) + tensor.true_dtype;
    append(text, tensor.shape);
    text += std::string(role_name(tensor.role)) + " " + tensor.parameter + " " + tensor.slot + "\n";
    CKPT_CHECK(each_chunk(map, i, [&](const PlacedChunk& placed) -> Result<> {
      append(text, placed, map);
      const Extent bytes = bytes_of(placed);
      const MapFile& file = map.files.at(placed.where.file);
      EXPECT_LE(bytes.end, file.bytes) << tensor.name << " in " << file.path;
      return {};
    }));
  }
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  if (auto covered = check_coverage(map, all); !covered) {
    return fail(with_file(std::move(covered).error(), Copy::kRoot));  // as the verbs do
  }
  for (const Alias& alias : map.aliases) out.text += alias.name + " = " + alias.target + "\n";
  CKPT_TRY(const std::string objects, universal::build_objects({}, map.objects));
  out.objects += objects;
  if (map.meta.step) out.objects += std::to_string(*map.meta.step);
  return out;
}

Result<std::vector<Content>> contents(Copy& copy, const Map& map) {
  const std::string root = Copy::kRoot;
  const ReadFile read = [&](const std::string& path) { return copy.now(path.substr(root.size() + 1)); };
  for (std::uint32_t f = 0; f < map.files.size(); ++f) {
    const auto leaves = map.hashes.of(f);
    const std::string bytes = leaves.empty() ? std::string() : copy.now(map.files[f].path);
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (hash128(std::string_view(bytes).substr(k * kLeafBytes, kLeafBytes)) == leaves[k]) continue;
      return fail(Error{.code = Errc::checksum, .message = "a leaf differs", .file = in_copy(map.files[f].path)});
    }
  }
  std::vector<Content> out;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    Gathered gathered = gather(map, root, i, read);
    if (!gathered.crc_agrees) {
      return fail(Error{.code = Errc::checksum, .message = "a CRC differs", .file = root, .tensor = tensor.name});
    }
    if (tensor.role == Role::blob || gathered.bytes.empty()) continue;
    Content content{.name = tensor.name, .type = std::string(dtype_name(tensor.dtype)), .bytes = {}};
    append(content.type, tensor.shape);
    content.bytes = std::move(gathered.bytes);
    out.push_back(std::move(content));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Case::Case(const std::string& name) : copy_(name) {
  auto opened = open(copy_);
  if (!opened) {
    ADD_FAILURE() << name << ": " << opened.error().message;
    return;
  }
  sound_ = *std::move(opened);
  auto all = contents(copy_, sound_.map);
  if (!all) {
    ADD_FAILURE() << name << ": " << all.error().message;
    return;
  }
  contents_ = *std::move(all);
  for (std::size_t i = 0; i < sound_.map.tensors.size(); ++i) {
    const auto visited = each_chunk(sound_.map, i, [&](const PlacedChunk& placed) -> Result<> {
      const std::string& file = sound_.map.files.at(placed.where.file).path;
      std::vector<bool>& marks = values_[file];
      marks.resize(copy_.files().at(file).size());
      const Extent bytes = bytes_of(placed);
      std::fill(marks.begin() + static_cast<std::ptrdiff_t>(bytes.begin),
                marks.begin() + static_cast<std::ptrdiff_t>(bytes.end), true);
      return {};
    });
    EXPECT_TRUE(visited) << name;
  }
}

bool Case::is_value(const std::string& file, std::uint64_t offset) const {
  const auto found = values_.find(file);
  return found != values_.end() && found->second[offset];
}

Outcome Case::judge(std::string& why, bool values_moved) {
  const auto checked = [&](const Error& error) {
    why = error.message;
    EXPECT_TRUE(fits_damage(error.code)) << static_cast<int>(error.code) << ": " << error.message;
    EXPECT_FALSE(error.message.empty());
    EXPECT_TRUE(error.file.starts_with(Copy::kRoot)) << "no file in: " << error.message << " | " << error.file;
    return Outcome::refused;
  };
  auto opened = open(copy_);
  if (!opened) return checked(opened.error());
  const bool same_objects = opened->objects == sound_.objects;
  if (opened->text == sound_.text && same_objects && opened->map.hashes.leaves.empty() && !values_moved) {
    return Outcome::harmless;
  }
  auto all = contents(copy_, opened->map);
  if (!all) return checked(all.error());
  if (*all == contents_) {
    why = "the objects";
    return same_objects ? Outcome::harmless : Outcome::renamed;
  }
  const auto unnamed = [](std::vector<Content> list) {
    for (Content& content : list) content.name.clear();
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());  // a replica may have got a name of its own
    return list;
  };
  if (unnamed(*all) == unnamed(contents_)) {
    why = "the names";
    return Outcome::renamed;
  }
  const auto warned = [](const Map& map) {
    return std::ranges::count_if(map.findings, [](const Finding& f) { return f.severity == Severity::warning; });
  };
  const std::vector<Content> here = unnamed(*all);
  const std::vector<Content> before = unnamed(contents_);
  if (std::includes(before.begin(), before.end(), here.begin(), here.end()) &&
      warned(opened->map) > warned(sound_.map)) {
    why = "tensors are missing";
    return Outcome::told;
  }
  for (const Content& content : *all) {
    if (std::find(contents_.begin(), contents_.end(), content) == contents_.end()) {
      why = content.name + " " + content.type + " was not there before";
      break;
    }
  }
  if (all->size() != contents_.size()) {
    why += ", " + std::to_string(all->size()) + " tensors instead of " + std::to_string(contents_.size());
  }
  return Outcome::wrong;
}

}  // namespace ckpt::damage
