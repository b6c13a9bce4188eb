#include "format/files/hf_index.hpp"

#include <algorithm>

#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/relative_path.hpp"

namespace ckpt::hf {

Result<Index> parse_index(std::string_view text) {
  CKPT_TRY(const json::Value document, json::parse(text, {.max_bytes = kMaxIndexBytes}));
  const json::Value* weight_map = document.find("weight_map");
  if (weight_map == nullptr || weight_map->object() == nullptr)
    return fail(Errc::corrupt, "no weight_map in the index");
  Index index;
  index.weight_map.reserve(weight_map->object()->size());
  for (const auto& [name, value] : *weight_map->object()) {
    const std::string* file = value.text();
    if (file == nullptr)
      return fail({.code = Errc::corrupt, .message = "the index: the file of a tensor is not text", .tensor = name});
    if (!stays_inside(*file))
      return fail({.code = Errc::refused,
                   .message = "the index names a file outside the checkpoint's directory: " + file->substr(0, 200),
                   .tensor = name,
                   .hint = "the index may be hostile: it names a path that leaves its own directory"});
    index.weight_map.emplace_back(name, *file);
  }
  if (const json::Value* metadata = document.find("metadata")) {
    const json::Value* total = metadata->find("total_size");
    if (total != nullptr && total->natural() != nullptr) index.total_size = *total->natural();
  }
  return index;
}

std::string build_index(const Index& index) {
  std::vector<std::pair<std::string, std::string>> sorted = index.weight_map;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  json::Writer out(text, {.indent = 2});
  out.begin_object().key("metadata").begin_object();
  if (index.total_size) out.member("total_size", *index.total_size);
  out.end_object().key("weight_map").begin_object();
  for (const auto& [name, file] : sorted) out.member(name, file);
  out.end_object().end_object();
  return text + '\n';
}

}  // namespace ckpt::hf
