#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "api/convert/against.hpp"
#include "api/convert/check.hpp"
#include "api/convert/file_digests.hpp"
#include "api/convert/source_check.hpp"
#include "api/verbs.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "convert/detection.hpp"
#include "convert/open_source.hpp"
#include "format/checked.hpp"
#include "format/model/finding_error.hpp"
#include "format/text/error_context.hpp"

namespace ckpt {
namespace {

/// Damage that opening finds is an answer of verify, not a failure of it.
bool is_damage(Errc code) {
  return code == Errc::corrupt || code == Errc::checksum || code == Errc::overlap || code == Errc::uncovered;
}

Finding as_damage(const Error& error) {
  return {.severity = Severity::damage,
          .text = error.message,
          .file = error.file,
          .tensor = error.tensor,
          .offset = error.offset};
}

std::vector<std::uint32_t> all_tensors(const Map& map) {
  std::vector<std::uint32_t> out(map.tensors.size());
  for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

class Verifier {
 public:
  Verifier(Session& session, const VerifyRequest& request) : session_(session), request_(request) {}

  Result<VerifyReport> run() {
    const auto start = std::chrono::steady_clock::now();
    report_.path = request_.path;
    auto outcome = steps();
    if (!outcome) {
      if (other_failed_ || !is_damage(outcome.error().code)) return fail(std::move(outcome).error());
      report_.damage.push_back(as_damage(outcome.error()));
    }
    report_.ok = report_.damage.empty() && report_.not_finite.empty() && report_.only_here.empty() &&
                 report_.only_there.empty() && report_.different.empty();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  Result<> steps() {
    auto opened = open_source(session_.io, request_.path, request_.from,
                              {.metadata_limit = session_.memory_bytes,
                               .rules = request_.against.empty() ? session_.rules : nullptr,
                               .stop = session_.stop,
                               .find_beside = !request_.quick,
                               .saved_trees = !request_.against.empty()});
    if (!opened) return unread(std::move(opened).error());
    const Source source = *std::move(opened);
    auto checked = check(source);
    // Damage found in a file that has been replaced since does not count.
    if (checked || is_damage(checked.error().code)) CKPT_CHECK(source.check_unchanged());
    return checked;
  }

  Result<> check(const Source& source) {
    const Map& map = source.map;
    report_.format = map.format;
    report_.variant = map.variant;
    report_.tensor_count = map.tensors.size() - map.extras.size();
    report_.file_count = static_cast<std::size_t>(std::ranges::count_if(map.files, std::not_fn(is_temporary)));
    for (const Finding& finding : map.findings) {
      if (finding.severity == Severity::incomplete) return fail(as_error(finding, request_.path, Errc::incomplete));
      (finding.severity == Severity::damage ? report_.damage : report_.notes).push_back(finding);
    }
    if (map.tensors.empty() && map.files.empty() && source.format->hashes == nullptr)
      return fail({.code = Errc::unsupported,
                   .message = fmt::format("{}: no tensors found (read as {})", request_.path, map.format),
                   .file = request_.path,
                   .hint = fmt::format("check --from; 'ckpt inspect {}' shows what it holds", request_.path)});
    const std::vector<std::uint32_t> all = all_tensors(map);
    if (auto covered = check_coverage(map, all); !covered)
      return fail(with_file(std::move(covered).error(), source.root));
    report_.checked_by = "structure";
    report_.referenced_files = static_cast<std::uint64_t>(std::ranges::count_if(map.files, is_referenced));
    report_.file_count -= report_.referenced_files;
    if (report_.referenced_files != 0) report_.checked_by += references_text();
    if (source.format->hashes != nullptr) CKPT_CHECK(stored_hashes(source));
    note_marks(source);
    if (source.format->digests != nullptr && !request_.quick) CKPT_CHECK(stated_digests(source));
    if (!request_.quick) CKPT_CHECK(values(source));
    if (!request_.against.empty()) CKPT_CHECK(against(source));
    return {};
  }

  /// Marks are separate from the data: a damaged one leaves the checkpoint complete, and keeps it from being deleted.
  void note_marks(const Source& source) {
    const auto info = session_.io.stat(source.root);
    if (!info || info->kind != FileInfo::Kind::directory) return;
    const std::string marks = catalog::marks_path(source.root, source.format->hashes == nullptr);
    std::string unreadable = catalog::read_marks(session_.io, marks).unreadable;
    if (unreadable.empty()) return;
    report_.notes.push_back({.severity = Severity::warning,
                             .text = "unreadable mark (the checkpoint cannot be deleted): " + unreadable,
                             .file = marks});
  }

  /// For a format that is only recognised, a quick check can still show whether its files exist.
  Result<> unread(Error error) {
    if (error.code != Errc::unsupported || !request_.quick || !request_.against.empty()) return fail(std::move(error));
    CKPT_TRY(const std::optional<UnreadSummary> seen, summarize_unread(session_.io, request_.path, request_.from));
    if (!seen) return fail(std::move(error));
    report_.unread = true;
    report_.format = seen->format->name;
    report_.file_count = seen->file_count;
    report_.checked_by = "names and sizes";
    report_.notes.push_back(
        {.text = fmt::format("{}: reading is not supported; only the presence of its files was checked",
                             seen->format->name)});
    return {};
  }

  Result<> stored_hashes(const Source& source) {
    CKPT_TRY(StoredHashes stored, source.format->hashes(*source.io, source.root));
    for (const Finding& finding : stored.findings)
      (finding.severity == Severity::damage ? report_.damage : report_.notes).push_back(finding);
    if (request_.quick) return {};
    const std::uint64_t leaves = stored.leaves.size();
    if (request_.sample) take_sample(stored);
    CKPT_TRY(const LeafCheck check, check_leaves(session_, session_.comm, source.map, source.root,
                                                 std::move(stored.files), stored.leaves, "verify"));
    report_.leaf_count = check.leaves;
    report_.bytes = check.bytes;
    report_.checked_by = "XXH3-128 of " + looked_at(check.leaves, leaves);
    report_.damage.insert(report_.damage.end(), check.damage.begin(), check.damage.end());
    return {};
  }

  /// Leaves of the stored hashes, each as a separate file of the plan.
  void take_sample(StoredHashes& stored) const {
    const std::vector<bool> chosen = choose_sample(*request_.sample, stored.leaves.size());
    std::vector<TargetFile> files;
    std::vector<Hash128> hashes;
    std::size_t leaf = 0;
    for (const TargetFile& file : stored.files) {
      for (std::uint64_t begin = 0; begin < file.bytes; begin += kLeafBytes, ++leaf) {
        if (!chosen[leaf]) continue;
        const std::uint64_t bytes = std::min(kLeafBytes, file.bytes - begin);
        Placement placement = file.placements.front();
        placement.bytes = bytes;
        placement.raw_offset = begin;
        files.push_back({.path = file.path, .bytes = bytes, .placements = {std::move(placement)}});
        hashes.push_back(stored.leaves[leaf]);
      }
    }
    stored.files = std::move(files);
    stored.leaves = std::move(hashes);
  }

  /// Digests of whole files; a sample takes its share of the files.
  Result<> stated_digests(const Source& source) {
    CKPT_TRY(std::vector<FileDigest> digests, source.format->digests(source.names_io(), source.names_root()));
    if (digests.empty()) return {};
    if (request_.sample) {
      const std::vector<bool> chosen = choose_sample(*request_.sample, digests.size());
      std::vector<FileDigest> some;
      for (std::size_t i = 0; i < digests.size(); ++i)
        if (chosen[i]) some.push_back(std::move(digests[i]));
      digests = std::move(some);
    }
    CKPT_TRY(const DigestCheck check,
             check_digests(session_, source.names_io(), source.names_root(), digests, "verify"));
    digests_checked_ = check.files;
    report_.damage.insert(report_.damage.end(), check.damage.begin(), check.damage.end());
    return {};
  }

  std::string looked_at(std::uint64_t leaves, std::uint64_t all) const {
    if (!request_.sample) return "every 4 MiB";
    return std::to_string(leaves) + " of " + std::to_string(all) + " leaves of 4 MiB, seed " +
           std::to_string(request_.sample->seed);
  }

  /// Checks of values against each other. Hashes show every byte that changed since it was written; only comparing
  /// copies shows whether they were equal then.
  Result<> values(const Source& source) {
    const bool hashed = source.format->hashes != nullptr && report_.referenced_files == 0;
    const SourceCheckRequest wanted{.everything = !hashed || request_.finite,
                                    .masters = !hashed,
                                    .finite = request_.finite,
                                    .sample = request_.sample};
    CKPT_TRY(const SourceCheck check, check_source(session_, source.map, source.root, wanted, "verify"));
    report_.crc_checked = check.crc_checked;
    report_.crc_unread = check.crc_unread;
    report_.without_crc = hashed ? 0 : check.without_crc;
    report_.masters = check.masters;
    report_.replicated = check.replicated;
    report_.damage.insert(report_.damage.end(), check.damage.begin(), check.damage.end());
    report_.finite_checked = request_.finite;
    report_.not_finite = check.not_finite;
    if (hashed) {
      if (check.replicated > 0) report_.checked_by += copies_text(check);
      return {};
    }
    report_.bytes = check.bytes;
    report_.checked_by = words(check);
    return {};
  }

  /// The only check of bytes that no hash of this checkpoint covers.
  std::string references_text() const {
    const std::uint64_t files = report_.referenced_files;
    return fmt::format(", size, time and first 64 KiB of {} that it refers to",
                       files == 1 ? "the file" : fmt::format("{} files", files));
  }

  static std::string copies_text(const SourceCheck& check) {
    return ", all copies of " + std::to_string(check.replicated) + (check.replicated == 1 ? " tensor" : " tensors");
  }

  /// "structure, CRC-32s, 10 masters against their weights": the basis of the verdict.
  std::string words(const SourceCheck& check) const {
    std::string out = "structure";
    if (report_.referenced_files != 0) out += references_text();
    if (digests_checked_ > 0)
      out += fmt::format(", SHA-256 of {} {}", digests_checked_, digests_checked_ == 1 ? "file" : "files");
    if (request_.sample) out += ", " + looked_at(check.leaves_checked, check.leaves);
    if (check.crc_checked + check.crc_unread > 0) out += ", CRC-32";
    if (check.crc_unread > 0) out += " (" + std::to_string(check.crc_unread) + " partly read, not compared)";
    if (check.crc_checked > 0 && check.without_crc > 0)
      out += fmt::format(" (none for {} of {} tensors)", check.without_crc, report_.tensor_count);
    if (check.masters > 0) out += ", " + std::to_string(check.masters) + " masters against their weights";
    if (check.replicated > 0) out += copies_text(check);
    if (digests_checked_ + check.crc_checked + check.crc_unread == 0) out += "; this checkpoint has no checksums";
    return out;
  }

  tl::unexpected<Error> of_other(Error error) {
    other_failed_ = true;
    return fail(std::move(error));
  }

  Result<> against(const Source& source) {
    auto opened = open_source(
        session_.io, request_.against, "",
        {.metadata_limit = session_.memory_bytes, .rules = session_.rules, .stop = session_.stop, .saved_trees = true});
    if (!opened) return of_other(std::move(opened).error());
    const Source other = *std::move(opened);
    if (auto covered = check_coverage(other.map, all_tensors(other.map)); !covered)
      return of_other(with_file(std::move(covered).error(), other.root));
    auto compared = compare_checkpoints(session_, source, other, request_, report_);
    if (auto same = other.check_unchanged(); compared && !same) return of_other(std::move(same).error());
    // All of this one has been read before.
    if (!compared && !request_.quick && !request_.sample) return of_other(std::move(compared).error());
    return compared;
  }

  Session& session_;
  const VerifyRequest& request_;
  VerifyReport report_;
  bool other_failed_ = false;  ///< the error is of the checkpoint to compare with
  std::uint64_t digests_checked_ = 0;
};

}  // namespace

Result<VerifyReport> verify(Session& session, const VerifyRequest& request) {
  return Verifier(session, request).run();
}

}  // namespace ckpt
