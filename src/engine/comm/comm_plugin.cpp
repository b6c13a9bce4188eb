// Loads the MPI plug-in, and checks its release before it is used.
#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "engine/comm/comm.hpp"
#include "engine/process/installed.hpp"

namespace ckpt {
namespace {

constexpr const char* kPluginName = "libckpt_mpi.so";
using OpenFunction = int (*)(ckpt_comm_table*);

Result<void*> load_plugin() {
  // Global: MPI libraries load parts of their own that expect to find its symbols. Never unloaded: they leave exit
  // handlers behind.
  constexpr int kFlags = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
  const auto path = find_installed(kPluginName, {"", "../lib", "../lib/x86_64-linux-gnu"});
  if (!path) {
    return fail({.code = Errc::mpi_launch,
                 .message = fmt::format("{}: not installed next to ckpt", kPluginName),
                 .file = kPluginName,
                 .hint = "install the MPI plug-in, or run without mpirun"});
  }
  if (void* loaded = ::dlopen(path->c_str(), kFlags)) return loaded;
  return fail({.code = Errc::mpi_launch, .message = fmt::format("{}: {}", *path, ::dlerror()), .file = *path});
}

}  // namespace

Result<ckpt_comm_table> load_mpi_table() {
  CKPT_TRY(void* plugin, load_plugin());
  const auto open = reinterpret_cast<OpenFunction>(::dlsym(plugin, "ckpt_mpi_open"));
  if (open == nullptr) {
    return fail(Errc::mpi_launch, fmt::format("{}: ckpt_mpi_open is missing", kPluginName));
  }
  ckpt_comm_table table{};
  if (open(&table) != 0) return fail(Errc::mpi_launch, fmt::format("{}: MPI cannot be initialised", kPluginName));
  if (table.size < sizeof(ckpt_comm_table)) {
    if (table.close != nullptr) table.close(table.self);
    return fail(Errc::mpi_launch, fmt::format("{}: it belongs to another release", kPluginName));
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
