#include "convert/deepspeed/files/kept_objects.hpp"

#include <utility>

namespace ckpt::deepspeed {

Result<std::vector<NamedObject>> model_objects(const StateFile& file, ObjectReader& reader) {
  std::vector<NamedObject> objects;
  CKPT_TRY(const auto entries, file.named_entries(file.root(), "model states"));
  for (const auto& [key, node] : entries) {
    if (is_layout_key(key)) continue;
    const Path path{key};
    CKPT_TRY(Value value, reader.read(node, path));
    objects.push_back({key, splits_to(key, path) ? Path{} : path, std::move(value)});
  }
  return objects;
}

Result<> module_objects(const ModelStates& model, ObjectReader& reader, std::vector<NamedObject>& objects) {
  for (const auto& [name, node] : model.module_objects) {
    const Path path{name};
    CKPT_TRY(Value value, reader.read(node, path));
    objects.push_back({name, splits_to(name, path) ? Path{} : path, std::move(value)});
  }
  return {};
}

std::string rank_suffix(std::uint64_t rank) {
  return rank == 0 ? "" : "@" + std::to_string(rank);
}

void KeptObjects::keep(const StateFile& file, std::uint64_t rank, const ObjectReader& reader, Of of,
                       std::vector<NamedObject> objects) {
  RankObjects& set = of == Of::model ? model_ : optimizer_;
  const bool known = set.add(rank, std::move(objects));
  if (rank == 0) first_tensors_.note(file, reader.tensors());
  tensors_.insert(tensors_.end(), reader.tensors().begin(), reader.tensors().end());
  for (const std::string& name : reader.dropped()) {
    builder_.find(Severity::warning, name + ": a tensor of this kind cannot be carried over", file.path(), name);
  }
  const auto foreign = foreign_classes(file);
  if (foreign.empty() || (rank != 0 && known)) return;
  pickles_.push_back({file.path(), file.index(), file.archive().pickle_bytes});
  std::string names;
  for (const std::string& name : foreign) names += (names.empty() ? "" : ", ") + name;
  builder_.find(Severity::note, "objects of classes that are not known are kept as their pickle: " + names,
                file.path());
}

Result<> KeptObjects::finish() {
  for (const ObjectTensor& tensor : tensors_) CKPT_CHECK(builder_.add_object_tensor(tensor));
  for (const Pickle& pickle : pickles_) CKPT_CHECK(builder_.add_pickle(pickle.path, pickle.file, pickle.bytes));
  std::vector<NamedObject>& objects = builder_.map().objects;
  for (NamedObject& object : model_.take()) objects.push_back(std::move(object));
  for (NamedObject& object : optimizer_.take()) objects.push_back(std::move(object));
  return {};
}

}  // namespace ckpt::deepspeed
