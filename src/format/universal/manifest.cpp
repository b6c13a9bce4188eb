#include "format/universal/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "format/files/extra_names.hpp"
#include "format/files/safetensors.hpp"
#include "format/model/scalar_json.hpp"
#include "format/text/error_context.hpp"
#include "format/text/json.hpp"
#include "format/universal/check_references.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/layout_json.hpp"

namespace ckpt::universal {
namespace {

constexpr json::Limits kLimits{.max_bytes = kMaxManifestBytes, .max_depth = 64, .max_values = std::size_t{64} << 20};
constexpr std::size_t kDigits = 32;
constexpr std::string_view kSealBegin = R"("xxh3":")";
constexpr std::string_view kSealEnd = "\"}\n";

tl::unexpected<Error> bad(Check check, std::string_view member, std::string_view reason) {
  return violates(check, fmt::format("manifest.json: {}: {}", member, reason));
}

/// The error of a reader of one value, prefixed with its member.
template <class T>
Result<T> in_member(Check check, std::string_view member, Result<T> result) {
  if (!result) return bad(check, member, result.error().message);
  return result;
}

/// A required member, or null if optional.
Result<const json::Value*> member_of(const json::Value& object, std::string_view key, bool required) {
  const json::Value* value = object.find(key);
  if (value == nullptr && required) return bad(Check::members, key, "missing");
  return value;
}

Result<std::string> text_of(const json::Value& object, std::string_view key, bool required = true) {
  CKPT_TRY(const json::Value* value, member_of(object, key, required));
  if (value == nullptr) return std::string();
  if (value->text() == nullptr) return bad(Check::members, key, "not text");
  return *value->text();
}

Result<Hash128> hash_of(const json::Value& object, std::string_view key) {
  CKPT_TRY(const std::string digits, text_of(object, key));
  const std::optional<Hash128> hash = Hash128::from_hex(digits);
  if (!hash) return bad(Check::digits, key, "not 32 lower-case hexadecimal digits");
  return *hash;
}

Result<std::uint64_t> natural_of(const json::Value& object, std::string_view key) {
  CKPT_TRY(const json::Value* value, member_of(object, key, true));
  return in_member(Check::integers, key, read_natural(*value));
}

Result<const json::Object*> object_of(const json::Value& object, std::string_view key, bool required = true) {
  CKPT_TRY(const json::Value* value, member_of(object, key, required));
  if (value == nullptr) return nullptr;
  if (value->object() == nullptr) return bad(Check::members, key, "not an object");
  return value->object();
}

Result<const json::Array*> array_of(const json::Value& object, std::string_view key, bool required = true) {
  CKPT_TRY(const json::Value* value, member_of(object, key, required));
  if (value == nullptr) return nullptr;
  if (value->array() == nullptr) return bad(Check::members, key, "not an array");
  return value->array();
}

Result<std::vector<std::string>> texts_of(const json::Value& object, std::string_view key, bool required = true) {
  CKPT_TRY(const json::Array* array, array_of(object, key, required));
  std::vector<std::string> texts;
  if (array == nullptr) return texts;
  for (const json::Value& value : *array) {
    if (value.text() == nullptr) return bad(Check::members, key, "holds something other than text");
    texts.push_back(*value.text());
  }
  return texts;
}

Result<std::vector<std::pair<std::string, std::string>>> text_pairs_of(const json::Value& object,
                                                                       std::string_view key) {
  CKPT_TRY(const json::Object* members, object_of(object, key));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [name, value] : *members) {
    if (value.text() == nullptr) return bad(Check::members, key, "holds something other than text");
    pairs.emplace_back(name, *value.text());
  }
  return pairs;
}

// --- members that decide whether this release can read the rest ----------------------------------------------------

Result<std::vector<Layout>> read_layouts(const json::Array& values, std::string_view version) {
  std::vector<Layout> layouts;
  layouts.reserve(values.size());
  for (const json::Value& value : values) {
    auto read = read_layout(value);
    if (!read)
      return bad(read.error().code == Errc::newer ? Check::layout_kind : Check::layout, "layouts",
                 read.error().message);
    Layout layout = *std::move(read);
    if (version == kOldVersion && layout.kind != Layout::Kind::whole)
      return bad(Check::layout_kind, "layouts", "a kind that version 0.9 does not have");
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

/// The members of a manifest that decide whether the rest can be read.
struct Preamble {
  std::string version;
  bool is_virtual = false;
  std::vector<std::string> optional_features;
  std::vector<Layout> layouts;
  std::vector<FileClass> dropped;
};

/// Version, features, layouts and demotion, in the members of the outermost object.
Result<Preamble> check_readable(const json::Value& root) {
  Preamble out;
  CKPT_TRY(out.version, text_of(root, "version"));
  if (!is_known_version(out.version))
    return bad(Check::version, "version",
               fmt::format("this release reads {} and 1.x, not {}", kOldVersion, out.version));
  CKPT_TRY(const json::Value* features, member_of(root, "features", true));
  if (features->object() == nullptr) return bad(Check::members, "features", "not an object");
  CKPT_TRY(const std::vector<std::string> required, texts_of(*features, "required"));
  for (const std::string& feature : required) {
    if (feature != kVirtualFeature)
      return bad(Check::required_features, "features", fmt::format("unknown required feature '{}'", feature));
  }
  out.is_virtual = !required.empty();
  CKPT_TRY(const json::Array* layouts, array_of(root, "layouts"));
  CKPT_TRY(out.layouts, read_layouts(*layouts, out.version));
  CKPT_TRY(const std::vector<std::string> dropped, texts_of(root, "dropped", false));
  for (const std::string& name : dropped) {
    if (name != class_name(FileClass::optim))
      return bad(Check::dropped_class, "dropped",
                 fmt::format("this release cannot read checkpoints without '{}'", name));
    if (!out.dropped.empty()) return bad(Check::revision, "dropped", fmt::format("'{}' twice", name));
    out.dropped = {FileClass::optim};
  }
  CKPT_TRY(out.optional_features, texts_of(*features, "optional"));
  return out;
}

// --- members --------------------------------------------------------------------------------------------------------

Result<> check_created(const std::string& created) {
  constexpr std::string_view kPattern = "0000-00-00T00:00:00.000000000Z";
  const bool fits = std::equal(created.begin(), created.end(), kPattern.begin(), kPattern.end(),
                               [](char c, char p) { return p == '0' ? c >= '0' && c <= '9' : c == p; });
  if (!fits) return bad(Check::created, "created", "not a time of the form " + std::string(kPattern));
  return {};
}

Result<std::optional<Manifest::Source>> read_source(const json::Value& root) {
  const json::Value* value = root.find("source");
  if (value == nullptr) return std::nullopt;
  if (value->object() == nullptr) return bad(Check::members, "source", "not an object");
  Manifest::Source source;
  CKPT_TRY(source.format, text_of(*value, "format"));
  CKPT_TRY(source.fingerprint, hash_of(*value, "fingerprint"));
  CKPT_TRY(source.chosen, text_of(*value, "chosen", false));
  return source;
}

/// The location of the checkpoint in a store; nothing if no member says so.
Result<std::optional<Run>> read_run(const json::Value& root) {
  if (root.find("run") == nullptr) return std::nullopt;
  Run run;
  CKPT_TRY(run.name, text_of(root, "run"));
  CKPT_TRY(run.series, natural_of(root, "series"));
  if (root.find("series_from") != nullptr) {
    CKPT_TRY(run.series_from, natural_of(root, "series_from"));
  }
  if (root.find("series_after") != nullptr) {
    CKPT_TRY(run.series_after, natural_of(root, "series_after"));
  }
  CKPT_TRY(run.generation, natural_of(root, "generation"));
  CKPT_TRY(run.parent, text_of(root, "parent", false));
  if (!run.parent.empty() && !Hash128::from_hex(run.parent))
    return bad(Check::digits, "parent", "not 32 lower-case hexadecimal digits");
  return run;
}

Result<Meta> read_meta(const json::Value& root) {
  Meta meta;
  if (const json::Value* step = root.find("step")) {
    CKPT_TRY(meta.step, in_member(Check::integers, "step", read_natural(*step)));
  }
  if (const json::Value* ranks = root.find("world_size")) {
    CKPT_TRY(meta.world_size, in_member(Check::integers, "world_size", read_natural(*ranks)));
  }
  CKPT_TRY(const json::Object* mesh, object_of(root, "mesh"));
  for (const auto& [axis, value] : *mesh) {
    CKPT_TRY(const std::uint64_t degree, in_member(Check::integers, "mesh", read_natural(value)));
    meta.mesh.emplace_back(axis, degree);
  }
  if (const json::Value* framework = root.find("framework")) {
    if (framework->object() == nullptr) return bad(Check::members, "framework", "not an object");
    CKPT_TRY(meta.framework, text_of(*framework, "name"));
    CKPT_TRY(meta.framework_version, text_of(*framework, "version", false));
  }
  CKPT_TRY(meta.user, text_pairs_of(root, "user"));
  return meta;
}

Result<Severity> read_severity(const std::string& name) {
  if (name == "note") return Severity::note;
  if (name == "warning") return Severity::warning;
  if (name == "incomplete") return Severity::incomplete;
  if (name == "damage") return Severity::damage;
  return bad(Check::severity, "findings", fmt::format("severity '{}' is not known", name));
}

Result<std::vector<Finding>> read_findings(const json::Value& root) {
  CKPT_TRY(const json::Array* rows, array_of(root, "findings", false));
  std::vector<Finding> findings;
  if (rows == nullptr) return findings;
  for (const json::Value& row : *rows) {
    if (row.object() == nullptr) return bad(Check::members, "findings", "holds something other than objects");
    Finding finding;
    CKPT_TRY(const std::string severity, text_of(row, "severity"));
    CKPT_TRY(finding.severity, read_severity(severity));
    CKPT_TRY(finding.text, text_of(row, "text"));
    CKPT_TRY(finding.file, text_of(row, "file", false));
    CKPT_TRY(finding.tensor, text_of(row, "tensor", false));
    const json::Value* in_blobs = row.find("in_blobs");
    if (in_blobs != nullptr && in_blobs->boolean() != nullptr && *in_blobs->boolean())
      finding.skipped = Skipped::unless_blobs;
    findings.push_back(std::move(finding));
  }
  return findings;
}

Result<std::vector<Alias>> read_aliases(const json::Value& root) {
  CKPT_TRY(const json::Array* rows, array_of(root, "aliases"));
  std::vector<Alias> aliases;
  for (const json::Value& row : *rows) {
    if (row.object() == nullptr) return bad(Check::members, "aliases", "holds something other than objects");
    Alias alias;
    CKPT_TRY(alias.name, text_of(row, "name"));
    CKPT_TRY(alias.target, text_of(row, "target"));
    if (const json::Value* path = row.find("path")) {
      CKPT_TRY(alias.path, in_member(Check::path, "path", read_path(*path)));
    }
    if (!aliases.empty() && aliases.back().name >= alias.name)
      return bad(Check::aliases, "aliases", fmt::format("'{}' is out of order or repeated", alias.name));
    aliases.push_back(std::move(alias));
  }
  return aliases;
}

const TensorRow* find_row(const std::vector<TensorRow>& rows, const std::string& name) {
  const auto at =
      std::partition_point(rows.begin(), rows.end(), [&](const TensorRow& row) { return row.tensor.name < name; });
  return at == rows.end() || at->tensor.name != name ? nullptr : &*at;
}

Result<> check_aliases(const Manifest& manifest) {
  for (const Alias& alias : manifest.aliases) {
    if (find_row(manifest.tensors, alias.name) != nullptr)
      return bad(Check::aliases, "aliases", fmt::format("'{}' is also the name of a tensor", alias.name));
    if (find_row(manifest.tensors, alias.target) == nullptr)
      return bad(Check::aliases, "aliases", fmt::format("'{}' names no tensor: '{}'", alias.name, alias.target));
  }
  return {};
}

/// Readers of tensors do not need them: a malformed row (FORMAT.md 3.2) is ignored.
std::vector<Manifest::ExtraRow> read_extras(const json::Value& root, const Manifest& manifest) {
  std::vector<Manifest::ExtraRow> out;
  const json::Value* rows = root.find("extras");
  if (rows == nullptr || rows->array() == nullptr) return out;
  if (std::ranges::find(manifest.optional_features, kExtrasFeature) == manifest.optional_features.end()) return out;
  for (const json::Value& row : *rows->array()) {
    const json::Value* path = row.find("path");
    const json::Value* blob = row.find("blob");
    if (path == nullptr || path->text() == nullptr || blob == nullptr || blob->text() == nullptr) continue;
    if (!is_extra_name(*path->text()) || (!out.empty() && out.back().path >= *path->text())) continue;
    const TensorRow* bytes = find_row(manifest.tensors, *blob->text());
    if (bytes != nullptr && bytes->tensor.role == Role::blob) out.push_back({*path->text(), *blob->text()});
  }
  return out;
}

Result<Manifest> read_members(const json::Value& root) {
  Manifest manifest;
  CKPT_TRY(manifest.id, hash_of(root, "id"));
  CKPT_TRY(manifest.created, text_of(root, "created"));
  CKPT_CHECK(check_created(manifest.created));
  CKPT_TRY(manifest.generator, text_of(root, "generator"));
  CKPT_TRY(manifest.source, read_source(root));
  CKPT_TRY(manifest.run, read_run(root));
  CKPT_TRY(manifest.meta, read_meta(root));
  if (const json::Value* nested = root.find("nested")) {
    if (nested->boolean() == nullptr) return bad(Check::members, "nested", "neither true nor false");
    manifest.nested = *nested->boolean();
  }
  if (const json::Value* revision = root.find("revision")) {
    CKPT_TRY(manifest.revision, in_member(Check::integers, "revision", read_natural(*revision)));
  }
  CKPT_TRY(const json::Value* sums, member_of(root, "sums", true));
  if (sums->object() == nullptr) return bad(Check::members, "sums", "not an object");
  CKPT_TRY(manifest.sums_bytes, natural_of(*sums, "bytes"));
  CKPT_TRY(manifest.sums_hash, hash_of(*sums, "xxh3"));
  CKPT_TRY(manifest.digests, text_pairs_of(root, "digests"));
  for (const auto& [algorithm, digest] : manifest.digests)
    CKPT_CHECK(in_member(Check::digits, "digests", read_hex(digest)));
  CKPT_TRY(manifest.findings, read_findings(root));
  CKPT_TRY(manifest.aliases, read_aliases(root));
  return manifest;
}

// --- rows of `tensors` ----------------------------------------------------------------------------------------------

Result<std::string> take_text(json::Value& value, std::string_view key) {
  auto* text = std::get_if<std::string>(&value.v);
  if (text == nullptr) return bad(Check::members, key, "not text");
  return std::move(*text);
}

Result<Dtype> read_dtype(const json::Value& value) {
  const std::string* name = value.text();
  if (name == nullptr) return bad(Check::members, "dtype", "not text");
  const std::optional<Dtype> dtype = dtype_from_name(*name);
  if (!dtype) return bad(Check::dtype, "dtype", fmt::format("'{}' is not known", *name));
  return *dtype;
}

Result<Role> read_role(const json::Value& value) {
  const std::string* name = value.text();
  if (name == nullptr) return bad(Check::members, "role", "not text");
  for (const Role role : {Role::param, Role::buffer, Role::slot, Role::blob}) {
    if (*name == role_name(role)) return role;
  }
  return bad(Check::role, "role", fmt::format("'{}' is not known", *name));
}

Result<Shape> read_shape(const json::Value& value) {
  if (value.array() == nullptr) return bad(Check::members, "shape", "not an array");
  Shape shape;
  shape.reserve(value.array()->size());
  for (const json::Value& size : *value.array()) {
    CKPT_TRY(const std::uint64_t elements, in_member(Check::integers, "shape", read_natural(size)));
    shape.push_back(elements);
  }
  if (shape.size() > safetensors::kMaxRank)
    return bad(Check::shape, "shape", fmt::format("more than {} dimensions", safetensors::kMaxRank));
  return shape;
}

Result<> check_row(const TensorRow& row) {
  const Tensor& tensor = row.tensor;
  if (tensor.name == "__metadata__") return bad(Check::tensor_names, "tensors", "a name that safetensors reserves");
  CKPT_CHECK(in_member(Check::shape, "shape", tensor_bytes(tensor.dtype, tensor.shape)));
  if (tensor.role == Role::blob && (tensor.dtype != Dtype::u8 || tensor.shape.size() != 1))
    return bad(Check::blob, "role", "a blob that is not one dimension of U8");
  return {};
}

Result<std::uint32_t> read_small(std::string_view key, const json::Value& value) {
  CKPT_TRY(const std::uint64_t natural, in_member(Check::integers, key, read_natural(value)));
  if (natural > std::numeric_limits<std::uint32_t>::max()) return bad(Check::integers, key, "2^32 or more");
  return static_cast<std::uint32_t>(natural);
}

Result<TensorRow> read_row(json::Value value) {
  auto* members = std::get_if<json::Object>(&value.v);
  if (members == nullptr) return bad(Check::members, "tensors", "holds something other than objects");
  TensorRow out;
  Tensor& tensor = out.tensor;
  enum : unsigned { kName = 1, kDtype = 2, kShape = 4, kRole = 8, kAll = 15 };
  unsigned seen = 0;
  const json::Value* chunks = nullptr;  // read once the shape is known
  for (auto& [key, member] : *members) {
    if (key == "name") {
      CKPT_TRY(tensor.name, take_text(member, key));
      seen |= kName;
    } else if (key == "dtype") {
      CKPT_TRY(tensor.dtype, read_dtype(member));
      seen |= kDtype;
    } else if (key == "shape") {
      CKPT_TRY(tensor.shape, read_shape(member));
      seen |= kShape;
    } else if (key == "role") {
      CKPT_TRY(tensor.role, read_role(member));
      seen |= kRole;
    } else if (key == "parameter") {
      CKPT_TRY(tensor.parameter, take_text(member, key));
    } else if (key == "slot") {
      CKPT_TRY(tensor.slot, take_text(member, key));
    } else if (key == "true_dtype") {
      CKPT_TRY(tensor.true_dtype, take_text(member, key));
    } else if (key == "path") {
      CKPT_TRY(tensor.path, in_member(Check::path, key, read_path(member)));
    } else if (key == "layout") {
      CKPT_TRY(out.layout, read_small(key, member));
    } else if (key == "volume") {
      CKPT_TRY(out.volume, read_small(key, member));
    } else if (key == "begin") {
      CKPT_TRY(out.begin, in_member(Check::integers, key, read_natural(member)));
    } else if (key == "chunks") {
      chunks = &member;
    }
  }
  Result<> whole =
      seen == kAll ? check_row(out) : bad(Check::members, "tensors", "a row without name, dtype, shape or role");
  if (!whole) return fail(with_tensor(std::move(whole).error(), tensor.name));
  if (chunks != nullptr) {
    auto read = in_member(Check::references, "chunks", read_chunks(*chunks, tensor));
    if (!read) return fail(with_tensor(std::move(read).error(), tensor.name));
    out.chunks = *std::move(read);
  }
  return out;
}

Result<std::vector<ReferencedSource>> read_virtual(const json::Value& root, bool is_virtual) {
  const json::Value* value = root.find("references");
  if ((value != nullptr) != is_virtual)
    return bad(Check::references, "references", is_virtual ? "missing" : "without the feature that announces it");
  if (value == nullptr) return std::vector<ReferencedSource>{};
  auto out = in_member(Check::references, "references", read_references(*value));
  if (out && out->empty()) return bad(Check::references, "references", "empty");
  return out;
}

/// Parses the document in one pass: rows of `tensors` become values at once, so that the tree of a hundred thousand of
/// them is never in memory; the other members are kept.
class ManifestReader final : public json::JudgingHandler {
 public:
  /// The whole manifest. A release that cannot read it reports that before any other error.
  Result<Manifest> finish() && {
    const json::Value root{std::move(members_)};
    CKPT_TRY(Preamble preamble, check_readable(root));
    CKPT_TRY(Manifest manifest, read_members(root));
    manifest.version = std::move(preamble.version);
    manifest.optional_features = std::move(preamble.optional_features);
    manifest.layouts = std::move(preamble.layouts);
    manifest.dropped = std::move(preamble.dropped);
    if (!manifest.dropped.empty() && manifest.revision == 0)
      return bad(Check::revision, "dropped", "in a manifest that was never revised");
    if (!rows_seen_) return bad(Check::members, "tensors", "missing or not an array");
    CKPT_CHECK(std::move(row_result_));
    const std::vector<LayoutFit> layouts = fits_of(manifest.layouts);
    for (const TensorRow& row : rows_) CKPT_CHECK(check_row_layout(row, layouts));
    manifest.tensors = std::move(rows_);
    CKPT_TRY(manifest.references, read_virtual(root, preamble.is_virtual));
    CKPT_CHECK(check_references(manifest));
    CKPT_CHECK(check_aliases(manifest));
    manifest.extras = read_extras(root, manifest);
    return manifest;
  }

  /// The text of a member, if it is one.
  const std::string* text(std::string_view key) const {
    const auto at = std::find_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first == key; });
    return at == members_.end() ? nullptr : at->second.text();
  }

 private:
  Result<> take(const json::Event& event) override {
    using Kind = json::Event::Kind;
    if (event.depth == 0) {
      if (event.kind == Kind::begin_object || event.kind == Kind::end_object) return {};
      return bad(Check::manifest_json, "document", "not an object");
    }
    if (event.depth == 1 && event.kind == Kind::key) {
      key_ = event.text;
      return {};
    }
    if (event.depth == 1 && key_ == "tensors" && event.kind == Kind::begin_array) {
      rows_seen_ = true;
      return {};
    }
    if (event.depth == 1 && key_ == "tensors" && event.kind == Kind::end_array) return {};
    CKPT_CHECK(builder_.on(event));
    const bool ends = event.kind != Kind::key && event.kind != Kind::begin_array && event.kind != Kind::begin_object;
    const std::size_t depth = key_ == "tensors" && rows_seen_ ? 2 : 1;
    if (!ends || event.depth != depth) return {};
    if (depth == 2) {
      add_row(builder_.take());
    } else {
      members_.emplace_back(key_, builder_.take());
    }
    return {};
  }

  void add_row(json::Value value) {
    if (!row_result_) return;
    Result<TensorRow> parsed = read_row(std::move(value));
    if (!parsed) {
      row_result_ = fail(std::move(parsed).error());
    } else if (!rows_.empty() && rows_.back().tensor.name >= parsed->tensor.name) {
      row_result_ = fail(
          with_tensor(bad(Check::tensor_names, "tensors", "out of order or repeated").value(), parsed->tensor.name));
    } else {
      rows_.push_back(*std::move(parsed));
    }
  }

  std::string key_{};
  json::Builder builder_{};
  json::Object members_{};
  std::vector<TensorRow> rows_{};
  bool rows_seen_ = false;
  Result<> row_result_{};  // of the first row that is not one
};

/// The whole document. Its own errors are those of the text; the reader's already have their number.
Result<> parse_text(std::string_view text, ManifestReader& reader) {
  auto read = json::parse(text, reader, kLimits);
  if (read || reader.has_failed()) return read;
  return violates(Check::manifest_json, with_context(std::move(read).error(), "manifest.json: parse"));
}

/// The trailing hash: its digits, if they match the bytes before them.
Result<std::string_view> check_seal(std::string_view text) {
  const std::size_t seal_bytes = kSealBegin.size() + kDigits + kSealEnd.size();
  if (!text.starts_with(kManifestBegin)) return bad(Check::manifest_ends, "document", "does not begin like a manifest");
  if (text.size() < kManifestBegin.size() + seal_bytes || !text.ends_with(kSealEnd) ||
      text.substr(text.size() - seal_bytes, kSealBegin.size()) != kSealBegin)
    return bad(Check::manifest_ends, "document", "does not end with its hash; cut short?");
  const std::size_t first_digit = text.size() - kSealEnd.size() - kDigits;
  const std::string_view digits = text.substr(first_digit, kDigits);
  const std::string computed = hash128(text.substr(0, first_digit)).hex();
  if (digits != computed)
    return bad(Check::manifest_hash, "xxh3", fmt::format("stored hash {}, but computed {}", digits, computed));
  return digits;
}

}  // namespace

FileClass TensorRow::file_class() const {
  if (tensor.role == Role::slot) return FileClass::optim;
  if (tensor.role == Role::blob) return FileClass::blobs;
  return FileClass::weights;
}

FileKey TensorRow::file() const {
  return {file_class(), 0, volume};
}

std::vector<LayoutFit> fits_of(const std::vector<Layout>& layouts) {
  return {layouts.begin(), layouts.end()};
}

Result<> check_row_layout(const TensorRow& row, std::span<const LayoutFit> layouts) {
  if (row.layout >= layouts.size())
    return fail(
        with_tensor(bad(Check::row_layout, "tensors", fmt::format("layout {} does not exist", row.layout)).value(),
                    row.tensor.name));
  const LayoutFit& fit = layouts[row.layout];
  if (row.volume != 0 && fit.layout().kind != Layout::Kind::whole)
    return fail(with_tensor(bad(Check::row_layout, "volume", "in a layout other than whole").value(), row.tensor.name));
  auto fits = fit.check(row.tensor, row.begin);
  if (fits) return {};
  return violates(Check::layout_fits, with_context(std::move(fits).error(), "manifest.json: parse"));
}

bool Manifest::is_dropped(FileClass file_class) const {
  return std::find(dropped.begin(), dropped.end(), file_class) != dropped.end();
}

Result<Manifest> parse_manifest(std::string_view text) {
  CKPT_TRY(const std::string_view digits, check_seal(text));
  ManifestReader reader;
  CKPT_CHECK(parse_text(text, reader));
  if (const std::string* seal = reader.text("xxh3"); seal == nullptr || *seal != digits)
    return bad(Check::manifest_ends, "xxh3", "is not the last member");
  return std::move(reader).finish();
}

}  // namespace ckpt::universal
