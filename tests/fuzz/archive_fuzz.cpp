#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/io/archive.hpp"
#include "support/memory_io.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// Members of an accepted tar archive are inside of it, in folders that it has.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::MemoryDisk disk;
  disk.put("/a.tar", std::string(reinterpret_cast<const char*>(data), size));
  const auto io = disk.io();
  const auto archive = ckpt::find_archive(*io, "/a.tar");
  if (!archive || !*archive) return 0;
  const auto view = ckpt::make_archive_io(*io, *archive);
  for (const auto& [path, member] : (*archive)->members) {
    require(member.range.begin <= member.range.end && member.range.end <= size);
    require(!path.empty() && path.front() != '/' && path.find("//") == std::string::npos);
    const auto info = view->stat("/a.tar/" + path);
    require(info && info->bytes == member.range.size() && info->kind == member.kind);
    const auto above = view->stat(ckpt::parent_path("/a.tar/" + path));
    require(above && above->kind == ckpt::FileInfo::Kind::directory);
  }
  require(view->list("/a.tar").has_value());
  return 0;
}
