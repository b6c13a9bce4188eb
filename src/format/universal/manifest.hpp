#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"
#include "format/universal/mesh_layout.hpp"
#include "format/universal/references.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::universal {

constexpr std::string_view kVersion = "1.0";  ///< version written: the lowest that describes the output of this release
constexpr std::string_view kOldVersion = "0.9";  ///< also read: layout `whole` only
/// True for 0.9 and for 1.x with any minor number: FORMAT.md section 9.
constexpr bool is_known_version(std::string_view version) {
  if (version == kOldVersion) return true;
  if (!version.starts_with("1.") || version.size() < 3 || version.size() > 7) return false;
  const std::string_view minor = version.substr(2);
  return (minor == "0" || minor.front() != '0') && minor.find_first_not_of("0123456789") == minor.npos;
}
/// Whether files of two versions may belong to one checkpoint: both are 0.9, or neither is.
constexpr bool go_together(std::string_view a, std::string_view b) {
  return (a == kOldVersion) == (b == kOldVersion);
}
constexpr std::string_view kManifestBegin = R"({"format":"ckpt",)";  ///< the first bytes of every manifest
constexpr std::string_view kExtrasFeature = "extras";                ///< optional: `extras` names files that go along
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{4} << 30;

/// One tensor and its location.
struct TensorRow {
  Tensor tensor{};
  std::uint32_t volume = 0;  ///< in layout `whole`
  std::uint32_t layout = 0;  ///< index into Manifest::layouts
  std::uint64_t begin = 0;   ///< in a layout with `flat`: the tensor's offset in its flat group, elements
  /// In layout `virtual`: Locator::file numbers the files of Manifest::references in order.
  std::vector<PlacedChunk> chunks{};

  FileClass file_class() const;  ///< of its role
  FileKey file() const;          ///< in layout `whole`: class of its role, writer 0, `volume`
};

/// Which run of a store a checkpoint belongs to: FORMAT.md section 8.
struct Run {
  std::string name;
  std::uint64_t series = 0;
  std::optional<std::uint64_t> series_from{};   ///< the step that was loaded when the series began
  std::optional<std::uint64_t> series_after{};  ///< the series of that checkpoint, if others had left it behind
  std::uint64_t generation = 0;
  std::string parent{};  ///< id of the checkpoint that was loaded, 32 digits; may be empty
  bool operator==(const Run&) const = default;
};

/// manifest.json: FORMAT.md section 3. `meta`, `findings` and `aliases` are as in the model.
struct Manifest {
  struct Source {
    std::string format;
    Hash128 fingerprint{};
    std::string chosen{};  ///< may be empty
  };
  std::string version{kVersion};  ///< as read; a built manifest has kVersion
  Hash128 id{};
  std::string created{};  ///< utc_text
  std::string generator{};
  std::optional<Source> source{};
  std::optional<Run> run{};
  Meta meta{};
  bool nested = false;                           ///< as Map::nested
  std::vector<std::string> optional_features{};  ///< unknown ones, kept
  std::vector<Layout> layouts{Layout{}};         ///< that rows name; at least one
  std::uint64_t revision = 0;                    ///< how often it was revised since it was written
  std::vector<FileClass> dropped{};  ///< classes whose files were removed since: rows and records of them stay
  std::uint64_t sums_bytes = 0;
  Hash128 sums_hash{};
  std::vector<std::pair<std::string, std::string>> digests{};  ///< algorithm -> hexadecimal text
  std::vector<Finding> findings{};
  std::vector<Alias> aliases{};  ///< sorted by name
  /// A small file of the model, and the blob with its bytes. Rows that were read are valid: FORMAT.md 3.2.
  struct ExtraRow {
    std::string path;
    std::string blob;
    bool operator==(const ExtraRow&) const = default;
  };
  std::vector<ExtraRow> extras{};    ///< sorted by path
  std::vector<TensorRow> tensors{};  ///< sorted by name
  /// Of a virtual checkpoint: where its tensors in layout `virtual` are. Empty for any other.
  std::vector<ReferencedSource> references{};

  bool is_virtual() const { return !references.empty(); }

  bool is_dropped(FileClass file_class) const;
};

/// Checks that a row's layout exists and fits its tensor.
/// errors  corrupt, with the tensor
Result<> check_row_layout(const TensorRow& row, std::span<const LayoutFit> layouts);
/// The part of Manifest::layouts that it needs, which must outlive it.
std::vector<LayoutFit> fits_of(const std::vector<Layout>& layouts);

/// A time as the manifest writes it: "2026-01-02T03:04:05.000000006Z".
std::string utc_text(std::int64_t ns_since_1970);

/// The bytes of manifest.json, sealed with its hash. The same value gives the same bytes. Of several entries of mesh,
/// user or digests with one key the first is kept.
/// errors  internal: a rule of FORMAT.md section 3 broken by the
/// caller (order, names, layouts that do not fit their rows)
Result<std::string> build_manifest(const Manifest& manifest);

/// Reads manifest.json. The hash is checked before anything else.
/// errors   those of checks 2 to 24 of FORMAT.md section 10, with offset or tensor where known
Result<Manifest> parse_manifest(std::string_view text);

/// Whether the weights are stored independently of the optimizer's state.
/// errors  unsupported, with the tensor: a value of a parameter is stored only there, or nothing else is
///         left
Result<> check_weights_alone(const Manifest& manifest);

/// The same manifest one revision later, with other classes dropped: all other bytes are unchanged.
/// errors   as parse_manifest; unsupported: `revision` and `dropped` are not where revise_manifest puts them
Result<std::string> revise_manifest(std::string_view text, const std::vector<FileClass>& dropped);

}  // namespace ckpt::universal
