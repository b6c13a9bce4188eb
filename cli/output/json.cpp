#include "cli/output/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/output/utf8.hpp"

namespace ckpt::cli {
namespace {

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

Json failure_json(const Failure& failure) {
  const Error& error = failure.error;
  Json out = {{"id", error_id(error.code)}, {"exit_code", exit_code(error.code)}};
  put_text(out, "message", error.message);
  if (!error.file.empty()) put_text(out, "file", error.file);
  if (error.offset) out["offset"] = *error.offset;
  if (!error.tensor.empty()) put_text(out, "tensor", error.tensor);
  if (!failure.effect.empty()) put_text(out, "effect", failure.effect);
  const std::string_view hint = error.hint.empty() ? explain(error.code).remedy : std::string_view(error.hint);
  put_text(out, "hint", hint);
  if (failure.rank >= 0) out["rank"] = failure.rank;
  if (!failure.node.empty()) put_text(out, "node", failure.node);
  return out;
}

Json texts(const std::vector<std::string>& all) {
  Json out = Json::array();
  for (const std::string& text : all) out.push_back(valid_utf8(text));
  return out;
}

Json optional_number(const std::optional<std::uint64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json optional_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = first_code_point(text).bytes;
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, bytes);
      text.remove_prefix(bytes);
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out.push_back(k <= have ? letters[group >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

void put_text(Json& object, const std::string& key, std::string_view text) {
  std::string valid = valid_utf8(text);
  const bool changed = valid != text;
  object[key] = std::move(valid);
  if (changed) object[key + "_b64"] = base64(text);
}

std::string_view level_name(VerifyLevel level) {
  switch (level) {
    case VerifyLevel::none:
      return "none";
    case VerifyLevel::read:
      return "read";
    case VerifyLevel::full:
      return "full";
  }
  return "read";
}

Json to_json(const Finding& finding) {
  Json out = {{"severity", severity_name(finding.severity)}};
  put_text(out, "text", finding.text);
  if (!finding.file.empty()) put_text(out, "file", finding.file);
  if (finding.offset) out["offset"] = *finding.offset;
  if (!finding.tensor.empty()) put_text(out, "tensor", finding.tensor);
  return out;
}

Json to_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& finding : findings) out.push_back(to_json(finding));
  return out;
}

Json to_json(const std::vector<std::pair<std::string, std::uint64_t>>& files) {
  Json out = Json::array();
  for (const auto& [path, bytes] : files) {
    Json file = Json::object();
    put_text(file, "path", path);
    file["bytes"] = bytes;
    out.push_back(std::move(file));
  }
  return out;
}

Json to_json(const ConvertReport& report, const ConvertRequest& request) {
  Json source = Json::object();
  put_text(source, "path", request.source);
  source["format"] = report.source_format;
  source["variant"] = optional_text(report.source_variant);
  source["chosen"] = optional_text(report.source_chosen);
  source["needed_bytes"] = report.source_bytes;
  source["read_bytes"] = report.read_bytes;
  Json target = Json::object();
  put_text(target, "path", report.target);
  target["format"] = report.target_format;
  target["id"] = optional_text(report.id);
  target["bytes"] = report.target_bytes;
  target["files"] = to_json(report.files);
  target["replaced"] = to_json(report.replaced);
  target["free_bytes_after"] = report.free_bytes_after;
  return {{"source", std::move(source)},
          {"target", std::move(target)},
          {"already_done", report.already_done},
          {"dry_run", report.dry_run},
          {"partial", report.partial},
          {"resumed_bytes", report.resumed_bytes},
          {"tensors", report.tensor_count},
          {"verify",
           {{"level", level_name(report.verified)},
            {"source_checksums", report.crc_checked},
            {"source_checksums_unread", report.crc_unread},
            {"source_hashes", report.hash_checked}}},
          {"casts", {{"overflowed", report.overflowed}, {"became_nan", report.became_nan}}},
          {"memory",
           {{"bound_bytes", report.memory_bound},
            {"planned_bytes", report.planned_memory},
            {"peak_bytes", report.peak_bytes},
            {"pages", optional_text(report.page_kind)}}},
          {"io", optional_text(report.io_name)},
          {"direct_io", report.io_name.empty() ? Json() : Json(report.direct)},
          {"elapsed_s", report.seconds},
          {"notes", to_json(report.notes)}};
}

Json to_json(const LoadReport& report, const LoadRequest& request) {
  const ConvertReport& conversion = report.conversion;
  Json source = Json::object();
  put_text(source, "path", request.source);
  source["format"] = conversion.source_format;
  source["variant"] = optional_text(conversion.source_variant);
  source["read_bytes"] = conversion.read_bytes;
  Json target = Json::object();
  put_text(target, "path", conversion.target);
  target["format"] = conversion.target_format;
  target["bytes"] = conversion.target_bytes;
  target["files"] = to_json(conversion.files);
  target["replaced"] = to_json(conversion.replaced);
  Json tensors = Json::array();
  for (const LoadedTensor& tensor : report.tensors) {
    Json one = Json::object();
    put_text(one, "name", tensor.name);
    one["slice"] = optional_text(tensor.slice);
    one["dtype"] = tensor.dtype;
    one["shape"] = tensor.shape;
    one["bytes"] = tensor.bytes;
    one["file"] = optional_text(tensor.file);
    tensors.push_back(std::move(one));
  }
  return {
      {"source", std::move(source)},     {"target", std::move(target)},       {"already_done", conversion.already_done},
      {"dry_run", conversion.dry_run},   {"partial", conversion.partial},     {"tensors", std::move(tensors)},
      {"elapsed_s", conversion.seconds}, {"notes", to_json(conversion.notes)}};
}

Json to_json(const VerifyReport& report, const VerifyRequest& request) {
  Json out = Json::object();
  put_text(out, "path", report.path.empty() ? request.path : report.path);
  out["format"] = report.format;
  out["variant"] = optional_text(report.variant);
  out["intact"] = report.ok;
  out["quick"] = request.quick;
  out["tensors"] = report.tensor_count;
  out["files"] = report.file_count;
  out["bytes"] = report.bytes;
  out["checked_by"] = report.checked_by;
  out["hashes_compared"] = report.leaf_count;
  out["source_checksums"] = report.crc_checked;
  out["source_checksums_unread"] = report.crc_unread;
  out["masters_compared"] = report.masters;
  out["tensors_with_copies"] = report.replicated;
  out["sample"] = nullptr;
  if (request.sample) out["sample"] = {{"share", request.sample->share}, {"seed", request.sample->seed}};
  out["not_finite"] = nullptr;
  if (report.finite_checked) {
    out["not_finite"] = Json::array();
    for (const NotFiniteTensor& tensor : report.not_finite)
      out["not_finite"].push_back(
          {{"name", valid_utf8(tensor.name)}, {"nan", tensor.nan}, {"infinite", tensor.infinite}});
  }
  out["elapsed_s"] = report.seconds;
  out["damage"] = to_json(report.damage);
  out["notes"] = to_json(report.notes);
  out["against"] = nullptr;
  if (!request.against.empty()) {
    Json against = Json::object();
    put_text(against, "path", request.against);
    against["equal"] = report.compared;
    against["different"] = Json::array();
    for (const auto& [name, reason] : report.different)
      against["different"].push_back({{"name", valid_utf8(name)}, {"reason", reason}});
    against["only_here"] = texts(report.only_here);
    against["only_there"] = texts(report.only_there);
    out["against"] = std::move(against);
  }
  return out;
}

Json to_json(const InspectReport& report, bool with_files) {
  Json out = Json::object();
  put_text(out, "path", report.path);
  put_text(out, "root", report.root);
  out["format"] = report.format;
  out["variant"] = optional_text(report.variant);
  out["chosen"] = optional_text(report.chosen);
  out["detected_from"] = optional_text(report.why);
  out["complete"] = report.complete;
  Json mesh = Json::object();
  for (const auto& [axis, degree] : report.meta.mesh) mesh[valid_utf8(axis)] = degree;
  Json user = Json::object();
  for (const auto& [key, value] : report.meta.user) user[valid_utf8(key)] = valid_utf8(value);
  out["meta"] = {{"step", optional_number(report.meta.step)},
                 {"world_size", optional_number(report.meta.world_size)},
                 {"mesh", std::move(mesh)},
                 {"framework", optional_text(report.meta.framework)},
                 {"framework_version", optional_text(report.meta.framework_version)},
                 {"user", std::move(user)}};
  out["parameters"] = report.parameter_count;
  out["parameter_tensors"] = report.parameter_tensor_count;
  out["tensors"] = report.tensor_count;
  out["objects"] = report.object_count;
  Json parts = Json::array();
  for (const InspectReport::Part& part : report.parts)
    parts.push_back({{"name", part.name}, {"tensors", part.tensors}, {"bytes", part.bytes}});
  out["parts"] = std::move(parts);
  Json aliases = Json::array();
  for (const Alias& alias : report.aliases)
    aliases.push_back({{"name", valid_utf8(alias.name)}, {"target", valid_utf8(alias.target)}});
  out["aliases"] = std::move(aliases);
  out["extras"] = Json::array();
  for (const std::string& extra : report.extras) out["extras"].push_back(valid_utf8(extra));
  out["file_count"] = report.file_count;
  out["file_bytes"] = report.file_bytes;
  if (with_files) out["files"] = to_json(report.files);
  out["can_become"] = texts(report.can_become);
  out["smallest_memory_bytes"] = report.smallest_memory;
  out["stores_hashes"] = report.stores_hashes;
  out["findings"] = to_json(report.findings);
  return out;
}

Json to_json(const ListReport& report, const std::string& path) {
  Json out = Json::object();
  put_text(out, "path", path);
  out["format"] = report.format;
  std::uint64_t total = 0;
  Json tensors = Json::array();
  for (const ListedTensor& tensor : report.tensors) {
    total += tensor.alias_of.empty() ? tensor.bytes : 0;
    tensors.push_back({{"name", valid_utf8(tensor.name)},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes},
                       {"role", tensor.role},
                       {"parameter", optional_text(tensor.parameter)},
                       {"slot", optional_text(tensor.slot)},
                       {"alias_of", optional_text(tensor.alias_of)}});
  }
  out["total_bytes"] = total;
  out["tensors"] = std::move(tensors);
  out["findings"] = to_json(report.findings);
  return out;
}

std::string without_hidden(const std::string& dumped) {
  if (is_ascii(dumped) && dumped.find('\x7f') == std::string::npos) return dumped;
  std::string out;
  for (std::string_view rest = dumped; !rest.empty();) {
    const CodePoint one = first_code_point(rest);
    const std::string_view bytes = rest.substr(0, std::max<std::size_t>(1, one.bytes));
    rest.remove_prefix(bytes.size());
    if (one.value < 0x7f || !is_hidden(one.value)) {
      out += bytes;
    } else if (one.value < 0x10000) {
      out += fmt::format("\\u{:04x}", one.value);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (one.value >> 10), 0xdc00 + (one.value & 0x3ff));
    }
  }
  return out;
}

namespace {

std::string shown(const Json& json) {
  return without_hidden(json.dump(2, ' ', false, Json::error_handler_t::replace));
}

constexpr std::string_view kRowIndent = "\n      ";  // of the members of an array of data
constexpr std::string_view kArrayIndent = "\n    ";

}  // namespace

void Rows::add(const Json& row) {
  std::string& out = texts_.emplace_back(kRowIndent);
  const std::string text = shown(row);
  // A line break inside text is escaped: each of these is one of the layout.
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (begin != 0) out += kRowIndent;
    out.append(text, begin, end - begin);
  }
}

std::string Rows::shown_in(Json document) const {
  if (texts_.empty()) return shown(document);
  document["data"][member_] = Json::array();
  const std::string around = shown(document);
  // The only line break and so many blanks before that name: deeper members stand further in, others further out.
  const std::string place = fmt::format("{}{}: []", kArrayIndent, Json(member_).dump());
  const std::size_t end = around.find(place) + place.size() - 1;
  std::size_t bytes = around.size() + kArrayIndent.size() + 1;  // and the line break of who asked
  for (const std::string& text : texts_) bytes += text.size() + 1;
  std::string out;
  out.reserve(bytes);
  out.append(around, 0, end);
  for (const std::string& text : texts_) {
    if (&text != &texts_.front()) out += ',';
    out += text;
  }
  out += kArrayIndent;
  out.append(around, end);
  return out;
}

std::string document(std::string_view verb, const Answer& answer) {
  Json errors = Json::array();
  for (const Failure& failure : answer.failures) errors.push_back(failure_json(failure));
  Json whole = {{"schema", fmt::format("ckpt.{}/1", verb)},
                {"ok", answer.exit_code == 0},
                {"exit_code", answer.exit_code},
                {"data", answer.data},
                {"warnings", to_json(answer.warnings)},
                {"errors", std::move(errors)}};
  return answer.rows.shown_in(std::move(whole)) + "\n";
}

}  // namespace ckpt::cli
