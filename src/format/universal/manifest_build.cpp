#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "format/model/scalar_json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"
#include "format/universal/layout_json.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> broken(std::string_view object, std::string_view reason) {
  return fail(Errc::internal, fmt::format("{}: build manifest: {}", object, reason));
}

/// Members of the outermost object begin on separate lines.
json::Writer& top(json::Writer& out, std::string_view key) {
  return out.line().key(key);
}

void top_natural(json::Writer& out, std::string_view key, std::uint64_t value) {
  put_natural(top(out, key), value);
}

/// Pairs whose shown keys are equal: the first one counts.
template <class Value, class Put>
void put_pairs(json::Writer& out, std::string_view key, const std::vector<std::pair<std::string, Value>>& pairs,
               const Put& put) {
  std::unordered_set<std::string> keys;
  top(out, key).begin_object();
  for (const auto& [name, value] : pairs) {
    const auto [shown, is_new] = keys.insert(shown_text(name));
    if (is_new) put(out.key(*shown), value);
  }
  out.end_object();
}

void put_meta(json::Writer& out, const Meta& meta) {
  if (meta.step) top_natural(out, "step", *meta.step);
  if (meta.world_size) top_natural(out, "world_size", *meta.world_size);
  put_pairs(out, "mesh", meta.mesh, [](json::Writer& to, std::uint64_t degree) { put_natural(to, degree); });
  if (meta.framework.empty()) return;
  top(out, "framework").begin_object().member("name", shown_text(meta.framework));
  if (!meta.framework_version.empty()) out.member("version", shown_text(meta.framework_version));
  out.end_object();
}

void put_findings(json::Writer& out, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  top(out, "findings").begin_array();
  for (const Finding& finding : findings) {
    out.line().begin_object().member("severity", severity_name(finding.severity));
    out.member("text", shown_text(finding.text));
    if (!finding.file.empty()) out.member("file", shown_text(finding.file));
    if (!finding.tensor.empty()) out.member("tensor", shown_text(finding.tensor));
    if (finding.skipped == Skipped::unless_blobs) out.member("in_blobs", true);
    out.end_object();
  }
  out.line().end_array();
}

Result<> check_order(const std::string* before, const std::string& name) {
  if (!is_utf8(name)) return broken(name, "a name that is not UTF-8");
  if (before != nullptr && *before >= name) return broken(name, "names are not sorted, or not unique");
  return {};
}

Result<> put_aliases(json::Writer& out, const std::vector<Alias>& aliases) {
  top(out, "aliases").begin_array();
  for (std::size_t i = 0; i < aliases.size(); ++i) {
    CKPT_CHECK(check_order(i == 0 ? nullptr : &aliases[i - 1].name, aliases[i].name));
    out.line().begin_object().member("name", aliases[i].name);
    out.member("target", shown_text(aliases[i].target));
    if (!aliases[i].path.empty()) put_path(out.key("path"), aliases[i].path);
    out.end_object();
  }
  out.end_array();
  return {};
}

/// Written with the feature that announces them, and omitted if there are none.
void put_extras(json::Writer& out, const Manifest& manifest) {
  if (manifest.extras.empty()) return;
  top(out, "extras").begin_array();
  for (const auto& extra : manifest.extras) {
    out.line().begin_object().member("path", shown_text(extra.path)).member("blob", shown_text(extra.blob));
    out.end_object();
  }
  out.line().end_array();
}

void put_row(json::Writer& out, const TensorRow& row) {
  const Tensor& tensor = row.tensor;
  out.begin_object().member("name", tensor.name).member("dtype", dtype_name(tensor.dtype));
  out.key("shape").begin_array();
  for (const std::uint64_t size : tensor.shape) put_natural(out, size);
  out.end_array().member("role", role_name(tensor.role));
  if (!tensor.parameter.empty()) out.member("parameter", shown_text(tensor.parameter));
  if (!tensor.slot.empty()) out.member("slot", shown_text(tensor.slot));
  if (!tensor.true_dtype.empty()) out.member("true_dtype", shown_text(tensor.true_dtype));
  if (!tensor.path.empty()) put_path(out.key("path"), tensor.path);
  if (row.layout != 0) out.member("layout", row.layout);
  if (row.volume != 0) out.member("volume", row.volume);
  if (row.begin != 0) put_natural(out.key("begin"), row.begin);
  if (!row.chunks.empty()) put_chunks(out.key("chunks"), tensor, row.chunks);
  out.end_object();
}

Result<> put_layouts(json::Writer& out, const std::vector<Layout>& layouts) {
  top(out, "layouts").begin_array();
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (auto sound = check_layout(layouts[i]); !sound) return broken("layouts", sound.error().message);
    for (const Axis& axis : layouts[i].mesh.axes) {
      if (!is_utf8(axis.name)) return broken("layouts", "an axis whose name is not UTF-8");
    }
    if (i != 0) out.line();
    put_layout(out, layouts[i]);
  }
  out.end_array();
  return {};
}

void put_run(json::Writer& out, const Run& run) {
  top(out, "run").value(shown_text(run.name));
  top_natural(out, "series", run.series);
  if (run.series_from) top_natural(out, "series_from", *run.series_from);
  if (run.series_after) top_natural(out, "series_after", *run.series_after);
  top_natural(out, "generation", run.generation);
  if (!run.parent.empty()) top(out, "parent").value(shown_text(run.parent));
}

Result<> put_tensors(json::Writer& out, const Manifest& manifest) {
  top(out, "tensors").begin_array();
  const std::vector<LayoutFit> layouts = fits_of(manifest.layouts);
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorRow& row = manifest.tensors[i];
    CKPT_CHECK(check_order(i == 0 ? nullptr : &manifest.tensors[i - 1].tensor.name, row.tensor.name));
    if (auto fits = check_row_layout(row, layouts); !fits) return broken(row.tensor.name, fits.error().message);
    put_row(out.line(), row);
  }
  out.line().end_array();
  return {};
}

std::vector<std::string> features_of(const Manifest& manifest) {
  std::vector<std::string> out = manifest.optional_features;
  const auto known = std::ranges::find(out, kExtrasFeature);
  if (!manifest.extras.empty() && known == out.end()) out.emplace_back(kExtrasFeature);
  return out;
}

}  // namespace

std::string utc_text(std::int64_t ns_since_1970) {
  using namespace std::chrono;
  const sys_time<nanoseconds> time{nanoseconds(ns_since_1970)};
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

Result<std::string> build_manifest(const Manifest& manifest) {
  const auto put_text = [](json::Writer& to, const std::string& text) { to.value(shown_text(text)); };
  constexpr std::size_t kRowBytes = 192;  // of most: growing copies all rows several times
  std::string text;
  text.reserve((manifest.tensors.size() + 16) * kRowBytes);
  json::Writer out(text);
  out.begin_object().member("format", "ckpt");  // kManifestBegin
  top(out, "version").value(kVersion);
  top(out, "id").value(manifest.id.hex());
  top(out, "created").value(shown_text(manifest.created));
  top(out, "generator").value(shown_text(manifest.generator));
  if (manifest.source) {
    top(out, "source").begin_object().member("format", shown_text(manifest.source->format));
    out.member("fingerprint", manifest.source->fingerprint.hex());
    if (!manifest.source->chosen.empty()) out.member("chosen", shown_text(manifest.source->chosen));
    out.end_object();
  }
  if (manifest.run) {
    if (!manifest.run->parent.empty() && !Hash128::from_hex(manifest.run->parent))
      return broken("parent", "not 32 lower-case hexadecimal digits");
    put_run(out, *manifest.run);
  }
  put_meta(out, manifest.meta);
  if (manifest.nested) top(out, "nested").value(true);
  top(out, "features").begin_object().key("required").begin_array();
  if (manifest.is_virtual()) out.value(kVirtualFeature);
  out.end_array().key("optional").begin_array();
  for (const std::string& feature : features_of(manifest)) out.value(shown_text(feature));
  out.end_array().end_object();
  CKPT_CHECK(put_layouts(out, manifest.layouts));
  put_natural(top(out, "sums").begin_object().key("bytes"), manifest.sums_bytes);
  out.member("xxh3", manifest.sums_hash.hex()).end_object();
  put_pairs(out, "digests", manifest.digests, put_text);
  put_pairs(out, "user", manifest.meta.user, put_text);
  put_findings(out, manifest.findings);
  CKPT_CHECK(put_aliases(out, manifest.aliases));
  put_extras(out, manifest);
  if (manifest.is_virtual()) CKPT_CHECK(put_references(top(out, "references"), manifest.references));
  CKPT_CHECK(put_tensors(out, manifest));
  top(out, "xxh3");
  text += '"';
  return text + hash128(text).hex() + "\"}\n";  // the hash of all before it
}

}  // namespace ckpt::universal
