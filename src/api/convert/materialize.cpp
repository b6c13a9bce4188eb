#include "api/convert/materialize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "engine/io/real_path.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/locks/claims.hpp"
#include "engine/store/partial_name.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

tl::unexpected<Error> refused(const std::string& path, std::string_view reason, std::string hint) {
  return fail(
      {.code = Errc::usage, .message = fmt::format("{}: {}", path, reason), .file = path, .hint = std::move(hint)});
}

/// A conversion cannot carry over the place in a run and the marks there.
Result<> check_replaceable(Io& io, const std::string& path) {
  const std::string real = real_path(path).value_or(path);
  if (CheckpointName::parse(base_name(real)) && !stores_above(io, real).empty())
    return refused(path, "a checkpoint of a run is not replaced",
                   fmt::format("'ckpt save {} --store STORE --run RUN' saves a copy of all tensors", path));
  const catalog::Marks said = catalog::read_marks(io, catalog::marks_path(path, false));
  if (said.marks.empty() && said.unreadable.empty()) return {};
  return refused(path, "not replaced: its pins, tags or notes would be lost",
                 fmt::format("'ckpt materialize {} OUT' keeps it", path));
}

}  // namespace

Result<InPlace> check_in_place(Io& io, const Source& source, const std::string& target) {
  CKPT_TRY(const auto there, stat_if_present(io, join_path(target, "")));
  CKPT_TRY(const FileInfo from, io.stat(source.root));
  const bool is_same = there && there->is_same_file(from);
  if (std::ranges::none_of(source.map.files, is_referenced)) {
    if (is_same) {
      CKPT_TRY(const auto old, stat_if_present(io, partial_path(join_path(target, ""), source.map.id)));
      if (old) return InPlace::done;
    }
    return refused(source.root, "not a virtual checkpoint: it holds its tensors itself",
                   "'ckpt convert' copies any checkpoint");
  }
  if (!is_same) return InPlace::no;
  CKPT_CHECK(check_replaceable(io, source.root));
  return InPlace::yes;
}

}  // namespace ckpt
