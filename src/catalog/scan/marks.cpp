#include "catalog/scan/marks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "catalog/scan/utc.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/locks/lease.hpp"
#include "engine/store/held_store.hpp"
#include "format/hash.hpp"
#include "format/model/value.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"
#include "format/universal/own_names.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::uint64_t kMostMarkBytes = 64 << 10;
constexpr std::uint64_t kMostStatisticsBytes = std::uint64_t{64} << 20;
constexpr std::string_view kSchema = "ckpt.mark/1";
constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kSealBegin = ",\"xxh3\":\"";
constexpr std::string_view kSealEnd = "\"}\n";
constexpr std::size_t kSealBytes = 32 + kSealEnd.size();  // the digits, and the text after them
constexpr std::array<std::string_view, 8> kMembers{"schema", "kind", "name", "text", "owner", "at", "until", "value"};

std::string file_name(Mark::Kind kind, std::string_view name) {
  return fmt::format("{}-{:016x}{}", kind_name(kind), hash64(name), kSuffix);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return fmt::format("{}", value);
}

std::optional<double> number_of(const json::Value& value) {
  if (const auto number = value.number()) return number;
  const std::string* text = value.text();
  if (text == nullptr) return std::nullopt;
  if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (*text == "inf") return std::numeric_limits<double>::infinity();
  if (*text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::string text_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->text() != nullptr ? *value->text() : std::string();
}

/// An optional time; false if it is present and malformed.
bool read_time(const json::Value& object, std::string_view key, std::optional<Time>& out) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return true;
  out = value->text() != nullptr ? parse_time(*value->text()) : std::nullopt;
  return out.has_value();
}

/// Whether the last member is the hash of all before it.
/// errors  checksum: it is another
Result<bool> check_seal(std::string_view text) {
  if (text.size() < kSealBegin.size() + kSealBytes || !text.ends_with(kSealEnd)) return false;
  const std::size_t digits = text.size() - kSealBytes;
  if (!text.substr(0, digits).ends_with(kSealBegin)) return false;
  if (text.substr(digits, kSealBytes - kSealEnd.size()) != hash128(text.substr(0, digits)).hex())
    return fail(Errc::checksum, "damaged: checksum mismatch; set it again or remove the file");
  return true;
}

/// Earlier releases wrote marks without a hash, with only these members: with another one it is not such a mark.
Result<> check_unsealed(const json::Value& root) {
  for (const auto& [key, value] : root.object() == nullptr ? json::Object{} : *root.object()) {
    if (std::find(kMembers.begin(), kMembers.end(), key) == kMembers.end())
      return fail(
          Errc::corrupt,
          fmt::format("damaged: the member '{}' requires a checksum, which is missing; set it again or remove the file",
                      key));
  }
  return {};
}

Result<Mark> parse_mark(std::string_view text) {
  CKPT_TRY(const bool sealed, check_seal(text));
  CKPT_TRY(const json::Value root, json::parse(text));
  if (!sealed) CKPT_CHECK(check_unsealed(root));
  if (text_of(root, "schema") != kSchema) return fail(Errc::newer, "mark of a newer release");
  const auto kind = std::find(universal::kMarkKinds.begin(), universal::kMarkKinds.end(), text_of(root, "kind"));
  if (kind == universal::kMarkKinds.end()) return fail(Errc::newer, "unknown kind of mark");
  Mark mark{.kind = static_cast<Mark::Kind>(kind - universal::kMarkKinds.begin()),
            .name = text_of(root, "name"),
            .text = text_of(root, "text"),
            .owner = text_of(root, "owner")};
  if (!read_time(root, "at", mark.at) || !read_time(root, "until", mark.until))
    return fail(Errc::corrupt, "invalid time");
  if (const json::Value* value = root.find("value")) {
    const auto number = number_of(*value);
    if (!number) return fail(Errc::corrupt, "value is not a number");
    mark.value = *number;
  }
  return mark;
}

std::string mark_text(const Mark& mark) {
  std::string text;
  json::Writer out(text);
  out.begin_object().member("schema", kSchema).member("kind", kind_name(mark.kind)).member("name", mark.name);
  if (!mark.text.empty()) out.member("text", mark.text);
  if (!mark.owner.empty()) out.member("owner", mark.owner);
  if (mark.at) out.member("at", time_text(*mark.at));
  if (mark.until) out.member("until", time_text(*mark.until));
  if (mark.kind == Mark::Kind::metric || mark.kind == Mark::Kind::verified)
    out.key("value").raw(number_text(mark.value));
  text += kSealBegin;
  text += hash128(text).hex();
  text += kSealEnd;
  return text;
}

/// The slowest rank's times. Statistics only inform: unknown ones are skipped.
std::optional<SaveCost> parse_statistics(std::string_view text) {
  const auto root = json::parse(text);
  if (!root) return std::nullopt;
  const json::Value* ranks = root->find("ranks");
  if (ranks == nullptr || ranks->array() == nullptr) return std::nullopt;
  SaveCost cost{.ranks = ranks->array()->size()};
  for (const json::Value& rank : *ranks->array()) {
    const auto seconds = [&](std::string_view key) {
      const json::Value* value = rank.find(key);
      return value != nullptr ? number_of(*value).value_or(0) : 0;
    };
    if (seconds("write_s") < cost.write_s) continue;
    cost = {
        .plan_s = seconds("plan_s"), .stage_s = seconds("stage_s"), .write_s = seconds("write_s"), .ranks = cost.ranks};
  }
  return cost;
}

Result<> check_text(std::string_view what, std::string_view text) {
  if (!is_utf8(text)) return fail(Errc::usage, fmt::format("the {} is not UTF-8", what));
  if (text.size() > kMostMarkBytes / 16)
    return fail(Errc::usage, fmt::format("the {} is longer than {} bytes", what, kMostMarkBytes / 16));
  return {};
}

struct HeldMarks {
  HeldRun run{};
  std::unique_ptr<HeldDirectory> checkpoint{};
  std::unique_ptr<HeldDirectory> marks{};
};

Result<HeldMarks> hold_checkpoint(Io& io, const std::string& checkpoint) {
  HeldMarks out;
  CKPT_TRY(out.run, hold_run(io, parent_path(checkpoint)));
  CKPT_TRY(out.checkpoint, hold_directory(io, checkpoint, {}));
  return out;
}

/// Makes the directory, durable, and holds it.
Result<HeldMarks> hold_marks(Io& io, const std::string& directory) {
  CKPT_TRY(HeldMarks out, hold_checkpoint(io, parent_path(directory)));
  auto made = io.make_dir(directory);
  if (made) {
    CKPT_CHECK(io.sync_dir(parent_path(directory)));
  } else if (made.error().code != Errc::target_exists) {
    return fail(std::move(made).error());
  }
  CKPT_TRY(out.marks, hold_directory(io, directory, {}));
  return out;
}

}  // namespace

std::string_view kind_name(Mark::Kind kind) {
  return universal::kMarkKinds[static_cast<std::size_t>(kind)];
}

Marks read_marks(Io& io, const std::string& directory) {
  Marks out;
  const auto entries = io.list(directory);
  if (!entries) {
    if (entries.error().code != Errc::not_found) out.unreadable = entries.error().message;
    return out;
  }
  for (const DirEntry& entry : *entries) {
    if (!entry.name.ends_with(kSuffix)) continue;  // temporary files are not marks yet
    const bool statistics = entry.name == kStatisticsName;
    const auto text =
        read_small_file(io, join_path(directory, entry.name), statistics ? kMostStatisticsBytes : kMostMarkBytes);
    if (!text) {
      if (text.error().code != Errc::not_found && !statistics) out.unreadable = text.error().message;
      continue;
    }
    if (statistics) {
      out.save = parse_statistics(*text);
      continue;
    }
    auto mark = parse_mark(*text);
    if (mark)
      out.marks.push_back(*std::move(mark));
    else
      out.unreadable = fmt::format("{}: {}", join_path(directory, entry.name), mark.error().message);
  }
  return out;
}

Result<MarkFile> mark_file(const Mark& mark) {
  CKPT_CHECK(check_text("name", mark.name));
  CKPT_CHECK(check_text("text", mark.text));
  CKPT_CHECK(check_text("owner", mark.owner));
  return MarkFile{.name = file_name(mark.kind, mark.name), .text = mark_text(mark)};
}

Result<> write_mark(Io& io, const std::string& directory, const Mark& mark, Holding holding,
                    const ForeignNames& names) {
  CKPT_TRY(const MarkFile file, mark_file(mark));
  std::unique_ptr<Lease> lease;
  if (holding == Holding::lease) {
    CKPT_TRY(lease, Lease::take(io, parent_path(directory), names));
  }
  CKPT_TRY(const auto held, hold_marks(io, directory));
  return replace_shared_file(io, join_path(directory, file.name), file.text);
}

Result<bool> remove_mark(Io& io, const std::string& directory, Mark::Kind kind, std::string_view name,
                         const ForeignNames& names, Holding holding) {
  std::unique_ptr<Lease> lease;
  if (holding == Holding::lease) {
    CKPT_TRY(lease, Lease::take(io, parent_path(directory), names));
  }
  CKPT_TRY(const auto held, hold_checkpoint(io, parent_path(directory)));
  auto removed = io.unlink(join_path(directory, file_name(kind, name)));
  if (!removed && removed.error().code == Errc::not_found) return false;
  CKPT_CHECK(std::move(removed));
  if (auto synced = io.sync_dir(directory); !synced) {
    Error error = std::move(synced).error();
    error.code = Errc::not_durable;
    error.message = directory + ": removed, but possibly not durably: " + error.message;
    return fail(std::move(error));
  }
  return true;
}

}  // namespace ckpt::catalog
