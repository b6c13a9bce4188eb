#include "engine/io/hard_links.hpp"

namespace ckpt {

Result<> link_file(Io& io, const std::string& from, const std::string& to) {
  auto* links = dynamic_cast<HardLinks*>(&io);
  if (links == nullptr)
    return fail({.code = Errc::unsupported, .message = to + ": not on this file system", .file = to});
  return links->link(from, to);
}

}  // namespace ckpt
