#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "format/model/scalar_json.hpp"
#include "format/text/json.hpp"
#include "format/universal/layout_json.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> broken(std::string_view object, std::string_view reason) {
  return fail(Errc::internal, fmt::format("{}: build manifest: {}", object, reason));
}

void append_text(std::string& out, std::string_view text) {
  json::append_quoted(out, shown_text(text));
}

/// ,\n"key": at the beginning of a member of the outermost object.
void begin_member(std::string& out, std::string_view key) {
  out += ",\n";
  json::append_quoted(out, key);
  out += ':';
}

void append_member(std::string& out, std::string_view key, std::string_view text) {
  out += ',';
  json::append_quoted(out, key);
  out += ':';
  append_text(out, text);
}

template <class Value, class Append>
void append_pairs(std::string& out, const std::vector<std::pair<std::string, Value>>& pairs, const Append& append) {
  std::unordered_set<std::string> keys;
  out += '{';
  for (const auto& [key, value] : pairs) {
    const auto [shown, is_new] = keys.insert(shown_text(key));
    if (!is_new) continue;
    if (keys.size() > 1) out += ',';
    json::append_quoted(out, *shown);
    out += ':';
    append(out, value);
  }
  out += '}';
}

void append_texts(std::string& out, const std::vector<std::string>& texts) {
  out += '[';
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i != 0) out += ',';
    append_text(out, texts[i]);
  }
  out += ']';
}

void append_meta(std::string& out, const Meta& meta) {
  if (meta.step) {
    begin_member(out, "step");
    append_natural(out, *meta.step);
  }
  if (meta.world_size) {
    begin_member(out, "world_size");
    append_natural(out, *meta.world_size);
  }
  begin_member(out, "mesh");
  append_pairs(out, meta.mesh, append_natural);
  if (!meta.framework.empty()) {
    begin_member(out, "framework");
    out += R"({"name":)";
    append_text(out, meta.framework);
    if (!meta.framework_version.empty()) append_member(out, "version", meta.framework_version);
    out += '}';
  }
}

void append_findings(std::string& out, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  begin_member(out, "findings");
  for (std::size_t i = 0; i < findings.size(); ++i) {
    out += fmt::format("{}\n{{\"severity\":\"{}\"", i == 0 ? "[" : ",", severity_name(findings[i].severity));
    append_member(out, "text", findings[i].text);
    if (!findings[i].file.empty()) append_member(out, "file", findings[i].file);
    if (!findings[i].tensor.empty()) append_member(out, "tensor", findings[i].tensor);
    out += '}';
  }
  out += "\n]";
}

Result<> check_order(const std::string* before, const std::string& name) {
  if (!is_utf8(name)) return broken(name, "a name that is not UTF-8");
  if (before != nullptr && *before >= name) return broken(name, "names are not sorted or not unique");
  return {};
}

Result<> append_aliases(std::string& out, const Manifest& manifest) {
  begin_member(out, "aliases");
  out += '[';
  for (std::size_t i = 0; i < manifest.aliases.size(); ++i) {
    const Alias& alias = manifest.aliases[i];
    CKPT_CHECK(check_order(i == 0 ? nullptr : &manifest.aliases[i - 1].name, alias.name));
    out += i == 0 ? "\n{\"name\":" : ",\n{\"name\":";
    json::append_quoted(out, alias.name);
    append_member(out, "target", alias.target);
    out += '}';
  }
  out += ']';
  return {};
}

/// Written with the feature that announces them, and not where there are none.
void append_extras(std::string& out, const Manifest& manifest) {
  if (manifest.extras.empty()) return;
  begin_member(out, "extras");
  for (std::size_t i = 0; i < manifest.extras.size(); ++i) {
    out += i == 0 ? "[\n{\"path\":" : ",\n{\"path\":";
    append_text(out, manifest.extras[i].path);
    append_member(out, "blob", manifest.extras[i].blob);
    out += '}';
  }
  out += "\n]";
}

void append_row(std::string& out, const TensorRow& row) {
  const Tensor& tensor = row.tensor;
  out += R"({"name":)";
  json::append_quoted(out, tensor.name);
  append_member(out, "dtype", dtype_name(tensor.dtype));
  out += R"(,"shape":[)";
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (d != 0) out += ',';
    append_natural(out, tensor.shape[d]);
  }
  out += ']';
  append_member(out, "role", role_name(tensor.role));
  if (!tensor.parameter.empty()) append_member(out, "parameter", tensor.parameter);
  if (!tensor.slot.empty()) append_member(out, "slot", tensor.slot);
  if (!tensor.true_dtype.empty()) append_member(out, "true_dtype", tensor.true_dtype);
  if (!tensor.path.empty()) {
    out += R"(,"path":)";
    append_path(out, tensor.path);
  }
  if (row.layout != 0) out += fmt::format(R"(,"layout":{})", row.layout);
  if (row.volume != 0) out += fmt::format(R"(,"volume":{})", row.volume);
  if (row.begin != 0) {
    out += R"(,"begin":)";
    append_natural(out, row.begin);
  }
  out += '}';
}

Result<> append_layouts(std::string& out, const std::vector<Layout>& layouts) {
  begin_member(out, "layouts");
  out += '[';
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (auto sound = check_layout(layouts[i]); !sound) return broken("layouts", sound.error().message);
    for (const Axis& axis : layouts[i].mesh.axes) {
      if (!is_utf8(axis.name)) return broken("layouts", "an axis whose name is not UTF-8");
    }
    if (i != 0) out += ",\n";
    append_layout(out, layouts[i]);
  }
  out += ']';
  return {};
}

void append_run(std::string& out, const Run& run) {
  const auto number = [&](std::string_view key, std::uint64_t value) {
    begin_member(out, key);
    append_natural(out, value);
  };
  begin_member(out, "run");
  append_text(out, run.name);
  number("series", run.series);
  if (run.series_from) number("series_from", *run.series_from);
  number("generation", run.generation);
  if (run.parent.empty()) return;
  begin_member(out, "parent");
  append_text(out, run.parent);
}

Result<> append_tensors(std::string& out, const Manifest& manifest) {
  begin_member(out, "tensors");
  out += '[';
  const std::vector<LayoutFit> layouts = fits_of(manifest.layouts);
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorRow& row = manifest.tensors[i];
    CKPT_CHECK(check_order(i == 0 ? nullptr : &manifest.tensors[i - 1].tensor.name, row.tensor.name));
    if (auto fits = check_row_layout(row, layouts); !fits) return broken(row.tensor.name, fits.error().message);
    out += i == 0 ? "\n" : ",\n";
    append_row(out, row);
  }
  out += "\n]";
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
  const auto append_value = [](std::string& to, const std::string& text) { append_text(to, text); };
  std::string out(kManifestBegin);
  out += fmt::format("\n\"version\":\"{}\",\n\"id\":\"{}\"", kVersion, manifest.id.hex());
  begin_member(out, "created");
  append_text(out, manifest.created);
  begin_member(out, "generator");
  append_text(out, manifest.generator);
  if (manifest.source) {
    begin_member(out, "source");
    out += R"({"format":)";
    append_text(out, manifest.source->format);
    append_member(out, "fingerprint", manifest.source->fingerprint.hex());
    if (!manifest.source->chosen.empty()) append_member(out, "chosen", manifest.source->chosen);
    out += '}';
  }
  if (manifest.run) {
    if (!manifest.run->parent.empty() && !Hash128::from_hex(manifest.run->parent))
      return broken("parent", "not 32 lower-case hexadecimal digits");
    append_run(out, *manifest.run);
  }
  append_meta(out, manifest.meta);
  if (manifest.nested) {
    begin_member(out, "nested");
    out += "true";
  }
  begin_member(out, "features");
  out += R"({"required":[],"optional":)";
  append_texts(out, features_of(manifest));
  out += '}';
  CKPT_CHECK(append_layouts(out, manifest.layouts));
  begin_member(out, "sums");
  out += R"({"bytes":)";
  append_natural(out, manifest.sums_bytes);
  append_member(out, "xxh3", manifest.sums_hash.hex());
  out += '}';
  begin_member(out, "digests");
  append_pairs(out, manifest.digests, append_value);
  begin_member(out, "user");
  append_pairs(out, manifest.meta.user, append_value);
  append_findings(out, manifest.findings);
  CKPT_CHECK(append_aliases(out, manifest));
  append_extras(out, manifest);
  CKPT_CHECK(append_tensors(out, manifest));
  begin_member(out, "xxh3");
  out += '"';
  out += hash128(out).hex();
  out += "\"}\n";
  return out;
}

}  // namespace ckpt::universal
