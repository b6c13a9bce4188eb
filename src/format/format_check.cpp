#include "format/format_check.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace ckpt::universal {
namespace {

constexpr std::array kChecks{
    CheckRow{Check::committed, Errc::uncommitted, "The name holds no `.partial-`, and `manifest.json` is there"},
    CheckRow{Check::manifest_ends, Errc::corrupt, "`manifest.json` begins and ends as section 3 says"},
    CheckRow{Check::manifest_hash, Errc::checksum, "Its hash is that of its bytes"},
    CheckRow{Check::manifest_json, Errc::corrupt, "It is one strict JSON object (section 1), nested at most 64 deep"},
    CheckRow{Check::version, Errc::newer, "`version` is `0.9` or `1.` and a minor number"},
    CheckRow{Check::required_features, Errc::newer, "`features.required` is empty"},
    CheckRow{Check::layout_kind, Errc::newer,
             "Every `kind` of a layout and `rule` of a cut is known; in 0.9 the kind is `whole`"},
    CheckRow{Check::dropped_class, Errc::newer, "`dropped` names no other class than `optim`"},
    CheckRow{Check::members, Errc::corrupt, "Every member that must be there is, and every known member has its type"},
    CheckRow{Check::integers, Errc::corrupt,
             "Every integer is written as section 1 says, and is below the limit of its member"},
    CheckRow{Check::digits, Errc::corrupt,
             "Ids and hashes are 32 lower-case hexadecimal digits; digests are lower-case hexadecimal"},
    CheckRow{Check::created, Errc::corrupt, "`created` has its form"},
    CheckRow{Check::revision, Errc::corrupt, "`dropped` names a class once, and only where `revision` is 1 or more"},
    CheckRow{Check::severity, Errc::newer, "Every `severity` is known"},
    CheckRow{Check::aliases, Errc::corrupt,
             "Aliases are sorted by name, unique, named like no tensor, and their targets are tensors"},
    CheckRow{Check::tensor_names, Errc::corrupt, "Tensors are sorted by name and unique; none is named `__metadata__`"},
    CheckRow{Check::dtype, Errc::newer, "Every `dtype` is known"},
    CheckRow{Check::role, Errc::newer, "Every `role` is known"},
    CheckRow{Check::shape, Errc::corrupt,
             "A shape has at most 64 dimensions, and its size keeps to the limits of section 3.1"},
    CheckRow{Check::blob, Errc::corrupt, "A blob is `U8` of one dimension"},
    CheckRow{Check::path, Errc::corrupt, "Elements of a `path` are text or integers, as section 3.1 says"},
    CheckRow{Check::row_layout, Errc::corrupt,
             "The layout of a row is there; `volume` is 0 in another kind than `whole`"},
    CheckRow{Check::layout, Errc::corrupt, "A layout keeps to section 6.2 by itself"},
    CheckRow{Check::layout_fits, Errc::corrupt,
             "A layout fits the shapes of its rows, and `begin` (sections 3.1 and 6.2)"},
    CheckRow{Check::sums_present, Errc::incomplete, "`sums.bin` is there"},
    CheckRow{Check::sums_hash, Errc::checksum, "Its size and hash are those in the manifest"},
    CheckRow{Check::sums_version, Errc::newer, "Its version is 0.9 or 1.x, and its leaves are 4 MiB"},
    CheckRow{Check::sums_form, Errc::corrupt,
             "Its magic, its reserved bytes (of a known minor version) and its counts are right: section 5.1"},
    CheckRow{Check::sums_id, Errc::corrupt, "Its id is that of the manifest; both are of version 0.9, or neither is"},
    CheckRow{Check::record_class, Errc::newer, "Every class is below 5"},
    CheckRow{Check::record, Errc::corrupt,
             "A record is as section 5.2 says: order, size, data begin, reserved bytes, one file where there is one"},
    CheckRow{Check::record_leaves, Errc::corrupt, "First leaves and the number of leaves follow from the sizes"},
    CheckRow{Check::files_present, Errc::incomplete, "Every file of a record is there"},
    CheckRow{Check::file_size, Errc::corrupt, "It is a regular file, or a link to one, of the size in its record"},
    CheckRow{Check::places, Errc::corrupt,
             "Records and rows agree: every entry has its file, and every data file is exactly as long as its entries "
             "(section 6.4)"},
    CheckRow{Check::index_hash, Errc::checksum, "The leaves of an index file are those in `sums.bin`"},
    CheckRow{Check::index_version, Errc::newer, "The major version of an index file is 1"},
    CheckRow{Check::index_form, Errc::corrupt,
             "Its magic, its reserved bytes (of a known minor version) and its counts are right: section 6.3"},
    CheckRow{Check::index_id, Errc::corrupt, "It has the id of the manifest and the writer of its name"},
    CheckRow{Check::index_records, Errc::corrupt,
             "Its records are sorted, volumes are 0, 1, 2, ..., and every field is what the chunk makes it"},
    CheckRow{Check::index_chunks, Errc::corrupt,
             "A chunk lies in its tensor, is not empty unless the tensor is, and is described in one way"},
    CheckRow{Check::index_places, Errc::corrupt,
             "The row of a chunk is in an `irregular` layout, and its bytes lie in its file"},
    CheckRow{Check::whole_bytes, Errc::corrupt, "No chunk of a packed dtype begins or ends inside a byte"},
    CheckRow{Check::covered, Errc::uncovered, "Every element is in a chunk"},
    CheckRow{Check::overlap, Errc::overlap, "Chunks that share an element are identical"},
    CheckRow{Check::objects_hash, Errc::checksum, "The leaves of `objects.json` are those in `sums.bin`"},
    CheckRow{Check::objects_version, Errc::newer, "Its `version` is known"},
    CheckRow{Check::objects_form, Errc::corrupt, "It is strict JSON of the form of section 7"},
    CheckRow{Check::objects_id, Errc::corrupt,
             "Its id is that of the manifest; both are of version 0.9, or neither is"},
    CheckRow{Check::value_kind, Errc::newer,
             "Every kind of value is known: an object of one member is one of section 7.1"},
    CheckRow{Check::value_form, Errc::corrupt, "Every value is written as section 7.1 says"},
    CheckRow{Check::value_limits, Errc::unsupported, "Values nest at most 64 deep, and are at most 4,194,304"},
    CheckRow{Check::roots, Errc::differs, "The root of every record is that of its leaves"},
    CheckRow{Check::header_form, Errc::differs,
             "A data file begins with a safetensors header, and its data where the record says"},
    CheckRow{Check::header_entries, Errc::differs,
             "Its entries are those of section 6.4: names, order, dtypes, shapes, offsets"},
    CheckRow{Check::header_series, Errc::differs, "Its `format` is `pt`, and `ckpt.v1` names the file: section 4"},
    CheckRow{Check::header_slices, Errc::differs, "Its `DCP_SHARDING_INFO` is what its entries are: section 4"},
    CheckRow{Check::index_offsets, Errc::differs, "The offsets in index files are those that section 4 gives"},
    CheckRow{Check::second_manifest, Errc::differs,
             "`index/manifest.json` is there, and the same as `manifest.json` or of an earlier revision"},
    CheckRow{Check::leaves, Errc::differs, "Every leaf of every file is that in `sums.bin`"},
    CheckRow{Check::copies, Errc::differs, "Identical chunks hold the same bytes"},
    CheckRow{Check::strays, Errc::differs, "No data file or index file stands where no record names it (section 2)"},
};

}  // namespace

std::span<const CheckRow> all_checks() {
  return kChecks;
}

std::string check_suffix(Check check) {
  return fmt::format(" (FORMAT.md, check {})", static_cast<unsigned>(check));
}

tl::unexpected<Error> violates(Check check, std::string message) {
  return violates(check, Error{.message = std::move(message)});
}

tl::unexpected<Error> violates(Check check, Error error) {
  error.code = kChecks[static_cast<std::size_t>(check) - 1].outcome;
  error.message += check_suffix(check);
  return fail(std::move(error));
}

}  // namespace ckpt::universal
