#include "format/files/tar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "format/text/parse_number.hpp"

namespace ckpt::tar {
namespace {

/// A field of a header block.
struct Field {
  std::size_t begin;
  std::size_t bytes;
};
constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kChecksum{148, 8};
constexpr std::size_t kTypeAt = 156;
constexpr Field kLink{157, 100};
constexpr Field kMagic{257, 6};
constexpr Field kPrefix{345, 155};  // of ustar; GNU has times there

constexpr std::string_view kUstar("ustar\0", 6);
constexpr std::string_view kGnu = "ustar ";

std::string_view field(std::string_view block, Field which) {
  return block.substr(which.begin, which.bytes);
}

std::string text(std::string_view block, Field which) {
  const std::string_view all = field(block, which);
  return std::string(all.substr(0, all.find('\0')));
}

/// Octal digits, or binary with the highest bit set (GNU, for 8 GiB and more). Nothing if it is neither.
std::optional<std::uint64_t> number(std::string_view digits) {
  std::uint64_t value = 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (static_cast<unsigned char>(digits.front()) == 0x80) {
    for (const char c : digits.substr(1)) {
      if (value > kMost >> 8) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  const std::size_t begin = std::min(digits.find_first_not_of(' '), digits.size());
  const std::string_view rest = digits.substr(begin);
  const std::string_view octal = rest.substr(0, std::min(rest.find_first_of(std::string_view(" \0", 2)), rest.size()));
  for (const char c : octal) {
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');  // of 12 digits at most
  }
  return value;
}

/// The sum of all bytes, with the checksum's own taken as spaces. Some old programs took bytes as signed.
bool has_right_checksum(std::string_view block) {
  const auto stated = number(field(block, kChecksum));
  if (!stated) return false;
  std::int64_t natural = 0;
  std::int64_t with_sign = 0;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    const bool is_own = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.bytes;
    const char c = is_own ? ' ' : block[i];
    natural += static_cast<unsigned char>(c);
    with_sign += static_cast<signed char>(c);
  }
  const auto sum = static_cast<std::int64_t>(*stated);
  return sum == natural || sum == with_sign;
}

Header::Kind kind_of(char type, std::string_view name) {
  using Kind = Header::Kind;
  switch (type) {
    case '\0':
      return name.ends_with('/') ? Kind::directory : Kind::file;
    case '0':
    case '7':
      return Kind::file;
    case '1':
      return Kind::hard_link;
    case '2':
      return Kind::symlink;
    case '5':
    case 'D':  // with a list of its files, of incremental backups by GNU
      return Kind::directory;
    case 'L':
      return Kind::long_name;
    case 'K':
      return Kind::long_link;
    case 'x':
    case 'X':
      return Kind::records;
    case 'g':
      return Kind::defaults;
    default:
      return Kind::other;
  }
}

/// Links and devices have no data, whatever their size says.
bool has_data(char type) {
  return type < '1' || type > '6';
}

tl::unexpected<Error> sparse(std::string_view name) {
  return fail(Errc::unsupported, fmt::format("'{}' is stored as a sparse file", name));
}

}  // namespace

bool is_tar(std::string_view head) {
  if (head.size() < kBlockBytes) return false;
  const std::string_view magic = field(head, kMagic);
  return (magic == kUstar || magic == kGnu) && has_right_checksum(head.substr(0, kBlockBytes));
}

Result<Header> parse_header(std::string_view block) {
  if (block.find_first_not_of('\0') == std::string_view::npos) return Header{};
  if (!has_right_checksum(block)) return fail(Errc::corrupt, "bad header checksum");
  Header out{.name = text(block, kName), .link = text(block, kLink)};
  if (field(block, kMagic) == kUstar) {
    const std::string prefix = text(block, kPrefix);
    if (!prefix.empty()) out.name = prefix + "/" + out.name;
  }
  const char type = block[kTypeAt];
  if (type == 'S') return sparse(out.name);
  out.kind = kind_of(type, out.name);
  if (!has_data(type)) return out;
  const auto bytes = number(field(block, kSize));
  if (!bytes) return fail(Errc::corrupt, fmt::format("the size of '{}' is not a number", out.name));
  out.bytes = *bytes;
  return out;
}

Result<Records> parse_records(std::string_view text) {
  Records out;
  while (!text.empty() && text.front() != '\0') {
    // "LENGTH KEY=VALUE\n", of LENGTH bytes
    const std::size_t space = text.find(' ');
    const auto length =
        space == std::string_view::npos ? std::nullopt : parse_number<std::size_t>(text.substr(0, space));
    if (!length || *length <= space + 1 || *length > text.size() || text[*length - 1] != '\n')
      return fail(Errc::corrupt, "pax records that are cut short or damaged");
    const std::string_view record = text.substr(space + 1, *length - space - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return fail(Errc::corrupt, "a pax record without a value");
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    out.is_sparse = out.is_sparse || key.starts_with("GNU.sparse.");
    if (key == "GNU.sparse.name") out.name = value;
    if (key == "path") out.name = value;
    if (key == "linkpath") out.link = value;
    if (key == "size") {
      const auto bytes = parse_number<std::uint64_t>(value);
      if (!bytes || *bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return fail(Errc::corrupt, "a pax record whose size is not a number");
      out.has_bytes = true;
      out.bytes = *bytes;
    }
    text.remove_prefix(*length);
  }
  return out.is_sparse ? Result<Records>(sparse(out.name)) : out;
}

Result<std::string> member_path(std::string_view name) {
  if (name.find('\0') != std::string_view::npos) return fail(Errc::corrupt, "a name with a zero byte");
  std::string out;
  while (!name.empty()) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, slash);
    name.remove_prefix(std::min(slash + 1, name.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") return fail(Errc::refused, "a name that leads out of the archive");
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

}  // namespace ckpt::tar
