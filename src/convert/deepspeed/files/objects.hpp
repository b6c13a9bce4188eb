#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/state_file.hpp"
#include "format/model/model.hpp"

namespace ckpt::deepspeed {

/// A tensor found inside an object, under the object's path.
struct ObjectTensor {
  std::string name;
  Path path;
  FileTensor tensor;
};

/// The small tensors in the first rank's objects, by name: other ranks mostly have the same ones, such as a learning rate.
class FirstTensors {
 public:
  /// One that cannot be read here is left out: reading it as a tensor says why.
  void note(const StateFile& file, const std::vector<ObjectTensor>& tensors);
  /// Whether it is the first rank's of this name, bit for bit.
  bool has(const StateFile& file, const std::string& name, const FileTensor& tensor) const;

 private:
  struct Content {
    ModelType type;
    std::vector<std::byte> bytes{};
  };
  std::unordered_map<std::string, Content> by_name_{};
};

/// Turns nodes of one file into inert values. The file must outlive it.
class ObjectReader {
 public:
  /// rank_suffix  ends the names of tensors: "" for the first rank, "@3" for rank 3, whose tensors are its own
  /// first        if given, what is among them has its name, and is not a tensor of this rank; must outlive the reader
  explicit ObjectReader(const StateFile& file, std::string rank_suffix = {}, const FirstTensors* first = nullptr)
      : file_(file), rank_suffix_(std::move(rank_suffix)), first_(first) {}

  /// The value of a node. Tensors inside become references to names made of `path` and the way to them; they are added
  /// to tensors().
  Result<Value> read(pickle::NodeId node, const Path& path);
  /// The value of a node without its tensors.
  Result<Value> read_plain(pickle::NodeId node, const std::string& where);

  const std::vector<ObjectTensor>& tensors() const { return tensors_; }
  /// Names of tensors that no map can hold (sparse, quantised, ...): left out.
  const std::vector<std::string>& dropped() const { return dropped_; }

 private:
  Result<> name_tensors(pickle::NodeId node, const Path& path);
  Result<Value> value(pickle::NodeId node, const std::string& where);

  const StateFile& file_;
  std::string rank_suffix_;
  const FirstTensors* first_;
  std::unordered_map<pickle::NodeId, std::string> names_{};  // of the object being read
  std::vector<ObjectTensor> tensors_{};
  std::vector<std::string> dropped_{};
  torch::Expansion expansion_{};
};

/// The classes of a file's objects that neither torch nor DeepSpeed defines, as "module.name": only the pickle keeps
/// their meaning.
std::vector<std::string> foreign_classes(const StateFile& file);

/// Objects that every rank stores: kept once where all agree, else once a rank as NAME@RANK.
class RankObjects {
 public:
  /// Adds the state of a rank. The first rank added sets the order. True if it equals the first one's.
  bool add(std::uint64_t rank, std::vector<NamedObject> objects);
  std::vector<NamedObject> take();

 private:
  struct Item {
    NamedObject first;
    std::vector<std::uint64_t> equal{};  // ranks that agree with the first
    std::vector<std::pair<std::uint64_t, Value>> different{};
  };
  std::vector<Item> items_{};
  std::unordered_map<std::string, std::size_t> by_name_{};
  std::uint64_t rank_count_ = 0;
};

}  // namespace ckpt::deepspeed
