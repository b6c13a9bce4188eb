#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/box.hpp"

namespace ckpt::torch {

/// The contents of an archive.
struct ArchiveRequest {
  /// The folder of its entries. torch.save uses the file's name without its last suffix; "archive" if it writes to a
  /// stream, as DCP does for each item.
  std::string root = "archive";
  std::string pickle{};                        ///< data.pkl
  std::vector<std::uint64_t> storage_bytes{};  ///< of entry data/K, by K
  std::string id{};                            ///< of the conversion; any text, equal ids give equal serialization ids
};

/// The bytes of a torch zip archive apart from its storages. Offsets count from the beginning of the archive, which may
/// be anywhere in a file: its bytes do not depend on that.
struct ArchiveLayout {
  struct Piece {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  /// A field of 4 bytes, little-endian, with the CRC-32 of the archive's bytes `covers`. It is inside a piece, as
  /// zero.
  struct LateCrc {
    std::uint64_t offset = 0;
    Extent covers{};
  };
  std::vector<Piece> pieces{};                   ///< by offset; the gaps between them are exactly the storages
  std::vector<std::uint64_t> storage_offsets{};  ///< by K
  std::vector<LateCrc> late{};                   ///< by offset: two of each storage that has bytes
  std::uint64_t bytes = 0;
};

/// Lays an archive out as torch.save of 2.13 writes it: entries stored, in the order data.pkl, .format_version,
/// .storage_alignment, byteorder, data/0..., version, .data/serialization_id; their bytes begin at multiples of 64 by
/// an extra field "FB"; a data descriptor behind each that has bytes; zip64 fields from 0xffffffff on, end records of
/// zip64 always. The serialization id holds `request.id`.
///
/// source  torch caffe2/serialize/inline_container.cc (getPadding, writeRecord, writeEndOfFile), third_party/miniz
///         (mz_zip_writer_add_mem_ex_v2, mz_zip_writer_finalize_archive), torch/serialization.py (_save)
ArchiveLayout lay_out_archive(const ArchiveRequest& request);

/// The conversion's id, 32 hexadecimal digits, in the serialization id of an archive of ours; "" for any other
/// text. A file that torch wrote gives an id of no conversion.
std::string id_in_archive(std::string_view serialization_id);

/// The folder of an archive in a file of this name: the name without its last suffix, as in torch; "archive" if that is
/// empty or not ASCII.
std::string archive_root(std::string_view path);

}  // namespace ckpt::torch
