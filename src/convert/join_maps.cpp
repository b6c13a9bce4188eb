#include "convert/join_maps.hpp"

#include <fmt/format.h>

#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/joined_index.hpp"

namespace ckpt {
namespace {

Result<> check_names_apart(const Map& map, const Map& more, const std::string& root) {
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : map.tensors) names.insert(tensor.name);
  for (const Alias& alias : map.aliases) names.insert(alias.name);
  const auto clash = [&](const std::string& name) {
    return fail({.code = Errc::ambiguous,
                 .message = fmt::format("{}: two files hold '{}'", root, name),
                 .file = root,
                 .tensor = name,
                 .hint = "convert the files by their own paths, or move the unwanted one"});
  };
  for (const Tensor& tensor : more.tensors) {
    if (names.contains(tensor.name)) return clash(tensor.name);
  }
  for (const Alias& alias : more.aliases) {
    if (names.contains(alias.name)) return clash(alias.name);
  }
  return {};
}

template <class T>
void append_all(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Result<> join_maps(Map& map, Map more, const std::string& folder, const std::string& root) {
  CKPT_CHECK(check_names_apart(map, more, root));
  const std::size_t first_tensor = map.tensors.size();
  const auto first_file = static_cast<std::uint32_t>(map.files.size());
  auto joined = std::make_shared<JoinedIndex>();
  joined->add(map.index, 0, 0);
  joined->add(more.index, first_tensor, first_file);
  map.index = std::move(joined);
  for (MapFile& file : more.files) {
    if (!folder.empty() && !is_temporary(file)) file.path = join_path(folder, file.path);
  }
  for (Derived& derived : more.derived) {
    derived.tensor += static_cast<std::uint32_t>(first_tensor);
    derived.from += static_cast<std::uint32_t>(first_tensor);
  }
  append_all(map.tensors, more.tensors);
  append_all(map.files, more.files);
  append_all(map.aliases, more.aliases);
  append_all(map.derived, more.derived);
  append_all(map.objects, more.objects);
  append_all(map.findings, more.findings);
  map.compressed = map.compressed || more.compressed;
  if (!map.meta.step) map.meta.step = more.meta.step;
  if (!map.meta.world_size) map.meta.world_size = more.meta.world_size;
  Hasher metadata;
  metadata.update(map.metadata_hash);
  metadata.update(more.metadata_hash);
  map.metadata_hash = metadata.digest().hex();
  return {};
}

}  // namespace ckpt
