#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>

#include "api/check.hpp"
#include "api/compare.hpp"
#include "api/verbs.hpp"
#include "convert/format.hpp"

namespace ckpt {
namespace {

/// Damage that opening finds is an answer of verify, not a failure of it.
bool is_damage(Errc code) {
  return code == Errc::corrupt || code == Errc::checksum || code == Errc::overlap || code == Errc::uncovered;
}

Finding as_damage(const Error& error) {
  return {.severity = Severity::damage, .text = error.message, .file = error.file, .tensor = error.tensor};
}

std::vector<std::uint32_t> all_tensors(const Map& map) {
  std::vector<std::uint32_t> out(map.tensors.size());
  for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (const std::uint64_t size : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

std::string type_difference(const Tensor& here, const Tensor& there) {
  std::string out;
  if (here.dtype != there.dtype)
    out = std::string(dtype_name(here.dtype)) + " here, " + std::string(dtype_name(there.dtype)) + " there";
  if (here.shape == there.shape) return out;
  if (!out.empty()) out += "; ";
  return out + "shape " + shape_text(here.shape) + " here, " + shape_text(there.shape) + " there";
}

class Verifier {
 public:
  Verifier(Session& session, const VerifyRequest& request) : session_(session), request_(request) {}

  Result<VerifyReport> run() {
    const auto start = std::chrono::steady_clock::now();
    report_.path = request_.path;
    auto outcome = steps();
    if (!outcome) {
      if (!is_damage(outcome.error().code)) return fail(std::move(outcome).error());
      report_.damage.push_back(as_damage(outcome.error()));
    }
    report_.ok =
        report_.damage.empty() && report_.only_here.empty() && report_.only_there.empty() && report_.different.empty();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  Result<> steps() {
    CKPT_TRY(const Source source,
             open_source(session_.io, request_.path, request_.from, {.metadata_limit = session_.memory_bytes}));
    const Map& map = source.map;
    report_.format = map.format;
    report_.variant = map.variant;
    report_.tensor_count = map.tensors.size();
    report_.file_count = map.files.size();
    for (const Finding& finding : map.findings) {
      if (finding.severity == Severity::incomplete) {
        Error error{.code = Errc::incomplete, .message = request_.path + ": verify: " + finding.text};
        error.file = finding.file;
        return fail(std::move(error));
      }
      (finding.severity == Severity::damage ? report_.damage : report_.notes).push_back(finding);
    }
    const std::vector<std::uint32_t> all = all_tensors(map);
    if (auto covered = check_coverage(map, all); !covered)
      return fail(with_file(std::move(covered).error(), source.root));
    report_.checked_by = "structure";
    if (source.format->hashes != nullptr) {
      CKPT_CHECK(stored_hashes(source));
    } else if (!request_.quick) {
      CKPT_CHECK(foreign(source));
    }
    if (!request_.against.empty()) CKPT_CHECK(against(source));
    return {};
  }

  Result<> stored_hashes(const Source& source) {
    CKPT_TRY(StoredHashes stored, source.format->hashes(session_.io, source.root));
    for (const Finding& finding : stored.findings)
      (finding.severity == Severity::damage ? report_.damage : report_.notes).push_back(finding);
    if (request_.quick) return {};
    CKPT_TRY(const LeafCheck check, check_leaves(session_, session_.comm, source.map, source.root,
                                                 std::move(stored.files), stored.leaves, "verify"));
    report_.leaf_count = check.leaves;
    report_.bytes = check.bytes;
    report_.checked_by = "XXH3-128 of every 4 MiB";
    report_.damage.insert(report_.damage.end(), check.damage.begin(), check.damage.end());
    return {};
  }

  /// A format without hashes: every tensor byte is read, with what checks the format has; masters against weights;
  /// replicas against each other.
  Result<> foreign(const Source& source) {
    const Map& map = source.map;
    std::vector<TensorPair> same;
    for (std::uint32_t i = 0; i < map.tensors.size(); ++i) same.push_back({i, i, map.tensors[i].dtype});
    CKPT_TRY(const ReadThrough read, read_through(session_, {map, source.root}, same, "verify"));
    report_.bytes = read.bytes;
    report_.crc_checked = read.crc_checked;
    report_.checked_by = read.crc_checked > 0 ? "structure and the CRC-32 of entries read whole"
                         : read.crc_unread
                             ? "structure; its CRC-32s span more than is read at once and were not compared"
                             : "structure; this checkpoint has no checksums";
    const Side all{map, source.root};
    const std::vector<TensorPair> masters = master_pairs(map);
    if (!masters.empty()) {
      CKPT_TRY(const auto bad, compare_tensors(session_, all, all, masters, "verify masters"));
      for (const std::size_t i : bad) {
        report_.damage.push_back({Severity::damage,
                                  "its fp32 master does not round to the stored weight",
                                  {},
                                  map.tensors[masters[i].left].name});
      }
    }
    CKPT_TRY(const std::size_t replicas, replica_count(map));
    const Map first = replica_view(map, 0);
    for (std::size_t n = 1; n < replicas; ++n) {
      const Map other = replica_view(map, n);
      CKPT_TRY(const auto bad,
               compare_tensors(session_, {first, source.root}, {other, source.root}, same, "verify replicas"));
      for (const std::size_t i : bad) {
        report_.damage.push_back(
            {Severity::damage, "replicas of one chunk differ", {}, map.tensors[same[i].left].name});
      }
    }
    return {};
  }

  Result<> against(const Source& source) {
    const auto of_other = [](Error error) {
      error.message = "--against: " + error.message;
      return fail(std::move(error));
    };
    auto opened = open_source(session_.io, request_.against, "", {.metadata_limit = session_.memory_bytes});
    if (!opened) return of_other(std::move(opened).error());
    const Source other = *std::move(opened);
    if (auto covered = check_coverage(other.map, all_tensors(other.map)); !covered)
      return of_other(with_file(std::move(covered).error(), other.root));
    std::unordered_map<std::string, std::uint32_t> there;
    for (std::uint32_t i = 0; i < other.map.tensors.size(); ++i) {
      if (other.map.tensors[i].role != Role::blob) there.emplace(other.map.tensors[i].name, i);
    }
    std::vector<TensorPair> pairs;
    for (std::uint32_t i = 0; i < source.map.tensors.size(); ++i) {
      const Tensor& tensor = source.map.tensors[i];
      if (tensor.role == Role::blob) continue;
      const auto found = there.find(tensor.name);
      if (found == there.end()) {
        report_.only_here.push_back(tensor.name);
        continue;
      }
      const Tensor& twin = other.map.tensors[found->second];
      if (twin.dtype != tensor.dtype || twin.shape != tensor.shape) {
        report_.different.push_back({tensor.name, type_difference(tensor, twin)});
      } else {
        pairs.push_back({i, found->second, tensor.dtype});
      }
      there.erase(found);
    }
    for (const auto& [name, index] : there) report_.only_there.push_back(name);
    std::sort(report_.only_there.begin(), report_.only_there.end());
    CKPT_TRY(const auto bad,
             compare_tensors(session_, {source.map, source.root}, {other.map, other.root}, pairs, "compare"));
    for (const std::size_t i : bad) report_.different.push_back({source.map.tensors[pairs[i].left].name, "values"});
    std::ranges::sort(report_.different, {}, &VerifyReport::Difference::name);
    report_.compared = pairs.size() - bad.size();
    return {};
  }

  Session& session_;
  const VerifyRequest& request_;
  VerifyReport report_;
};

}  // namespace

Result<VerifyReport> verify(Session& session, const VerifyRequest& request) {
  return Verifier(session, request).run();
}

}  // namespace ckpt
