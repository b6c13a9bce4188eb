#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/universal/index_file.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"
#include "format/universal/whole_layout.hpp"
#include "format/universal/writer_layout.hpp"

namespace ckpt::universal {

/// The files of a checkpoint according to rows and layouts, one writer at a time, computed on demand. Results are
/// cached up to a bound; writers with the same files share them. One thread at a time.
class WriterFiles {
 public:
  struct Parts {
    std::vector<TensorRow> rows{};
    std::vector<Layout> layouts{};
    Hash128 id{};
    std::vector<FileRecord> files{};                 ///< Sums::files
    std::map<std::uint32_t, IndexFile> irregular{};  ///< by writer: from its index file
    bool all_indexed = true;                         ///< false where an index file is missing
  };
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{64} << 20;

  /// Checks in O(rows + files + indexed chunks) that the files have room for exactly the tensors, and that indexed
  /// chunks are inside their files.
  /// errors  corrupt, with file or tensor
  static Result<WriterFiles> make(Parts parts, std::uint64_t kept_bytes = kKeptBytes);

  const std::vector<TensorRow>& rows() const { return parts_.rows; }
  const std::vector<Layout>& layouts() const { return parts_.layouts; }
  const std::map<std::uint32_t, IndexFile>& irregular() const { return parts_.irregular; }
  std::uint64_t kept_bytes() const { return kept_bytes_; }  ///< of tables that are kept at this time

  /// Everything lay_out_writer needs; the views live as long as this object and `given`.
  WriterRequest request(std::uint32_t writer, std::vector<GivenChunks>& given) const;

  /// The file that holds chunk `volume` of a row by this writer: index into Sums::files.
  /// errors   corrupt, with the tensor: sums.bin has no record of it
  Result<std::uint32_t> file_of(std::uint32_t row, std::uint32_t writer, std::uint32_t volume) const;

  /// Its location in that file. For rows in layouts whole and mesh.
  /// errors   corrupt, with the file: its size is not that of its entries
  Result<TensorPlace> place(std::uint32_t row, std::uint32_t writer, std::uint32_t volume);

 private:
  /// WriterPlaces::entries, 16 bytes each.
  struct Table {
    std::vector<std::uint32_t> rows{};
    std::vector<std::uint32_t> volumes{};
    std::vector<std::uint64_t> offsets{};
    Hash128 hash{};
    std::uint64_t bytes() const { return rows.size() * 16; }
  };
  struct Kept {
    std::shared_ptr<const Table> table{};
    std::list<std::uint32_t>::iterator use{};
  };

  WriterFiles(Parts parts, std::uint64_t kept_bytes);
  Result<> check_room() const;
  Result<> check_indexed() const;
  Result<std::shared_ptr<const Table>> table_of(std::uint32_t writer);
  Result<> check_files(std::uint32_t writer, const WriterPlaces& places) const;
  void keep(std::uint32_t writer, std::shared_ptr<const Table> table);

  Parts parts_;
  std::uint64_t kept_limit_;
  std::uint64_t kept_bytes_ = 0;  // of different tables
  std::unordered_map<std::uint32_t, Kept> kept_{};
  std::list<std::uint32_t> uses_{};  // writers, the latest first
  std::unordered_map<std::string, std::weak_ptr<const Table>> alike_{};
};

}  // namespace ckpt::universal
