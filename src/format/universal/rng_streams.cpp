#include "format/universal/rng_streams.hpp"

#include <fmt/format.h>

#include "format/model/scalar_json.hpp"
#include "format/model/value.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::rng {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kVersionKey = "rng_stream";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

tl::unexpected<Error> bad(std::string_view member, std::string_view reason) {
  return fail(Errc::corrupt, fmt::format("rng stream: {}: {}", member, reason));
}

Result<std::string> text_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->text() == nullptr) return bad(key, "missing or not text");
  return *value->text();
}

}  // namespace

std::string blob_name(const Identity& identity) {
  std::string out(kPrefix);
  append_escaped(out, identity.stream);
  char separator = '@';
  for (const auto& [axis, coordinate] : identity.coords) {
    out += separator;
    append_escaped(out, axis);
    out += fmt::format("={}", coordinate);
    separator = ',';
  }
  return out;
}

Result<std::string> build(const Stream& stream) {
  const auto unfit = [](std::string_view reason) {
    return fail(Errc::usage, fmt::format("rng stream: build: {}", reason));
  };
  if (stream.identity.stream.empty()) return unfit("it has no name");
  bool readable = is_utf8(stream.identity.stream) && is_utf8(stream.algorithm);
  for (const auto& [axis, coordinate] : stream.identity.coords) readable = readable && !axis.empty() && is_utf8(axis);
  if (!readable) return unfit("its names must be UTF-8, and those of axes not empty");
  if (stream.state.size() > kMaxStateBytes)
    return unfit(fmt::format("a state of {} bytes; at most {}", stream.state.size(), kMaxStateBytes));
  if (blob_name(stream.identity).size() > kMaxNameBytes) return unfit("stream and coords are too long");
  std::string text;
  json::Writer out(text, {.spaced = true});
  out.begin_object().member(kVersionKey, kVersion).member("stream", stream.identity.stream);
  out.key("coords").begin_object();
  for (const auto& [axis, coordinate] : stream.identity.coords) universal::put_natural(out.key(axis), coordinate);
  out.end_object().member("algorithm", stream.algorithm);
  out.member("state", universal::hex_of(stream.state)).end_object();
  return text + '\n';
}

Result<Stream> parse(std::string_view text) {
  CKPT_TRY(const json::Value document,
           json::parse(text, {.max_bytes = 2 * kMaxStateBytes + (64u << 10), .max_depth = 4}));
  if (document.object() == nullptr) return bad("document", "not an object");
  const json::Value* version = document.find(kVersionKey);
  if (version == nullptr || version->natural() == nullptr) return bad(kVersionKey, "missing or not a number");
  if (*version->natural() > kVersion) {
    return fail(Errc::newer, fmt::format("rng stream: version {}; this build reads {}", *version->natural(), kVersion));
  }
  if (*version->natural() != kVersion) return bad(kVersionKey, "no such version");
  if (document.object()->size() != 5) return bad("document", "more or fewer members than five");
  Stream out;
  CKPT_TRY(out.identity.stream, text_of(document, "stream"));
  if (out.identity.stream.empty()) return bad("stream", "empty");
  const json::Value* coords = document.find("coords");
  if (coords == nullptr || coords->object() == nullptr) return bad("coords", "missing or not an object");
  for (const auto& [axis, value] : *coords->object()) {
    auto coordinate = universal::read_natural(value);
    if (axis.empty() || !coordinate) return bad("coords", "holds something other than an axis and its coordinate");
    out.identity.coords.emplace(axis, *coordinate);
  }
  CKPT_TRY(out.algorithm, text_of(document, "algorithm"));
  CKPT_TRY(const std::string digits, text_of(document, "state"));
  auto state = universal::read_hex(digits);
  if (!state) return bad("state", state.error().message);
  if (state->size() > kMaxStateBytes) return bad("state", "more than 1 MiB");
  out.state = std::move(*state);
  if (blob_name(out.identity).size() > kMaxNameBytes) return bad("stream", "stream and coords are too long");
  return out;
}

Hash128 derive_seed(std::uint64_t seed, std::uint64_t step, const Identity& identity) {
  Hasher hasher;
  hasher.update(std::string_view("ckpt.rng.1\0", 11));
  hasher.update_u64(seed);
  hasher.update_u64(step);
  hasher.update(blob_name(identity));
  return hasher.digest();
}

std::vector<Source> resolve(std::span<const Stream> stored, std::span<const Wanted> wanted, std::uint64_t seed,
                            std::uint64_t step) {
  std::map<Identity, std::size_t> known;
  for (std::size_t i = 0; i < stored.size(); ++i) known.emplace(stored[i].identity, i);
  std::vector<Source> out;
  out.reserve(wanted.size());
  for (const Wanted& each : wanted) {
    const auto found = known.find(each.identity);
    if (found != known.end() && stored[found->second].algorithm == each.algorithm) {
      out.push_back({.stored = found->second});
    } else {
      out.push_back({.seed = derive_seed(seed, step, each.identity)});
    }
  }
  return out;
}

}  // namespace ckpt::rng
