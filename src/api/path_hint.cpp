#include "api/path_hint.hpp"

#include <fmt/format.h>

#include "convert/nearest_path.hpp"

namespace ckpt {

Error with_nearest_path(Error error) {
  if (error.code != Errc::not_found || error.file.empty() || !error.hint.empty()) return error;
  const auto io = open_io(IoKind::threads);
  if (!io || (*io)->stat(error.file)) return error;
  if (const std::string near = nearest_path(**io, error.file); !near.empty()) {
    error.hint = fmt::format("did you mean {}?", near);
  }
  return error;
}

}  // namespace ckpt
