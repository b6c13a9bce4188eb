// Manifests, hash tables and object files of every shape that their writers can be given read back as they were.
#include <gtest/gtest.h>
// rapidcheck's GoogleTest extra needs the line above.
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "format/universal/manifest.hpp"
#include "format/universal/objects.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::universal {
namespace {

std::string utf8_text() {
  static const std::vector<std::string> kPieces{"a", "w",  ".", "%", "\"", "\\",  "\n", std::string(1, '\0'),
                                                "é", "層", "😀", "/", "{",  "xxh3"};
  std::string text;
  for (const auto piece :
       *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, kPieces.size())))
    text += kPieces[piece];
  return text;
}

std::string any_bytes() {
  std::string bytes;
  for (const int byte : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 256)))
    bytes += static_cast<char>(byte);
  return bytes;
}

/// Small, or near a power of two.
std::uint64_t any_natural() {
  const auto shift = *rc::gen::inRange(0, 64);
  return (std::uint64_t{1} << shift) + *rc::gen::inRange<std::uint64_t>(0, 3) - 1;
}

Path any_path() {
  Path path;
  const auto parts = *rc::gen::inRange(0, 4);
  for (int i = 0; i < parts; ++i) {
    if (*rc::gen::arbitrary<bool>()) {
      path.emplace_back(*rc::gen::arbitrary<bool>() ? utf8_text() : any_bytes());
    } else {
      path.emplace_back(static_cast<std::int64_t>(any_natural()));
    }
  }
  return path;
}

std::set<std::string> names() {
  std::set<std::string> out;
  const auto count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) out.insert(utf8_text());
  return out;
}

TensorRow any_row(const std::string& name) {
  TensorRow row;
  Tensor& tensor = row.tensor;
  tensor.name = name;
  tensor.role = static_cast<Role>(*rc::gen::inRange(0, 4));
  if (tensor.role == Role::blob) {
    tensor.dtype = Dtype::u8;
    tensor.shape = {*rc::gen::inRange<std::uint64_t>(0, 1u << 20)};
  } else {
    tensor.dtype = static_cast<Dtype>(*rc::gen::inRange(0, kDtypeCount));
    const auto rank = *rc::gen::inRange(0, 5);
    for (int d = 0; d < rank; ++d) tensor.shape.push_back(*rc::gen::inRange<std::uint64_t>(0, 5000));
    if (is_packed(tensor.dtype)) tensor.shape.push_back(8);
  }
  if (tensor.role == Role::slot) {
    tensor.parameter = utf8_text();
    tensor.slot = utf8_text();
  }
  if (*rc::gen::inRange(0, 4) == 0) tensor.true_dtype = "complex128";
  tensor.path = any_path();
  row.volume = static_cast<std::uint32_t>(any_natural());
  return row;
}

RC_GTEST_PROP(Manifest, ReadsBackWhateverItHolds, ()) {
  Manifest in;
  in.id = hash128(any_bytes());
  in.created = utc_text(static_cast<std::int64_t>(any_natural() >> 1));
  in.generator = utf8_text();
  if (*rc::gen::arbitrary<bool>()) in.source = {utf8_text(), hash128(utf8_text()), utf8_text()};
  if (*rc::gen::arbitrary<bool>()) in.meta.step = any_natural();
  if (*rc::gen::arbitrary<bool>()) in.meta.world_size = any_natural();
  for (const auto& axis : names()) in.meta.mesh.emplace_back(axis, any_natural());
  in.meta.framework = utf8_text();
  if (!in.meta.framework.empty()) in.meta.framework_version = utf8_text();
  for (const auto& key : names()) in.meta.user.emplace_back(key, utf8_text());
  for (const auto& feature : names()) in.optional_features.push_back(feature);
  in.sums_bytes = any_natural();
  in.sums_hash = hash128(utf8_text());
  for (const auto& name : names()) {
    if (name != "__metadata__") in.tensors.push_back(any_row(name));
  }
  if (!in.tensors.empty()) {
    for (const auto& name : names()) {
      const bool taken =
          std::any_of(in.tensors.begin(), in.tensors.end(), [&](const auto& row) { return row.tensor.name == name; });
      if (!taken) in.aliases.push_back({name, in.tensors[any_natural() % in.tensors.size()].tensor.name});
    }
  }

  const Result<std::string> text = build_manifest(in);
  RC_ASSERT(text.has_value());
  const Result<Manifest> out = parse_manifest(*text);
  if (!out) RC_FAIL(out.error().message);
  RC_ASSERT(out->id == in.id);
  RC_ASSERT(out->source.has_value() == in.source.has_value());
  if (in.source) RC_ASSERT(out->source->chosen == in.source->chosen);
  RC_ASSERT(out->meta.step == in.meta.step);
  RC_ASSERT(out->meta.world_size == in.meta.world_size);
  RC_ASSERT(out->meta.mesh == in.meta.mesh);
  RC_ASSERT(out->meta.user == in.meta.user);
  RC_ASSERT(out->meta.framework_version == in.meta.framework_version);
  RC_ASSERT(out->sums_bytes == in.sums_bytes);
  RC_ASSERT(out->tensors.size() == in.tensors.size());
  for (std::size_t i = 0; i < in.tensors.size(); ++i) {
    RC_ASSERT(out->tensors[i].tensor.name == in.tensors[i].tensor.name);
    RC_ASSERT(out->tensors[i].tensor.path == in.tensors[i].tensor.path);
    RC_ASSERT(out->tensors[i].tensor.shape == in.tensors[i].tensor.shape);
    RC_ASSERT(out->tensors[i].tensor.dtype == in.tensors[i].tensor.dtype);
    RC_ASSERT(out->tensors[i].file() == in.tensors[i].file());
  }
  const Result<std::string> again = build_manifest(*out);
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == *text);
}

RC_GTEST_PROP(Sums, ReadBackWhateverTheyHoldAndNoFlipStaysUnseen, ()) {
  Sums in;
  in.id = hash128(any_bytes());
  std::set<FileKey> keys;
  const auto count = *rc::gen::inRange(0, 10);
  for (int i = 0; i < count; ++i) {
    FileKey key{static_cast<FileClass>(*rc::gen::inRange(0u, 3u)), static_cast<std::uint32_t>(any_natural()),
                static_cast<std::uint32_t>(any_natural())};
    keys.insert(key);
  }
  if (*rc::gen::arbitrary<bool>()) keys.insert({FileClass::objects, 0, 0});
  for (const FileKey& key : keys) {
    const std::uint64_t data_begin =
        key.file_class == FileClass::objects ? 0 : 4096 * *rc::gen::inRange<std::uint64_t>(1, 4);
    const std::uint64_t bytes = data_begin + *rc::gen::inRange<std::uint64_t>(0, 20u << 20);
    in.files.push_back({.key = key, .bytes = bytes, .data_begin = data_begin});
    for (std::uint64_t leaf = 0; leaf < leaf_count(bytes); ++leaf)
      in.leaves.push_back(hash128(key.path() + std::to_string(leaf)));
  }
  const Result<std::string> text = build_sums(in);
  RC_ASSERT(text.has_value());
  const Result<Sums> out = parse_sums(std::as_bytes(std::span(*text)));
  if (!out) RC_FAIL(out.error().message);
  RC_ASSERT(out->leaves == in.leaves);
  RC_ASSERT(out->files.size() == in.files.size());
  for (std::size_t i = 0; i < in.files.size(); ++i) {
    RC_ASSERT(out->files[i].key == in.files[i].key);
    RC_ASSERT(out->files[i].bytes == in.files[i].bytes);
  }

  // A flipped bit breaks a rule, a root, or the hash that the manifest holds: here the first two, by themselves.
  std::string flipped = *text;
  const auto at = *rc::gen::inRange<std::size_t>(0, flipped.size());
  flipped[at] = static_cast<char>(flipped[at] ^ (1 << *rc::gen::inRange(0, 8)));
  Result<Sums> damaged = parse_sums(std::as_bytes(std::span(flipped)));
  bool seen = !damaged;
  for (std::size_t i = 0; !seen && i < damaged->files.size(); ++i) {
    const FileRecord& file = damaged->files[i];
    seen = root_hash(damaged->id, file.key.path(), file.bytes, damaged->leaves_of(file)) != file.root;
  }
  // The id stands in every root; a table without files has nothing else that could tell. Data begins stand in none, and
  // any minor version is read.
  const bool in_id = at >= 16 && at < 32 && in.files.empty();
  const bool in_data_begin = at >= 64 && at < 64 + 64 * in.files.size() && (at % 64) >= 24 && (at % 64) < 32;
  const bool in_minor_version = at == 10 || at == 11;
  RC_ASSERT(seen || in_id || in_data_begin || in_minor_version);
  RC_ASSERT(hash128(flipped) != hash128(*text));
}

Value any_value(int depth) {
  const int kinds = depth == 0 ? 9 : 13;
  const auto children = [&] { return *rc::gen::inRange(0, 4); };
  const auto child = [&] { return std::make_shared<const Value>(any_value(depth - 1)); };
  switch (*rc::gen::inRange(0, kinds)) {
    case 0:
      return {None{}};
    case 1:
      return {*rc::gen::arbitrary<bool>()};
    case 2:
      return {static_cast<std::int64_t>(any_natural())};
    case 3:
      return {
          BigInt{(*rc::gen::arbitrary<bool>() ? "-1" : "9") + std::to_string(any_natural()) + "0000000000000000000"}};
    case 4:
      return {*rc::gen::arbitrary<double>()};
    case 5:
      return {utf8_text()};
    case 6:
      return {any_bytes()};
    case 7:
      return {Bytes{any_bytes()}};
    case 8:
      return {TensorRef{utf8_text()}};
    case 9:
    case 10: {
      List list{static_cast<List::Kind>(*rc::gen::inRange(0, 3)), {}};
      for (int i = children(); i > 0; --i) list.items.push_back(child());
      return {std::move(list)};
    }
    case 11: {
      Dict dict;
      for (int i = children(); i > 0; --i) dict.items.emplace_back(child(), child());
      return {std::move(dict)};
    }
    default:
      return {Opaque{utf8_text(), *rc::gen::arbitrary<bool>() ? child() : nullptr,
                     *rc::gen::arbitrary<bool>() ? child() : nullptr}};
  }
}

bool equal(const Value& a, const Value& b);

bool equal(const ValuePtr& a, const ValuePtr& b) {
  return a == nullptr || b == nullptr ? a == b : equal(*a, *b);
}

bool equal(const Value& a, const Value& b) {
  if (a.v.index() != b.v.index()) return false;
  if (const auto* list = std::get_if<List>(&a.v)) {
    const auto& other = std::get<List>(b.v);
    return list->kind == other.kind &&
           std::equal(list->items.begin(), list->items.end(), other.items.begin(), other.items.end(),
                      [](const auto& x, const auto& y) { return equal(x, y); });
  }
  if (const auto* dict = std::get_if<Dict>(&a.v)) {
    const auto& other = std::get<Dict>(b.v);
    return std::equal(
        dict->items.begin(), dict->items.end(), other.items.begin(), other.items.end(),
        [](const auto& x, const auto& y) { return equal(x.first, y.first) && equal(x.second, y.second); });
  }
  if (const auto* object = std::get_if<Opaque>(&a.v)) {
    const auto& other = std::get<Opaque>(b.v);
    return object->global == other.global && equal(object->args, other.args) && equal(object->state, other.state);
  }
  if (const auto* number = std::get_if<double>(&a.v))
    return std::memcmp(number, std::get_if<double>(&b.v), sizeof(double)) == 0;
  if (const auto* text = std::get_if<std::string>(&a.v)) return *text == std::get<std::string>(b.v);
  if (const auto* bytes = std::get_if<Bytes>(&a.v)) return *bytes == std::get<Bytes>(b.v);
  if (const auto* big = std::get_if<BigInt>(&a.v)) return *big == std::get<BigInt>(b.v);
  if (const auto* tensor = std::get_if<TensorRef>(&a.v)) return *tensor == std::get<TensorRef>(b.v);
  if (const auto* number = std::get_if<std::int64_t>(&a.v)) return *number == std::get<std::int64_t>(b.v);
  if (const auto* truth = std::get_if<bool>(&a.v)) return *truth == std::get<bool>(b.v);
  return true;
}

RC_GTEST_PROP(Objects, ReadBackWhateverTheyHold, ()) {
  std::vector<NamedObject> in;
  const auto count = *rc::gen::inRange(0, 4);
  for (int i = 0; i < count; ++i) in.push_back({utf8_text(), any_path(), any_value(4)});
  const Hash128 id = hash128(utf8_text());
  const Result<std::string> text = build_objects(id, in);
  RC_ASSERT(text.has_value());
  const Result<Objects> out = parse_objects(*text);
  if (!out) RC_FAIL(out.error().message);
  RC_ASSERT(out->id == id);
  RC_ASSERT(out->objects.size() == in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    RC_ASSERT(out->objects[i].name == in[i].name);
    RC_ASSERT(out->objects[i].path == in[i].path);
    RC_ASSERT(equal(out->objects[i].value, in[i].value));
  }
}

}  // namespace
}  // namespace ckpt::universal
