#include "cli/report/document.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/output/json.hpp"

namespace ckpt::cli {
namespace {

void put_failure(json::Writer& out, const Failure& failure) {
  const Error& error = failure.error;
  out.begin_object().member("id", error_id(error.code)).member("exit_code", exit_code(error.code));
  put_text(out, "message", error.message);
  if (!error.file.empty()) put_text(out, "file", error.file);
  if (error.offset) out.member("offset", *error.offset);
  if (!error.tensor.empty()) put_text(out, "tensor", error.tensor);
  if (!failure.effect.empty()) put_text(out, "effect", failure.effect);
  const std::string_view hint = error.hint.empty() ? explain(error.code).remedy : std::string_view(error.hint);
  put_text(out, "hint", hint);
  if (failure.rank >= 0) out.member("rank", failure.rank);
  if (!failure.node.empty()) put_text(out, "node", failure.node);
  out.end_object();
}

}  // namespace

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

void put(json::Writer& out, const Finding& finding) {
  out.begin_object().member("severity", severity_name(finding.severity));
  put_text(out, "text", finding.text);
  if (!finding.file.empty()) put_text(out, "file", finding.file);
  if (finding.offset) out.member("offset", *finding.offset);
  if (!finding.tensor.empty()) put_text(out, "tensor", finding.tensor);
  out.end_object();
}

void put(json::Writer& out, const std::vector<Finding>& findings) {
  out.begin_array();
  for (const Finding& finding : findings) put(out, finding);
  out.end_array();
}

/// The files of `checkpoint`; one that is itself a file goes by its name.
void put(json::Writer& out, const std::vector<std::pair<std::string, std::uint64_t>>& files,
         std::string_view checkpoint) {
  out.begin_array();
  for (const auto& [path, bytes] : files) {
    out.begin_object();
    put_text(out, "path", path.empty() ? base_name(checkpoint) : path);
    out.member("bytes", bytes).end_object();
  }
  out.end_array();
}

void put(json::Writer& out, const ConvertReport& report, const ConvertRequest& request) {
  out.begin_object().key("source").begin_object();
  put_text(out, "path", request.source);
  out.member("format", report.source_format);
  put_optional(out, "variant", report.source_variant);
  put_optional(out, "chosen", report.source_chosen);
  out.member("needed_bytes", report.source_bytes).member("read_bytes", report.read_bytes).end_object();
  out.key("target").begin_object();
  put_text(out, "path", report.target);
  out.member("format", report.target_format);
  put_optional(out, "id", report.id);
  out.member("bytes", report.target_bytes);
  put(out.key("files"), report.files, report.target);
  put(out.key("replaced"), report.replaced, report.target);
  out.member("referenced_files", report.referenced_files).member("referenced_bytes", report.referenced_bytes);
  out.member("free_bytes_after", report.free_bytes_after).end_object();
  out.member("already_done", report.already_done).member("dry_run", report.dry_run).member("partial", report.partial);
  out.member("resumed_bytes", report.resumed_bytes).member("tensors", report.tensor_count);
  out.member("ranks", report.ranks);
  out.key("verify").begin_object().member("level", level_name(report.verified));
  out.member("source_checksums", report.crc_checked).member("source_checksums_unread", report.crc_unread);
  out.member("source_hashes", report.hash_checked).end_object();
  out.key("casts").begin_object().member("overflowed", report.overflowed).member("became_nan", report.became_nan);
  out.end_object().key("memory").begin_object().member("bound_bytes", report.memory_bound);
  out.member("planned_bytes", report.planned_memory).member("peak_bytes", report.peak_bytes);
  put_optional(out, "pages", report.page_kind);
  out.end_object();
  put_optional(out, "io", report.io_name);
  out.member("direct_io", report.io_name.empty() ? std::nullopt : std::optional(report.direct));
  out.member("elapsed_s", report.seconds);
  out.key("times").begin_object().member("plan_s", report.times.plan_s).member("copy_s", report.times.copy_s);
  out.member("verify_s", report.times.verify_s).member("commit_s", report.times.commit_s).end_object();
  put(out.key("notes"), report.notes);
  out.end_object();
}

void put(json::Writer& out, const LoadReport& report, const LoadRequest& request) {
  const ConvertReport& conversion = report.conversion;
  out.begin_object().key("source").begin_object();
  put_text(out, "path", request.source);
  out.member("format", conversion.source_format);
  put_optional(out, "variant", conversion.source_variant);
  out.member("read_bytes", conversion.read_bytes).end_object();
  out.key("target").begin_object();
  put_text(out, "path", conversion.target);
  out.member("format", conversion.target_format).member("bytes", conversion.target_bytes);
  put(out.key("files"), conversion.files, conversion.target);
  put(out.key("replaced"), conversion.replaced, conversion.target);
  out.end_object().member("already_done", conversion.already_done).member("dry_run", conversion.dry_run);
  out.member("partial", conversion.partial).key("tensors").begin_array();
  for (const LoadedTensor& tensor : report.tensors) {
    out.begin_object();
    put_text(out, "name", tensor.name);
    put_optional(out, "slice", tensor.slice);
    out.member("dtype", tensor.dtype).member("shape", tensor.shape).member("bytes", tensor.bytes);
    put_optional(out, "file", tensor.file);
    out.end_object();
  }
  out.end_array().member("elapsed_s", conversion.seconds);
  put(out.key("notes"), conversion.notes);
  out.end_object();
}

void put(json::Writer& out, const VerifyReport& report, const VerifyRequest& request) {
  out.begin_object();
  put_text(out, "path", report.path.empty() ? request.path : report.path);
  out.member("format", report.format);
  put_optional(out, "variant", report.variant);
  out.member("intact", report.ok).member("quick", request.quick).member("tensors", report.tensor_count);
  out.member("files", report.file_count).member("referenced_files", report.referenced_files);
  out.member("bytes", report.bytes).member("checked_by", report.checked_by);
  out.member("hashes_compared", report.leaf_count).member("source_checksums", report.crc_checked);
  out.member("source_checksums_unread", report.crc_unread).member("masters_compared", report.masters);
  out.member("tensors_with_copies", report.replicated).key("sample");
  if (request.sample) {
    out.begin_object().member("share", request.sample->share).member("seed", request.sample->seed).end_object();
  } else {
    out.value(nullptr);
  }
  out.key("not_finite");
  if (report.finite_checked) {
    out.begin_array();
    for (const NotFiniteTensor& tensor : report.not_finite) {
      out.begin_object().member("name", tensor.name).member("nan", tensor.nan).member("infinite", tensor.infinite);
      out.end_object();
    }
    out.end_array();
  } else {
    out.value(nullptr);
  }
  out.member("elapsed_s", report.seconds);
  put(out.key("damage"), report.damage);
  put(out.key("notes"), report.notes);
  out.key("against");
  if (request.against.empty()) {
    out.value(nullptr).end_object();
    return;
  }
  out.begin_object();
  put_text(out, "path", request.against);
  out.member("equal", report.compared).member("within_tolerance", report.within).key("different").begin_array();
  for (const auto& [name, reason, values] : report.different) {
    out.begin_object().member("name", name).member("reason", reason).key("values");
    if (values) {
      out.begin_object().member("elements", values->elements).member("differing", values->differing);
      out.member("one_is_nan", values->one_is_nan).member("max_absolute", values->max_absolute);
      out.member("max_relative", values->max_relative).member("relative_norm", values->norm()).end_object();
    } else {
      out.value(nullptr);
    }
    out.end_object();
  }
  out.end_array().member("only_here", report.only_here).member("only_there", report.only_there).end_object();
  out.end_object();
}

void put(json::Writer& out, const InspectReport& report, bool with_files) {
  out.begin_object();
  put_text(out, "path", report.path);
  put_text(out, "root", report.root);
  out.member("format", report.format);
  put_optional(out, "variant", report.variant);
  put_optional(out, "chosen", report.chosen);
  put_optional(out, "detected_from", report.why);
  out.member("complete", report.complete).member("readable", report.is_readable);
  put_optional(out, "hint", report.hint);
  out.key("facts").begin_object();
  for (const InspectReport::Fact& fact : report.facts) put_text(out, fact.name, fact.text);
  out.end_object();
  out.key("meta").begin_object().member("step", report.meta.step).member("world_size", report.meta.world_size);
  out.key("mesh").begin_object();
  for (const auto& [axis, degree] : report.meta.mesh) out.member(axis, degree);
  out.end_object();
  put_optional(out, "framework", report.meta.framework);
  put_optional(out, "framework_version", report.meta.framework_version);
  out.key("user").begin_object();
  for (const auto& [key, value] : report.meta.user) out.member(key, value);
  out.end_object().end_object();
  out.member("parameters", report.parameter_count).member("parameter_tensors", report.parameter_tensor_count);
  out.member("tensors", report.tensor_count).member("objects", report.object_count).key("parts").begin_array();
  for (const InspectReport::Part& part : report.parts) {
    out.begin_object().member("name", part.name).member("tensors", part.tensors).member("bytes", part.bytes);
    out.end_object();
  }
  out.end_array().key("aliases").begin_array();
  for (const Alias& alias : report.aliases)
    out.begin_object().member("name", alias.name).member("target", alias.target).end_object();
  out.end_array()
      .member("extras", report.extras)
      .member("file_count", report.file_count)
      .member("file_bytes", report.file_bytes)
      .member("referenced_files", report.referenced_files)
      .member("referenced_bytes", report.referenced_bytes);
  if (with_files) put(out.key("files"), report.files, report.path);
  out.member("can_become", report.can_become).member("smallest_memory_bytes", report.smallest_memory);
  out.member("stores_hashes", report.stores_hashes).member("stores_checksums", report.stores_checksums);
  put(out.key("findings"), report.findings);
  out.end_object();
}

void put(json::Writer& out, const ListReport& report, const std::string& path) {
  std::uint64_t total = 0;
  for (const ListedTensor& tensor : report.tensors) total += tensor.alias_of.empty() ? tensor.bytes : 0;
  out.begin_object();
  put_text(out, "path", path);
  out.member("format", report.format).member("total_bytes", total).key("tensors").begin_array();
  for (const ListedTensor& tensor : report.tensors) {
    out.begin_object().member("name", tensor.name).member("dtype", tensor.dtype).member("shape", tensor.shape);
    out.member("bytes", tensor.bytes).member("role", tensor.role);
    put_optional(out, "parameter", tensor.parameter);
    put_optional(out, "slot", tensor.slot);
    put_optional(out, "alias_of", tensor.alias_of);
    out.end_object();
  }
  out.end_array().key("objects").begin_array();
  for (const ListedObject& object : report.objects) {
    out.begin_object();
    put_text(out, "name", object.name);
    put_text(out, "value", object.text);
    out.end_object();
  }
  out.end_array();
  put(out.key("findings"), report.findings);
  out.end_object();
}

std::string document(std::string_view verb, Answer& answer) {
  std::string data = std::exchange(answer.data, {});
  std::string text;
  json::Writer out = document_writer(text);
  out.begin_object().member("schema", fmt::format("ckpt.{}/1", verb)).member("ok", answer.exit_code == 0);
  out.member("exit_code", answer.exit_code).key("data").raw(data.empty() ? "null" : "");
  const std::size_t head = text.size();
  put(out.key("warnings"), answer.warnings);
  out.key("errors").begin_array();
  for (const Failure& failure : answer.failures) put_failure(out, failure);
  out.end_array().end_object();
  text += '\n';
  // The data may be long: the rest is put around it.
  data.reserve(data.size() + text.size());
  data.insert(0, text, 0, head);
  data.append(text, head);
  return data;
}

}  // namespace ckpt::cli
