#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/hash.hpp"
#include "format/result.hpp"

/// The blobs `rng/...`: states of random number generators by their purpose, not by the rank that had them. Specified
/// in LEDGER.md.
namespace ckpt::rng {

constexpr std::string_view kPrefix = "rng/";
constexpr std::size_t kMaxStateBytes = 1u << 20;
constexpr std::size_t kMaxNameBytes = 4096;  ///< of a blob's name

/// The identity of a stream: its purpose and its coordinates. Axes along which all ranks share the stream are left out,
/// so it is found again when they change: {"dropout", {tp: 1}} is the same for every data-parallel rank.
struct Identity {
  std::string stream;                             ///< UTF-8, not empty
  std::map<std::string, std::uint64_t> coords{};  ///< axis -> coordinate
  auto operator<=>(const Identity&) const = default;
};

struct Stream {
  Identity identity;
  std::string algorithm;  ///< what `state` is a state of: "torch.cpu", "torch.cuda", "numpy.mt19937", the trainer's own
  std::string state;      ///< opaque bytes
  bool operator==(const Stream&) const = default;
};

/// "rng/STREAM" or "rng/STREAM@AXIS=N,AXIS=N", axes in byte order; every byte but letters, digits, '.', '_' and '-' as
/// %XX: equal names are equal identities.
std::string blob_name(const Identity& identity);

/// The blob's bytes: JSON that `parse` reads back.
/// errors   usage: a stream without a name, a text that is not UTF-8, a state above kMaxStateBytes, a blob's name above
///          kMaxNameBytes
Result<std::string> build(const Stream& stream);
/// errors   corrupt: not JSON, not this document, or too large; newer: a version that this build does not know
Result<Stream> parse(std::string_view text);

/// The source of a stream for a rank that resumes.
struct Source {
  std::optional<std::size_t> stored{};  ///< index of the stored stream that continues, bit for bit
  Hash128 seed{};                       ///< else the new stream's seed
};

/// The seed of a stream that no checkpoint holds: XXH3-128 of "ckpt.rng.1\0", seed, step, and the identity's blob name,
/// integers as 8 bytes little-endian. New, but the same at every resume from that step, and different from that of any
/// other identity or step.
Hash128 derive_seed(std::uint64_t seed, std::uint64_t step, const Identity& identity);

/// For each wanted stream: the stored one of this identity and algorithm, else a derived seed.
struct Wanted {
  Identity identity;
  std::string algorithm;
};
std::vector<Source> resolve(std::span<const Stream> stored, std::span<const Wanted> wanted, std::uint64_t seed,
                            std::uint64_t step);

}  // namespace ckpt::rng
