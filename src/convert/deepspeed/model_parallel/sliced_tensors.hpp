#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/model_parallel/slice_rules.hpp"
#include "format/model/rank_layout.hpp"

namespace ckpt::deepspeed {

/// A rank of a model-parallel mesh: its pipeline stage and its tensor-parallel rank.
struct ModelRank {
  std::uint64_t stage = 0;
  std::uint64_t tensor_rank = 0;
};

/// The ranks of one run, and how their slices are joined.
struct SliceMesh {
  std::uint64_t model_ranks = 1;  ///< tensor-parallel ranks x pipeline stages
  std::uint64_t tensor_ranks = 1;
  std::map<std::uint64_t, SliceRules> rules{};        ///< by pipeline stage
  std::map<std::uint64_t, std::string> rule_files{};  ///< their files, by stage, for error messages
  std::unordered_set<std::string> tied{};             ///< parameters that several stages train, under any name
  std::set<std::uint64_t> whole_experts{};  ///< pipeline stages whose tensor-parallel ranks have whole experts
};

/// The numbers of ranks, from the model file of the first one; no rules.
/// facts   of that file
/// last    the highest model-parallel rank in a file name
/// layers  of a pipeline: if older releases omitted the degrees, their names show the tensor-parallel ranks
/// errors  corrupt: numbers that contradict each other
Result<SliceMesh> read_mesh(const StateFile& file, const RunFacts& facts, std::uint64_t last,
                            const std::vector<LayerFile>& layers);

/// Tensors of which model-parallel ranks hold slices: of one kind (weights, or slots of the optimizer), by name.
class SlicedTensors {
 public:
  struct Entry {
    Tensor tensor{};                                                       ///< as the first rank has it
    std::map<std::uint64_t, std::map<std::uint64_t, RankSlice>> slices{};  ///< by stage, then by tensor-parallel rank
  };

  /// Adds a rank's slice of the tensor of this name, or a copy of one that is there. `file`: the file that holds it.
  /// errors   corrupt: another dtype than in the files of other ranks, or shape than that of the copy
  Result<> add(const std::string& file, Tensor tensor, const ModelRank& rank, RankSlice slice);
  const Entry* find(const std::string& name) const;
  const std::vector<Entry>& entries() const { return entries_; }

  /// Joins one. A tied layer on several stages is one tensor with copies.
  /// errors   incomplete: a rank's slice is in no file; unsupported: no rule, or several stages hold it and it is not
  ///          tied; corrupt: shapes that do not fit
  static Result<Assembled> assemble(const Entry& entry, const SliceMesh& mesh);

  /// Adds one to the map, joined. errors as assemble
  static Result<> place(MapBuilder& builder, const Entry& entry, const SliceMesh& mesh);

  /// The tensor that it is another name of, or null.
  /// shared   names, and the names that they are tied to
  const Entry* tied_to(const Entry& entry, const std::vector<std::pair<std::string, std::string>>& shared) const;

  /// Second names of tensors: those that a file lists, which count if both are at the same place, and known ones.
  struct Ties {
    std::vector<std::pair<std::string, std::string>> shared{};
    std::vector<Alias> known{};
  };
  /// Adds every rank's slices to the map for themselves, as NAME@RANK, and to what that rank holds.
  /// placed  called after each, with the tensor as the rank calls it and the rank
  Result<> place_apart(MapBuilder& builder, const SliceMesh& mesh, const Ties& ties, RankLayout& out,
                       const std::function<void(const Tensor&, std::uint64_t)>& placed) const;

  /// Adds tensors that no rule matches (buffers, frozen weights) to the map: as a second name if it shares its location
  /// with a tensor that has a rule, else every rank's slice separately, as NAME@RANK, with a finding.
  /// shared   as in tied_to; ruled: whether rules place a tensor
  Result<> place_unruled(MapBuilder& builder, const Entry& entry, const SliceMesh& mesh,
                         const std::vector<std::pair<std::string, std::string>>& shared,
                         const std::function<bool(const std::string&)>& ruled) const;

 private:
  std::vector<Entry> entries_{};
  std::unordered_map<std::string, std::size_t> entry_at_{};
};

/// The prefix of the names of tied layers of a pipeline.
constexpr std::string_view kTiedModules = "tied_modules.";

}  // namespace ckpt::deepspeed
