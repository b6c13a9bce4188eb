// Where the MPI plug-in is looked for, and what it must promise before it is used.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "engine/comm.hpp"
#include "engine/io.hpp"

namespace ckpt {
namespace {

constexpr const char* kPluginName = "libckpt_mpi.so";
using OpenFunction = int (*)(ckpt_comm_table*);

/// The directory of the running program; empty where the system does not tell.
std::string program_directory() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return {};
  return parent_path({path.data(), static_cast<std::size_t>(length)});
}

/// The directory of the library that holds this code, where it is one (a trainer links libckpt.so).
std::string library_directory() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(&library_directory), &found) == 0 || found.dli_fname == nullptr) return {};
  return parent_path(found.dli_fname);
}

std::vector<std::string> plugin_paths() {
  std::vector<std::string> paths;
  if (const std::string directory = library_directory(); !directory.empty()) {
    paths.push_back(join_path(directory, kPluginName));
  }
  if (const std::string directory = program_directory(); !directory.empty()) {
    for (const char* place : {"", "../lib", "../lib/x86_64-linux-gnu"}) {
      paths.push_back(join_path(join_path(directory, place), kPluginName));
    }
  }
  return paths;
}

Result<void*> load_plugin() {
  // Global: MPI libraries load parts of their own that expect to find its symbols. Never unloaded: they leave exit
  // handlers behind.
  constexpr int kFlags = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
  for (const std::string& path : plugin_paths()) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    if (void* loaded = ::dlopen(path.c_str(), kFlags)) return loaded;
    return fail({.code = Errc::mpi_launch, .message = fmt::format("{}: load: {}", path, ::dlerror()), .file = path});
  }
  if (void* loaded = ::dlopen(kPluginName, kFlags)) return loaded;
  return fail({.code = Errc::mpi_launch,
               .message = fmt::format("{}: load: {}", kPluginName, ::dlerror()),
               .file = kPluginName,
               .hint = "install the MPI plug-in, or run without mpirun"});
}

}  // namespace

Result<ckpt_comm_table> load_mpi_table() {
  CKPT_TRY(void* plugin, load_plugin());
  const auto open = reinterpret_cast<OpenFunction>(::dlsym(plugin, "ckpt_mpi_open"));
  if (open == nullptr) {
    return fail(Errc::mpi_launch, fmt::format("{}: load: it has no ckpt_mpi_open", kPluginName));
  }
  ckpt_comm_table table{};
  if (open(&table) != 0) return fail(Errc::mpi_launch, fmt::format("{}: MPI cannot be initialised", kPluginName));
  if (table.size < sizeof(ckpt_comm_table)) {
    if (table.close != nullptr) table.close(table.self);
    return fail(Errc::mpi_launch, fmt::format("{}: load: it belongs to another release", kPluginName));
  }
  return table;
}

Result<std::unique_ptr<Comm>> Comm::mpi(int expected_ranks) {
  CKPT_TRY(const ckpt_comm_table table, load_mpi_table());
  auto comm = std::make_unique<Comm>(table);
  if (expected_ranks > 0 && comm->ranks() != expected_ranks) {
    return fail({.code = Errc::mpi_launch,
                 .message = fmt::format("MPI: start: the launcher promises {} ranks, {} sees {}", expected_ranks,
                                        comm->library(), comm->ranks()),
                 .hint = "launch with the mpirun of that library"});
  }
  return comm;
}

}  // namespace ckpt
