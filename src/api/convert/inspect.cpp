#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>

#include "api/convert/inspect_unread.hpp"
#include "api/convert/mark_facts.hpp"
#include "api/convert/model_facts.hpp"
#include "api/convert/pool.hpp"
#include "api/convert/references.hpp"
#include "api/convert/traps.hpp"
#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "engine/io/real_path.hpp"
#include "engine/run/checks.hpp"
#include "engine/run/decompress.hpp"
#include "format/checked.hpp"
#include "format/model/value_text.hpp"

namespace ckpt {
namespace {

// Memory of the program itself, besides metadata and the smallest pool.
constexpr std::uint64_t kProgramBytes = std::uint64_t{24} << 20;

std::string part_name(const Tensor& tensor) {
  std::string dtype(tensor.true_dtype.empty() ? dtype_name(tensor.dtype) : std::string_view(tensor.true_dtype));
  std::transform(dtype.begin(), dtype.end(), dtype.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (tensor.role == Role::slot) return (tensor.slot.empty() ? "optimizer" : tensor.slot) + " " + dtype;
  return std::string(role_name(tensor.role)) + " " + dtype;
}

/// Checkpoints that a virtual one refers to and that do not know it.
std::vector<std::string> unprotected_by(Io& io, const Source& source) {
  std::vector<std::string> files;
  for (std::uint32_t i = 0; i < source.map.files.size(); ++i) {
    if (is_referenced(source.map.files[i])) files.push_back(path_of(source.map, i, source.root));
  }
  return files.empty() ? files : find_unprotected(io, files, real_path(source.root).value_or(source.root));
}

/// Whether the first tensor that has elements has a CRC-32; a format has them for all or none.
Result<bool> has_checksums(const Map& map) {
  bool out = false;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    if (volume(map.tensors[i].shape) == 0) continue;
    CKPT_CHECK(map.index->chunks(i, {0, 1}, [&](const PlacedChunk& placed) -> Result<> {
      out = out || placed.where.crc.has_value();
      return {};
    }));
    break;
  }
  return out;
}

}  // namespace

Result<InspectReport> inspect(Session& session, const std::string& path, const std::string& from) {
  auto opened = open_source(session.io, path, from,
                            {.metadata_limit = session.memory_bytes,
                             .rules = session.rules,
                             .stop = session.stop,
                             .find_beside = true,
                             .saved_trees = true,
                             .report_references = true});
  if (!opened) {
    if (opened.error().code != Errc::unsupported) return fail(std::move(opened).error());
    auto unread = inspect_unread(session, path, from);
    if (unread && unread->has_value()) return **std::move(unread);
    return fail(std::move(opened).error());
  }
  const Source source = *std::move(opened);
  const Map& map = source.map;
  InspectReport report;
  report.path = path;
  report.root = source.root;
  report.format = map.format;
  report.variant = map.variant;
  report.chosen = map.chosen;
  report.why = source.why;
  report.meta = map.meta;
  report.tensor_count = map.tensors.size() - map.extras.size();
  report.extras = source.settings;
  std::vector<bool> is_extra(map.tensors.size(), false);
  for (const Extra& extra : map.extras) {
    report.extras.push_back(extra.path);
    is_extra[extra.tensor] = true;
  }
  report.object_count = map.objects.size();
  for (const MapFile& file : map.files) {
    if (is_temporary(file)) continue;
    if (is_referenced(file)) {
      ++report.referenced_files;
      report.referenced_bytes += file.bytes;
      report.files.emplace_back(file.path.empty() ? file.root : join_path(file.root, file.path), file.bytes);
      continue;
    }
    ++report.file_count;
    report.file_bytes += file.bytes;
    report.files.emplace_back(file.path, file.bytes);
  }
  std::unordered_map<std::string, std::size_t> part_at;  // index of InspectReport::parts
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    if (is_extra[i]) continue;
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    if (tensor.role == Role::param) {
      report.parameter_count += volume(tensor.shape);
      ++report.parameter_tensor_count;
    }
    const auto [part, is_new] = part_at.emplace(part_name(tensor), report.parts.size());
    if (is_new) report.parts.push_back({.name = part->first});
    ++report.parts[part->second].tensors;
    report.parts[part->second].bytes += bytes;
  }
  report.aliases = map.aliases;
  report.facts = model_facts(session.io, source);
  std::ranges::move(mark_facts(session.io, source), std::back_inserter(report.facts));
  for (const Format& format : formats()) {
    if (format.writer && (format.writer->fits == nullptr || format.writer->fits(map)))
      report.can_become.emplace_back(format.name);
  }
  const std::uint64_t decoding = map.compressed ? kDecodeBytes : 0;
  report.smallest_memory = round_up(
      std::max(2 * smallest_pool_bytes(1), resident_bytes() + smallest_pool_bytes(1) + decoding + kProgramBytes),
      1 << 20);
  report.findings = map.findings;
  for (const std::string& holder : unprotected_by(session.io, source))
    report.findings.push_back(
        {.severity = Severity::warning,
         .text = holder + " has no mark of this checkpoint, so 'ckpt prune' may delete it: convert it again",
         .file = holder});
  const std::vector<Finding> unexpected = traps(map);
  report.findings.insert(report.findings.end(), unexpected.begin(), unexpected.end());
  CKPT_TRY(report.stores_checksums, has_checksums(map));
  report.stores_hashes = source.format->hashes != nullptr && report.referenced_files == 0;
  report.complete = std::none_of(map.findings.begin(), map.findings.end(),
                                 [](const Finding& f) { return f.severity == Severity::incomplete; });
  return report;
}

Result<ListReport> list_tensors(Session& session, const std::string& path, const std::string& from) {
  CKPT_TRY(
      const Source source,
      open_source(
          session.io, path, from,
          {.metadata_limit = session.memory_bytes, .rules = session.rules, .stop = session.stop, .saved_trees = true}));
  ListReport report{.format = source.map.format};
  for (const Tensor& tensor : source.map.tensors) {
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    report.tensors.push_back(
        {.name = tensor.name,
         .dtype = tensor.true_dtype.empty() ? std::string(dtype_name(tensor.dtype)) : tensor.true_dtype,
         .shape = tensor.shape,
         .bytes = bytes,
         .role = std::string(role_name(tensor.role)),
         .parameter = tensor.parameter,
         .slot = tensor.slot});
  }
  for (const Alias& alias : source.map.aliases) {
    report.tensors.push_back({.name = alias.name, .role = "alias", .alias_of = alias.target});
  }
  for (const NamedObject& object : source.map.objects)
    report.objects.push_back({.name = object.name, .text = value_text(object.value, kListedValueBytes)});
  report.findings = source.map.findings;
  return report;
}

Result<std::vector<std::string>> tensor_names(Io& io, const std::string& path, const std::string& from) {
  CKPT_TRY(const Source source, open_source(io, path, from, {.lease = false, .saved_trees = true}));
  std::vector<std::string> out;
  for (const Tensor& tensor : source.map.tensors) out.push_back(tensor.name);
  for (const Alias& alias : source.map.aliases) out.push_back(alias.name);
  return out;
}

std::vector<FormatInfo> known_formats() {
  std::vector<FormatInfo> out;
  for (const Format& format : formats()) {
    out.push_back({std::string(format.name),
                   std::string(format.summary),
                   format.reader.has_value(),
                   format.writer.has_value(),
                   format.writer && format.writer->for_trainers,
                   std::string(format.parts_writer ? format.parts_writer->name : ""),
                   {format.synonyms.begin(), format.synonyms.end()}});
  }
  return out;
}

}  // namespace ckpt
