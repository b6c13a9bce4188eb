#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "format/universal/manifest.hpp"

namespace ckpt::universal {
namespace {

constexpr std::string_view kSeal = R"("xxh3":")";
constexpr std::size_t kSealBytes = kSeal.size() + 32 + 3;  // the digits, a quote, a brace, a line break

/// The members that a revision puts before the seal, with the comma after them.
std::string members(std::uint64_t revision, const std::vector<FileClass>& dropped) {
  std::string names;
  for (const FileClass file_class : dropped)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", class_name(file_class));
  return fmt::format(R"("revision":{},"dropped":[{}],)"
                     "\n",
                     revision, names);
}

tl::unexpected<Error> needed(const std::string& name) {
  return fail({.code = Errc::unsupported,
               .message = fmt::format("{}: drop the optimizer: its value is stored only in the optimizer state", name),
               .tensor = name});
}

}  // namespace

Result<> check_weights_alone(const Manifest& manifest) {
  std::unordered_set<std::string_view> weights;
  std::unordered_set<std::string_view> slots;
  for (const TensorRow& row : manifest.tensors) {
    if (row.file_class() == FileClass::weights) weights.insert(row.tensor.name);
    if (row.file_class() == FileClass::optim) slots.insert(row.tensor.name);
  }
  if (weights.empty() && !slots.empty()) return fail(Errc::unsupported, "drop the optimizer: nothing else is left");
  for (const Alias& alias : manifest.aliases) {
    if (slots.contains(alias.target)) return needed(alias.name);
    weights.insert(alias.name);
  }
  for (const TensorRow& row : manifest.tensors) {
    const Tensor& tensor = row.tensor;
    if (tensor.slot == "master" && !weights.contains(tensor.parameter)) return needed(tensor.name);
  }
  return {};
}

Result<std::string> revise_manifest(std::string_view text, const std::vector<FileClass>& dropped) {
  CKPT_TRY(const Manifest manifest, parse_manifest(text));  // so it is as long as its seal
  std::string out(text.substr(0, text.size() - kSealBytes));
  const std::string present = members(manifest.revision, manifest.dropped);
  if (out.ends_with(present)) out.resize(out.size() - present.size());
  out += members(manifest.revision + 1, dropped);
  out += kSeal;
  out += hash128(out).hex();
  out += "\"}\n";
  const auto revised = parse_manifest(out);
  if (revised && revised->revision == manifest.revision + 1 && revised->dropped == dropped) return out;
  return fail(Errc::unsupported, "manifest.json: revise: its revision is in an unexpected place, and was not changed");
}

}  // namespace ckpt::universal
