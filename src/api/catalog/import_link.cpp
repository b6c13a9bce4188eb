#include "api/catalog/import_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/convert/select.hpp"
#include "convert/open_source.hpp"
#include "engine/io/hard_links.hpp"
#include "engine/process/memory.hpp"
#include "engine/publish/publish.hpp"
#include "format/model/finding_error.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kUniversal = "ckpt";
constexpr std::string_view kLeaveOut = "omit --link to convert instead";
constexpr auto kHashesPatience = std::chrono::minutes(10);  // of the other ranks, while rank 0 reads every hash

tl::unexpected<Error> not_linked(const std::string& source, const std::string& reason) {
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: --link needs a complete checkpoint in the ckpt format on the file "
                                      "system of the store: {}",
                                      source, reason),
               .file = source,
               .hint = std::string(kLeaveOut)});
}

Result<> check_words(const Session& session, const ConvertRequest& request) {
  const auto together = [](const char* flag) {
    return fail(Errc::usage, fmt::format("--link and {} cannot be used together", flag));
  };
  if (!request.only.empty()) return together("--only");
  if (session.rules != nullptr) return together("--map");
  if (!request.from.empty() && request.from != kUniversal) return together("--from");
  return {};
}

/// Rank 0's part.
class Linking {
 public:
  Linking(Session& session, const ConvertRequest& request, RunTarget& target)
      : session_(session), io_(session.io), request_(request), target_(target) {}

  Result<ConvertReport> run() {
    CKPT_CHECK(open());
    describe();
    CKPT_TRY(const auto found, target_.find(report_.id));
    report_.already_done = found.has_value();
    if (found) report_.target = *found;
    if (found || request_.dry_run) return std::move(report_);
    CKPT_CHECK(check());
    CKPT_CHECK(target_.make_directories());
    CKPT_CHECK(publish());
    return std::move(report_);
  }

 private:
  /// With a reader's lease: no process deletes or replaces it in the meantime.
  Result<> open() {
    auto opened = open_source(io_, request_.source, request_.from,
                              {.metadata_limit = session_.memory_bytes, .stop = session_.stop, .find_beside = true});
    if (!opened) {
      const Errc code = opened.error().code;
      if (code != Errc::unsupported && code != Errc::ambiguous) return fail(std::move(opened).error());
      return not_linked(request_.source, opened.error().message);
    }
    source_ = std::make_unique<Source>(std::move(*opened));
    if (source_->format->name != kUniversal)
      return not_linked(request_.source, fmt::format("this is {}", source_->format->name));
    const auto& findings = source_->map.findings;
    const auto missing = std::ranges::find(findings, Severity::incomplete, &Finding::severity);
    if (missing != findings.end()) return fail(as_error(*missing, source_->root, Errc::incomplete));
    CKPT_TRY(manifest_text_, read(universal::kManifestPath));
    CKPT_TRY(sums_bytes_, read(universal::kSumsPath));
    CKPT_TRY(const universal::Manifest manifest, universal::parse_manifest(manifest_text_));
    CKPT_TRY(const universal::Sums sums, universal::parse_sums(std::as_bytes(std::span(sums_bytes_))));
    report_.id = manifest.id.hex();
    for (const universal::FileRecord& file : sums.files) {
      report_.files.emplace_back(file.key.path(), file.bytes);
      report_.target_bytes += file.bytes;
    }
    if (manifest.version != universal::kVersion)
      return not_linked(request_.source,
                        fmt::format("its version is {}, not {}", manifest.version, universal::kVersion));
    if (manifest.is_virtual())
      return not_linked(request_.source, "it is virtual: its tensors are in other checkpoints");
    if (!manifest.dropped.empty()) return not_linked(request_.source, "its optimizer was dropped");
    return {};
  }

  Result<std::string> read(std::string_view name) {
    return read_small_file(*source_->io, join_path(source_->root, name), session_.memory_bytes);
  }

  void describe() {
    const Map& map = source_->map;
    report_.source_format = map.format;
    report_.source_variant = map.variant;
    report_.source_chosen = map.chosen;
    report_.target_format = kUniversal;
    report_.target = request_.target;
    report_.dry_run = request_.dry_run;
    report_.tensor_count = map.tensors.size();
    report_.memory_bound = session_.memory_bytes;
    report_.verified = request_.verify;
    report_.notes = map.findings;
    report_.partial = skips_requested(map, request_, *source_->format);
  }

  Result<> check() {
    if (request_.verify == VerifyLevel::none) return {};
    // The other ranks are not asked.
    const std::unique_ptr<Comm> alone = Comm::solo();
    Session session{.io = io_,
                    .comm = *alone,
                    .memory_bytes = session_.memory_bytes,
                    .threads = session_.threads,
                    .stop = session_.stop,
                    .progress = session_.progress};
    CKPT_TRY(const VerifyReport seen,
             verify(session, {.path = source_->root, .quick = request_.verify != VerifyLevel::full}));
    report_.hash_checked = seen.leaf_count;
    if (seen.damage.empty()) return {};
    const Finding& first = seen.damage.front();
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: {}", first.file.empty() ? source_->root : first.file, first.text),
                 .file = first.file,
                 .hint = "'ckpt verify " + source_->root + "' lists all damage"});
  }

  Result<> publish() {
    std::set<std::string> folders;
    for (const auto& [path, bytes] : report_.files) folders.insert(parent_path(path));
    CKPT_TRY(const auto publication,
             Publication::begin(io_,
                                {.target = request_.target,
                                 .id = report_.id,
                                 .folders = {folders.begin(), folders.end()},
                                 .named_later = true,
                                 .readers = source_->files->readers(source_->map, source_->root)},
                                {}));
    for (const auto& [path, bytes] : report_.files) {
      if (session_.is_stopped()) return fail(Errc::interrupted, "stopped");
      CKPT_CHECK(link(path, bytes, publication->root()));
    }
    std::vector<SmallFile> small{{.path = std::string(universal::kSumsPath), .bytes = sums_bytes_},
                                 {.path = std::string(universal::kManifestPath), .bytes = manifest_text_}};
    CKPT_CHECK(source_->check_unchanged());
    CKPT_TRY(report_.target, target_.publish(*publication, std::move(small)));
    return {};
  }

  /// Pages that its writer left in memory must be on the disk before it is committed again.
  Result<> link(const std::string& path, std::uint64_t bytes, const std::string& root) {
    const std::string to = join_path(root, path);
    auto linked = link_file(io_, join_path(source_->root, path), to);
    if (!linked && linked.error().code == Errc::unsupported) return not_linked(request_.source, linked.error().message);
    CKPT_CHECK(std::move(linked));
    CKPT_TRY(const FileHandle file, io_.open(to, {}));
    const auto finish = [&]() -> Result<> {
      CKPT_TRY(const FileInfo info, io_.info(file));
      CKPT_CHECK(source_->files->see(join_path(source_->root, path), info));
      if (info.bytes != bytes)
        return fail(Errc::corrupt, fmt::format("{}: {} bytes, but sums.bin says {}", to, info.bytes, bytes));
      return io_.sync(file);
    };
    auto finished = finish();
    auto closed = io_.close(file);
    CKPT_CHECK(std::move(finished));
    return closed;
  }

  Session& session_;
  Io& io_;
  const ConvertRequest& request_;
  RunTarget& target_;
  std::unique_ptr<Source> source_{};
  std::string manifest_text_{};
  std::string sums_bytes_{};
  ConvertReport report_{};
};

}  // namespace

Result<ConvertReport> link_checkpoint(Session& session, const ConvertRequest& request, RunTarget& target) {
  const auto start = std::chrono::steady_clock::now();
  CKPT_CHECK(check_words(session, request));
  Result<ConvertReport> report = ConvertReport{};
  if (session.comm.is_root()) report = Linking(session, request, target).run();
  CKPT_CHECK(agree(session.comm, start + kHashesPatience, report ? Result<>{} : Result<>(fail(report.error()))));
  report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report->peak_bytes = peak_resident_bytes();
  return report;
}

}  // namespace ckpt
