#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "format/result.hpp"

/// Tar archives: POSIX.1-2001 (pax), POSIX.1-1988 (ustar) and GNU. A header block precedes the data of each member,
/// which fills whole blocks; two blocks of zeros end the archive.
/// source  POSIX.1-2017 "pax": ustar and pax Interchange Format; GNU tar manual "Basic Tar Format"
namespace ckpt::tar {

constexpr std::size_t kBlockBytes = 512;
/// Of a name or of pax records, which are stored as the data of a member.
constexpr std::uint64_t kMostTextBytes = std::uint64_t{1} << 20;

/// A header block.
struct Header {
  enum class Kind : std::uint8_t {
    file,
    directory,
    hard_link,  ///< another name of a member before it, in `link`; no data
    symlink,    ///< to `link`; no data
    other,      ///< a device, a volume's name, ...
    long_name,  ///< its data is the next member's name
    long_link,  ///< its data is the next member's `link`
    records,    ///< its data are pax records for the next member
    defaults,   ///< its data are pax records for all members after it
    end,        ///< a block of zeros
  } kind = Kind::end;
  std::string name{};
  std::string link{};
  std::uint64_t bytes = 0;  ///< of the data that follow
};

/// What pax records say about a member.
struct Records {
  std::string name{};  ///< empty: not said
  std::string link{};
  bool has_bytes = false;
  bool is_sparse = false;
  std::uint64_t bytes = 0;
};

/// Whether a file that begins with these bytes is a tar archive: the magic of ustar or GNU, and a checksum that is right.
bool is_tar(std::string_view head);

/// block   kBlockBytes
/// errors  corrupt: the checksum is wrong, or a size is not a number; unsupported: a sparse file
Result<Header> parse_header(std::string_view block);

/// errors  corrupt: not records; unsupported: of a sparse file
Result<Records> parse_records(std::string_view text);

/// The path of a member below the archive's root: without ".", empty parts and a leading slash. "" for the root.
/// errors  refused: it has a part ".."; corrupt: a zero byte
Result<std::string> member_path(std::string_view name);

}  // namespace ckpt::tar
