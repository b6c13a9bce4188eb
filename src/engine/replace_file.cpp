#include "engine/replace_file.hpp"

#include <span>
#include <utility>

namespace ckpt {
namespace {

Result<> write_temporary(Io& io, const std::string& path, std::string_view bytes) {
  // What a crash left may be longer than what is written now, and a name made twice would not be a new file.
  auto removed = io.unlink(path);
  if (!removed && removed.error().code != Errc::not_found) return removed;
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new}));
  auto written = io.write_at(file, 0, std::as_bytes(std::span(bytes)));
  if (written) written = io.sync(file);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

}  // namespace

Result<> replace_file(Io& io, const std::string& path, std::string_view bytes) {
  const std::string temporary = path + std::string(kTemporarySuffix);
  auto done = write_temporary(io, temporary, bytes);
  if (done) done = io.rename(temporary, path, RenameMode::replace);
  if (!done) {
    static_cast<void>(io.unlink(temporary));
    return done;
  }
  return io.sync_dir(parent_path(path));
}

}  // namespace ckpt
