#include "format/universal/format_check.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace ckpt::universal {
namespace {

constexpr std::array kChecks{
    CheckRow{
        Check::committed, Errc::uncommitted,
        "The name of the directory does not end in `.partial-` and 32 hexadecimal digits, and `manifest.json` exists"},
    CheckRow{Check::manifest_ends, Errc::corrupt, "`manifest.json` begins and ends as section 3 requires"},
    CheckRow{Check::manifest_hash, Errc::checksum, "The hash at the end of `manifest.json` matches its bytes"},
    CheckRow{Check::manifest_json, Errc::corrupt,
             "`manifest.json` is one strict JSON object (section 1), nested at most 64 levels deep"},
    CheckRow{Check::version, Errc::newer, "`version` is `0.9`, or `1.` and a minor number"},
    CheckRow{Check::required_features, Errc::newer, "`features.required` names nothing but `virtual`"},
    CheckRow{Check::layout_kind, Errc::newer,
             "Every `kind` of a layout and every `rule` of a cut is known; in 0.9 every `kind` is `whole`"},
    CheckRow{Check::dropped_class, Errc::newer, "`dropped` names no class other than `optim`"},
    CheckRow{Check::members, Errc::corrupt,
             "Every required member is present, and every known member has the right type"},
    CheckRow{Check::integers, Errc::corrupt,
             "Every integer has the form of section 1 and is within the limit of its member"},
    CheckRow{Check::digits, Errc::corrupt,
             "Ids and hashes are 32 lower-case hexadecimal digits; digests are lower-case hexadecimal"},
    CheckRow{Check::created, Errc::corrupt, "`created` has the form of section 3"},
    CheckRow{Check::revision, Errc::corrupt,
             "`dropped` names a class at most once, and only if `revision` is 1 or more"},
    CheckRow{Check::severity, Errc::newer, "Every `severity` is known"},
    CheckRow{Check::aliases, Errc::corrupt,
             "Aliases are sorted by name and unique; no alias has the name of a tensor, and every target is a "
             "tensor"},
    CheckRow{Check::tensor_names, Errc::corrupt, "Tensors are sorted by name and unique; none is named `__metadata__`"},
    CheckRow{Check::dtype, Errc::newer, "Every `dtype` is known"},
    CheckRow{Check::role, Errc::newer, "Every `role` is known"},
    CheckRow{Check::shape, Errc::corrupt,
             "Every shape has at most 64 dimensions and is within the size limits of section 3.1"},
    CheckRow{Check::blob, Errc::corrupt, "Every blob is `U8` with one dimension"},
    CheckRow{Check::path, Errc::corrupt, "Every element of a `path` is text or an integer, as in section 3.1"},
    CheckRow{Check::row_layout, Errc::corrupt,
             "The layout of every row exists; `volume` is 0 unless the layout is `whole`"},
    CheckRow{Check::layout, Errc::corrupt, "Every layout is valid by itself (section 6.2)"},
    CheckRow{Check::layout_fits, Errc::corrupt,
             "Every layout fits the shape and `begin` of its rows (sections 3.1 and 6.2)"},
    CheckRow{Check::sums_present, Errc::incomplete, "`sums.bin` exists"},
    CheckRow{Check::sums_hash, Errc::checksum, "`sums.bin` has the size and hash that the manifest states"},
    CheckRow{Check::sums_version, Errc::newer, "`sums.bin` has version 0.9 or 1.x, and a leaf size of 4 MiB"},
    CheckRow{Check::sums_form, Errc::corrupt,
             "The magic, reserved bytes (of a known minor version) and counts in `sums.bin` are valid (section "
             "5.1)"},
    CheckRow{Check::sums_id, Errc::corrupt,
             "`sums.bin` has the id of the manifest; both have version 0.9, or neither does"},
    CheckRow{Check::record_class, Errc::newer, "Every class is below 5"},
    CheckRow{Check::record, Errc::corrupt,
             "Records are sorted and unique; sizes, data begins, reserved bytes, writers and volumes follow "
             "sections 2 and 5.2"},
    CheckRow{Check::record_leaves, Errc::corrupt,
             "The first leaf of every record and the number of leaves follow from the sizes"},
    CheckRow{Check::files_present, Errc::incomplete, "Every file with a record exists"},
    CheckRow{Check::file_size, Errc::corrupt,
             "Every file with a record is a regular file, or a link to one, and has the size in its record"},
    CheckRow{Check::places, Errc::corrupt,
             "Rows and records agree: every entry has its file, and every data file is exactly as long as its "
             "entries (section 6.4)"},
    CheckRow{Check::index_hash, Errc::checksum, "The leaves of every index file match `sums.bin`"},
    CheckRow{Check::index_version, Errc::newer, "The major version of every index file is 1"},
    CheckRow{Check::index_form, Errc::corrupt,
             "The magic, reserved bytes (of a known minor version) and counts in every index file are valid "
             "(section 6.3)"},
    CheckRow{Check::index_id, Errc::corrupt,
             "Every index file has the id of the manifest, and the writer in its file name"},
    CheckRow{Check::index_records, Errc::corrupt,
             "Index records are sorted, volumes are 0, 1, 2, ... in any order, and every field matches its chunk "
             "(section 6.3)"},
    CheckRow{Check::index_chunks, Errc::corrupt,
             "Every chunk is inside its tensor, is empty only if the tensor is, and has only one description "
             "(section 6.3)"},
    CheckRow{Check::index_places, Errc::corrupt,
             "The row of every indexed chunk has an `irregular` layout, and the bytes of the chunk are inside its "
             "file"},
    CheckRow{Check::whole_bytes, Errc::corrupt, "No chunk of a packed dtype begins or ends inside a byte"},
    CheckRow{Check::covered, Errc::uncovered, "Every element is in a chunk"},
    CheckRow{Check::overlap, Errc::overlap, "Chunks that share an element are identical"},
    CheckRow{Check::objects_hash, Errc::checksum, "The leaves of `objects.json` match `sums.bin`"},
    CheckRow{Check::objects_version, Errc::newer, "The `version` of `objects.json` is known"},
    CheckRow{Check::objects_form, Errc::corrupt, "`objects.json` is strict JSON in the form of section 7"},
    CheckRow{Check::objects_id, Errc::corrupt,
             "`objects.json` has the id of the manifest; both have version 0.9, or neither does"},
    CheckRow{Check::value_kind, Errc::newer,
             "Every kind of value is known: a JSON object with one member is a kind from section 7.1"},
    CheckRow{Check::value_form, Errc::corrupt, "Every value is written as in section 7.1"},
    CheckRow{Check::value_limits, Errc::unsupported,
             "Values nest at most 64 levels deep, and there are at most 4,194,304"},
    CheckRow{Check::roots, Errc::differs, "The root in every record matches its leaves"},
    CheckRow{Check::header_form, Errc::differs,
             "Every data file begins with a safetensors header, and its data begins where the record states"},
    CheckRow{Check::header_entries, Errc::differs,
             "The entries in every header are those of section 6.4: names, order, dtypes, shapes, offsets"},
    CheckRow{Check::header_series, Errc::differs,
             "The `format` of every data file is `pt`, and its `ckpt.v1` identifies the file (section 4)"},
    CheckRow{Check::header_slices, Errc::differs,
             "The `DCP_SHARDING_INFO` of every data file matches its entries (section 4)"},
    CheckRow{Check::index_offsets, Errc::differs, "The offsets in every index file are those of section 4"},
    CheckRow{Check::second_manifest, Errc::differs,
             "`index/manifest.json` exists, and equals `manifest.json` or is an earlier revision of it"},
    CheckRow{Check::leaves, Errc::differs, "Every leaf of every file matches `sums.bin`"},
    CheckRow{Check::copies, Errc::differs, "Identical chunks hold the same bytes"},
    CheckRow{Check::strays, Errc::differs, "No data file or index file exists without a record (section 2)"},
    CheckRow{
        Check::references, Errc::corrupt,
        "`references` and `chunks` are as in section 14; they are present if and only if the feature `virtual` is"},
    CheckRow{Check::referenced_chunks, Errc::corrupt,
             "Every chunk in `chunks` is inside its tensor, and its bytes are inside its file (section 14)"},
    CheckRow{Check::referenced_present, Errc::incomplete, "Every file in `references` exists"},
    CheckRow{Check::referenced_same, Errc::changed,
             "Every file in `references` is a regular file of the recorded size, modification time and head"},
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
