#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "api/convert/conversion.hpp"
#include "api/convert/slice.hpp"
#include "api/verbs.hpp"

/// A load is a conversion of chosen parts: the same selection, plan, engine and commit.
namespace ckpt {
namespace {

std::string load_names() {
  std::string names;
  for (const Format& format : formats()) {
    if (format.parts_writer) names += (names.empty() ? "" : ", ") + std::string(format.parts_writer->name);
  }
  return names;
}

Result<const Format*> choose_form(const LoadRequest& request) {
  for (const Format& format : formats()) {
    if (!format.parts_writer) continue;
    const std::string name(format.parts_writer->name);
    const bool by_suffix = request.to.empty() && request.target.ends_with("." + name);
    if (by_suffix || request.to == name) return &format;
  }
  if (!request.to.empty()) {
    return fail({.code = Errc::usage,
                 .message = request.target + ": --to '" + request.to + "' cannot be written",
                 .hint = "supported formats: " + load_names()});
  }
  return fail({.code = Errc::usage,
               .message = request.target + ": cannot tell the output format from this name",
               .hint = "use X.npy, X.safetensors or --to FORMAT: " + load_names()});
}

/// A word of --only that takes the tensor of this name and no other.
std::string as_glob(const std::string& name) {
  std::string out;
  if (name == "weights" || name == "optim") return std::string("[") + name[0] + "]" + name.substr(1);
  for (const char c : name) out += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
  return out;
}

Result<std::vector<Slice>> parse_slices(const LoadRequest& request) {
  std::vector<Slice> out;
  for (const std::string& text : request.slices) {
    CKPT_TRY(Slice slice, parse_slice(text));
    out.push_back(std::move(slice));
  }
  return out;
}

/// Gives the selected tensors their slices.
Result<> cut_tensors(const Map& map, const std::vector<Slice>& slices, Selection& selection) {
  std::unordered_map<std::string_view, std::string_view> tied;
  for (const Alias& alias : map.aliases) tied.emplace(alias.name, alias.target);
  std::unordered_map<std::string_view, Selected*> by_name;
  for (Selected& each : selection.tensors) {
    by_name.emplace(each.name, &each);
    by_name.emplace(map.tensors[each.tensor].name, &each);
  }
  for (const Slice& slice : slices) {
    const auto alias = tied.find(slice.name);
    const auto found = by_name.find(alias == tied.end() ? std::string_view(slice.name) : alias->second);
    Selected* const selected = found == by_name.end() ? nullptr : found->second;
    if (selected == nullptr) {
      return fail({.code = Errc::usage,
                   .message = slice.name + ": --slice names it, but --only excludes it",
                   .tensor = slice.name});
    }
    if (selected->part) {
      return fail({.code = Errc::usage,
                   .message = slice.name + ": more than one --slice for this tensor",
                   .tensor = slice.name});
    }
    CKPT_TRY(selected->part, apply_slice(slice, map.tensors[selected->tensor]));
  }
  return {};
}

/// Checks that every slice names an existing tensor.
Result<> check_names(const Map& map, const std::vector<Slice>& slices) {
  if (slices.empty()) return {};
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : map.tensors) names.insert(tensor.name);
  for (const Alias& alias : map.aliases) names.insert(alias.name);
  for (const Slice& slice : slices) {
    if (names.contains(slice.name)) continue;
    return fail({.code = Errc::not_found, .message = slice.name + ": no such tensor", .tensor = slice.name});
  }
  return {};
}

/// The tensors of a load as they are laid out.
std::vector<LoadedTensor> loaded_tensors(Conversion& conversion, const std::vector<Slice>& slices) {
  const Map& map = conversion.map();
  std::unordered_map<std::string_view, std::string_view> texts;
  for (const Slice& slice : slices) texts.emplace(slice.name, slice.text);
  for (const Alias& alias : map.aliases) {
    if (const auto text = texts.find(alias.name); text != texts.end()) texts.emplace(alias.target, text->second);
  }
  std::vector<LoadedTensor> out;
  std::size_t next = 0;  // file of a tensor; a single file holds all
  for (const Selected& selected : conversion.selection().tensors) {
    const Tensor& tensor = map.tensors[selected.tensor];
    if (tensor.role == Role::blob) continue;
    LoadedTensor& loaded = out.emplace_back();
    loaded.name = selected.name;
    loaded.dtype = dtype_name(selected.dtype);
    loaded.shape = selected.part ? selected.part->shape : tensor.shape;
    loaded.bytes = tensor_bytes(selected.dtype, loaded.shape).value_or(0);
    if (conversion.is_directory()) loaded.file = conversion.files()[next++].path;
    const auto text = texts.find(texts.contains(tensor.name) ? tensor.name : selected.name);
    if (selected.part && text != texts.end()) loaded.slice = text->second;
  }
  return out;
}

}  // namespace

Result<LoadReport> load(Session& session, const LoadRequest& request) {
  CKPT_TRY(const std::vector<Slice> slices, parse_slices(request));
  CKPT_TRY(const Format* const form, choose_form(request));
  ConvertRequest wanted{.source = request.source,
                        .target = request.target,
                        .from = request.from,
                        .only = request.only,
                        .dry_run = request.dry_run,
                        .overwrite = request.overwrite,
                        .verify = request.verify};
  if (wanted.only.empty()) {
    for (const Slice& slice : slices) wanted.only.push_back(as_glob(slice.name));
  }
  std::vector<std::string> parameters{"load"};
  parameters.insert(parameters.end(), request.slices.begin(), request.slices.end());
  Conversion conversion(session, wanted, {.target = form, .parameters = std::move(parameters), .in_parts = true});
  const auto choose = [&]() -> Result<> {
    CKPT_CHECK(conversion.open());
    CKPT_CHECK(check_names(conversion.map(), slices));
    CKPT_CHECK(conversion.select());
    return cut_tensors(conversion.map(), slices, conversion.selection());
  };
  CKPT_CHECK(conversion.agree_on_choice(choose()));
  CKPT_CHECK(conversion.lay_out());
  LoadReport out;
  if (conversion.is_laid_out()) out.tensors = loaded_tensors(conversion, slices);
  CKPT_TRY(out.conversion, conversion.finish());
  return out;
}

}  // namespace ckpt
