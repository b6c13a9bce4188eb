#include "writers/save_content.hpp"

#include <span>
#include <utility>

#include "engine/comm/comm_text.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"
#include "writers/save_record.hpp"

namespace ckpt {
namespace {

Result<std::vector<RankRecord>> parsed(const std::vector<std::string>& records) {
  std::vector<RankRecord> ranks;
  for (const std::string& record : records) {
    CKPT_TRY(RankRecord rank, record_from_text(record));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace

Result<SaveToPublish> merged_content(universal::Manifest manifest, const std::vector<std::string>& records) {
  CKPT_TRY(const std::vector<RankRecord> ranks, parsed(records));
  MergedRecords merged = merge(ranks);
  return SaveToPublish{.manifest = std::move(manifest),
                       .files = std::move(merged.files),
                       .leaves = std::move(merged.leaves),
                       .statistics = statistics_text(ranks)};
}

Result<std::string> sealed_text(universal::Manifest manifest, const std::vector<std::string>& records) {
  CKPT_TRY(SaveToPublish content, merged_content(std::move(manifest), records));
  if (content.manifest.run) content.manifest.run->generation = 1;  // a manifest without one is refused
  CKPT_TRY(const universal::Seal seal,
           universal::seal(std::move(content.manifest), std::move(content.files), std::move(content.leaves)));
  std::string text;
  append_field(text, seal.manifest);
  append_field(text, seal.sums);
  append_field(text, content.statistics);
  return text;
}

Result<SaveToPublish> sealed_content(std::string_view text) {
  TextCursor cursor{text};
  const std::string manifest_text = cursor.field();
  const std::string sums_text = cursor.field();
  std::string statistics = cursor.field();
  if (cursor.bad || !cursor.rest.empty()) {
    return fail(Errc::internal, "rank 0 sent an unreadable description of the checkpoint");
  }
  CKPT_TRY(universal::Manifest manifest, universal::parse_manifest(manifest_text));
  CKPT_TRY(universal::Sums sums, universal::parse_sums(std::as_bytes(std::span(sums_text))));
  return SaveToPublish{.manifest = std::move(manifest),
                       .files = std::move(sums.files),
                       .leaves = std::move(sums.leaves),
                       .statistics = std::move(statistics)};
}

}  // namespace ckpt
