#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/place.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt::torch {

/// One torch.save file of a checkpoint.
struct StateFile {
  std::string path{};    ///< relative to the root; "" = the root is the file
  std::string prefix{};  ///< prefix of its names: "" or "FILE/"
  /// Set: a file of a trainer's state next to the weights, whose names begin with this part: "optimizer" of
  /// optimizer.pt, "rng_state_0" of rng_state_0.pth.
  std::string key{};
  bool listed = false;  ///< of a set: it holds the tensors listed in the index
};

/// Which files make up the checkpoint.
struct FileSet {
  std::vector<StateFile> files{};
  std::string index{};                                    ///< "pytorch_model.bin.index.json", or empty
  std::optional<Finding> left_over{};                     ///< an index of which no file is there
  std::unordered_map<std::string, std::string> listed{};  ///< tensor -> file, by the index
  bool collection = false;  ///< several units that are not parts of one trainer's checkpoint
};

/// True for the names that torch.save files have: *.pt, *.pth, *.bin, *.ckpt.
bool has_torch_suffix(std::string_view name);

/// True if these first bytes (512 are enough) begin a torch.save file: a zip whose first entry is FOLDER/data.pkl; a
/// zip, a legacy file or a tar of version 0.1 if the name has a torch suffix.
bool begins_torch_file(std::string_view head, std::string_view name);

Result<std::optional<Match>> detect(const Place& place);

/// The torch.save files of a directory. A set of files with an index is one unit, each other file is one, and the files of a
/// trainer's state belong to it (StateFile::key); in path order the first unit keeps its names, and files of later ones
/// get "FILE/" before theirs. Files of the index's name that it does not list (pytorch_model.bin,
/// pytorch_model-00001-of-00003.bin) are of an earlier save, and are not taken; nor is an index, where the one file that
/// it would divide is there and none of its own.
///
/// errors    incomplete: a file that the index lists is missing; unsupported: nothing here; corrupt, refused: as
/// hf::parse_index metadata  receives the bytes of the index
Result<FileSet> select_files(Io& io, const std::string& root, std::uint64_t limit, Hasher& metadata);

/// The first part of the names of all values in a file of a trainer's state: "optimizer" for optimizer.pt. Nothing if
/// the file has no such name.
std::optional<std::string> trainer_key(std::string_view name);

/// The files of a trainer's state in a directory, in path order, with their keys: those that Hugging Face's Trainer and
/// Accelerate write next to the weights.
/// errors  those of Io
Result<std::vector<StateFile>> trainer_files(Io& io, const std::string& root, const std::vector<DirEntry>& entries);

/// Where all that is left of a Trainer's directory is its optimizer's state: that the weights are missing.
std::optional<Finding> missing_weights(const std::string& root, const std::vector<DirEntry>& entries,
                                       const FileSet& set);

}  // namespace ckpt::torch
