#include "engine/io/stat_if_present.hpp"

namespace ckpt {

Result<std::optional<FileInfo>> stat_if_present(Io& io, const std::string& path) {
  auto info = io.stat(path);
  if (info) return std::optional<FileInfo>(*info);
  if (info.error().code == Errc::not_found) return std::optional<FileInfo>();
  return fail(std::move(info).error());
}

}  // namespace ckpt
