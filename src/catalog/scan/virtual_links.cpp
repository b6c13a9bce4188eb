#include "catalog/scan/virtual_links.hpp"

#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

bool is_about_bytes(const Error& error) {
  return error.code == Errc::corrupt || error.code == Errc::checksum || error.code == Errc::not_found;
}

/// From the second copy if the first is lost or torn.
Result<universal::Manifest> read_either(Io& io, const std::string& checkpoint) {
  auto first = read_manifest(io, checkpoint);
  if (first || !is_about_bytes(first.error())) return first;
  CKPT_TRY(const std::string text,
           read_small_file(io, join_path(checkpoint, universal::kManifestCopyPath), kMostManifestBytes));
  return universal::parse_manifest(text);
}

}  // namespace

std::vector<FoundLink> find_virtual_links(Io& io, const std::string& store, const std::string& run,
                                          const std::string& name) {
  std::vector<FoundLink> out;
  const auto manifest = read_either(io, join_path(run_path(store, run), name));
  if (!manifest) {
    if (!is_about_bytes(manifest.error())) out.push_back({.run = run, .path = name, .unreadable = true});
    return out;
  }
  for (std::string& file : referenced_paths(*manifest, ""))
    out.push_back({.run = run, .holder = name, .leads = std::move(file)});
  return out;
}

}  // namespace ckpt::catalog
