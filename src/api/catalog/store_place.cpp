#include "api/catalog/store_place.hpp"

#include <fmt/format.h>

#include "engine/store/held_store.hpp"

namespace ckpt {

std::string store_here() {
  const std::string here = ".";
  const auto io = open_io(IoKind::threads);
  const auto around = io ? store_around(**io, here) : Result<std::string>();
  return around && !around->empty() ? *around : here;
}

Result<> check_outermost(Io& io, const std::string& store) {
  if (const auto there = io.stat(store); !there && there.error().code == Errc::not_found)
    return fail({.code = Errc::not_found, .message = store + ": no such directory", .file = store});
  CKPT_TRY(const std::string around, store_around(io, store));
  if (around.empty()) return {};
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: lies in the store {}", store, around),
               .file = store,
               .hint = fmt::format("--store {}", around)});
}

}  // namespace ckpt
