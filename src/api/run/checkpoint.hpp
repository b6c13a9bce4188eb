#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/open_source.hpp"
#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/universal/declared_model.hpp"
#include "loading/load.hpp"

namespace ckpt {

/// A part of a tensor to be read.
struct NamedRead {
  std::string name;
  std::optional<Box> box{};  ///< none: this rank's part by the model, else the whole tensor
  std::byte* out = nullptr;  ///< dense, row-major, in the tensor's dtype; owned by the caller
  std::uint64_t bytes = 0;   ///< of `out`: must be those of the part
};

/// A committed checkpoint, open for reading: its lease is held while this lives. Of any format that is read.
class Checkpoint {
 public:
  /// saved_trees  as of ReadOptions in convert
  /// errors       as open_source
  static Result<std::unique_ptr<Checkpoint>> open(Io& io, const std::string& path, bool saved_trees = false);

  const std::string& path() const { return path_; }
  const Map& map() const { return source_.map; }
  std::uint64_t step() const { return map().meta.step.value_or(0); }
  const Tensor* find(std::string_view name) const;

  struct ReadOptions {
    const Model* model = nullptr;
    std::uint64_t rank = 0;  ///< in the model
    bool whole_leaves = false;
    bool partial = false;  ///< names that are not here are counted, not refused
    unsigned workers = 1;
    const std::atomic<bool>* stop = nullptr;  ///< ends with `interrupted`
    std::function<void()> pulse{};            ///< see LoadOptions
  };
  struct Report {
    ReadReport load{};
    std::vector<std::string> missing{};
  };
  /// The plan of some reads: parts sorted by name, those of one name in the given order.
  struct Requests {
    std::vector<PartRead> parts{};
    std::vector<std::string> missing{};
  };
  /// Local.
  /// errors  not_found: a name; usage: a part of the wrong size, shape or dtype
  Result<Requests> requests(std::span<const NamedRead> reads, const ReadOptions& options) const;
  /// Executes a plan for `parts`. Local.
  /// errors  as load_into; incomplete: a file was removed in the meantime
  Result<ReadReport> read(std::span<const PartRead> parts, LoadPlan plan, Io& io, BufferPool& pool,
                          const ReadOptions& options) const;
  LeavesOf leaves() const;

  /// Both, of everything. Local.
  /// errors  as those two
  Result<Report> read(std::span<const NamedRead> reads, Io& io, BufferPool& pool, const ReadOptions& options) const;

 private:
  std::string path_{};
  Source source_{};
  std::unordered_map<std::string_view, std::uint32_t> by_name_{};  // of the map's tensors and aliases
};

}  // namespace ckpt
