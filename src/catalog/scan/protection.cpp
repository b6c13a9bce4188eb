#include "catalog/scan/protection.hpp"

#include <fmt/format.h>

#include "catalog/scan/marks.hpp"
#include "catalog/scan/reference_marks.hpp"

namespace ckpt::catalog {

Result<> check_unprotected(Io& io, const std::string& checkpoint, const std::string& marks, Time now) {
  const Marks said = read_marks(io, marks);
  if (!said.unreadable.empty()) return fail(Errc::io, "its marks are unreadable: " + said.unreadable);
  for (const Mark& mark : said.marks) {
    const bool holds = mark.kind == Mark::Kind::pin && (!mark.until || now < *mark.until);
    if (holds) return fail(Errc::not_done, "pinned");
    if (mark.kind == Mark::Kind::reference && !is_owner_gone(io, checkpoint, mark))
      return fail(Errc::not_done, fmt::format("{} refers to it", mark.name));
  }
  return {};
}

}  // namespace ckpt::catalog
