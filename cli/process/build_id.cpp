#include "cli/process/build_id.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace ckpt::cli {
namespace {

/// The notes of one segment: {name size, description size, type}, name, description, each padded to 4 bytes.
std::string find_note(const unsigned char* at, std::size_t bytes) {
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, at, sizeof header);
    const std::size_t name = (std::size_t{header.n_namesz} + 3) / 4 * 4;
    const std::size_t total = sizeof header + name + (std::size_t{header.n_descsz} + 3) / 4 * 4;
    if (total > bytes) return {};
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(at + sizeof header, "GNU", 4) == 0) {
      std::string out;
      for (std::size_t i = 0; i < header.n_descsz; ++i) out += fmt::format("{:02x}", at[sizeof header + name + i]);
      return out;
    }
    at += total;
    bytes -= total;
  }
  return {};
}

int look(dl_phdr_info* info, std::size_t, void* data) {
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const std::string found =
        find_note(reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    if (found.empty()) continue;
    *static_cast<std::string*>(data) = found;
    break;
  }
  return 1;  // the first object is the program itself
}

}  // namespace

std::string build_id() {
  std::string out;
  dl_iterate_phdr(look, &out);
  return out;
}

}  // namespace ckpt::cli
