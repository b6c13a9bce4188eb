#include <chrono>

#include "convert/formats.hpp"
#include "convert/hdf5/writer.hpp"
#include "engine/helper_process.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
// A user block may stand before the signature: it is looked for at 0, 512, 1024, ... (HDF5 File Format, section II.A).
constexpr std::uint64_t kLastSignature = std::uint64_t{64} << 10;

Result<std::optional<Match>> detect(const Place& place) {
  if (place.directory) return std::nullopt;
  CKPT_TRY(const std::string head, place.head("", kLastSignature + kSignature.size()));
  for (std::uint64_t at = 0; at + kSignature.size() <= head.size(); at = at == 0 ? 512 : at * 2) {
    if (std::string_view(head).substr(at, kSignature.size()) == kSignature)
      return Match{.where = "", .why = "an HDF5 signature"};
  }
  return std::nullopt;
}

Result<std::string> stored_id(Io&, const std::string& root) {
  return run_helper("ckpt-h5", {"id", root}, "", std::chrono::seconds(20));
}

}  // namespace

Format hdf5_format() {
  Format format{.name = "hdf5", .summary = "one HDF5 file (written; reading comes later)"};
  format.detect = detect;
  format.lay_out = hdf5::lay_out;
  format.suffix = ".h5";
  format.stored_id = stored_id;
  return format;
}

}  // namespace ckpt
