#include "convert/megatron/integrity.hpp"

#include <cstdint>
#include <utility>

#include "engine/io/stat_if_present.hpp"
#include "format/text/json.hpp"
#include "format/text/relative_path.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kMostIntegrityBytes = std::uint64_t{64} << 20;
constexpr std::string_view kAlgorithm = "sha256";
constexpr std::size_t kDigestDigits = 64;

bool is_digest(std::string_view text) {
  return text.size() == kDigestDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<std::vector<FileDigest>> stated_digests(Io& io, const std::string& root) {
  const std::string path = join_path(root, kIntegrity);
  CKPT_TRY(const auto there, stat_if_present(io, path));
  if (!there) return std::vector<FileDigest>{};
  const auto refuse = [&](Errc code, const std::string& reason) {
    return fail({.code = code, .message = path + ": " + reason, .file = path});
  };
  CKPT_TRY(const std::string text, read_small_file(io, path, kMostIntegrityBytes));
  const auto document = json::parse(text);
  if (!document) return refuse(Errc::corrupt, document.error().message);
  const json::Value* algorithm = document->find("algorithm");
  const json::Value* files = document->find("files");
  if (algorithm == nullptr || algorithm->text() == nullptr || files == nullptr || files->object() == nullptr)
    return refuse(Errc::corrupt, "it has no 'algorithm' or no 'files'");
  if (*algorithm->text() != kAlgorithm)
    return refuse(Errc::unsupported, "digests of '" + algorithm->text()->substr(0, 32) + "' are not computed");
  std::vector<FileDigest> out;
  for (const auto& [name, value] : *files->object()) {
    const std::string* digest = value.text();
    if (!stays_inside(name)) return refuse(Errc::refused, "it names a file outside of its directory: " + name);
    if (digest == nullptr || !is_digest(*digest)) return refuse(Errc::corrupt, "the digest of " + name + " is damaged");
    out.push_back({.path = name, .sha256 = *digest});
  }
  return out;
}

}  // namespace ckpt::megatron
