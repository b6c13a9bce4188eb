#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/torch/pickle_graph.hpp"

namespace ckpt::pickle {
namespace {

// Modules whose functions run programs, load code or reach the system. Nothing of them belongs in a checkpoint.
constexpr std::array<std::string_view, 10> kRefusedModules{
    "os", "posix", "nt", "subprocess", "sys", "importlib", "runpy", "shutil", "socket", "ctypes",
};

constexpr std::array<std::string_view, 3> kBuiltinModules{"builtins", "__builtin__", "__builtins__"};

// Types of plain values. `getattr` is how enums were pickled by Python 3.11.
constexpr std::array<std::string_view, 23> kPlainBuiltins{
    "Ellipsis",  "NotImplemented", "bool", "bytearray", "bytes", "complex", "dict",   "float",
    "frozenset", "getattr",        "int",  "list",      "long",  "object",  "range",  "reversed",
    "set",       "slice",          "str",  "tuple",     "type",  "unicode", "xrange",
};

bool is_in_module(std::string_view module, std::string_view refused) {
  return module == refused ||
         (module.size() > refused.size() && module.starts_with(refused) && module[refused.size()] == '.');
}

constexpr std::size_t kLongestGlobal = 4096;  // no module or class has a name as long

}  // namespace

Result<> check_global(std::string_view module, std::string_view name) {
  const bool refused = std::any_of(kRefusedModules.begin(), kRefusedModules.end(),
                                   [&](std::string_view candidate) { return is_in_module(module, candidate); }) ||
                       (std::any_of(kBuiltinModules.begin(), kBuiltinModules.end(),
                                    [&](std::string_view candidate) { return is_in_module(module, candidate); }) &&
                        std::find(kPlainBuiltins.begin(), kPlainBuiltins.end(), name) == kPlainBuiltins.end());
  if (module.size() + name.size() > kLongestGlobal) {
    return fail(
        {.code = Errc::refused, .message = fmt::format("pickle: a global of {} bytes", module.size() + name.size())});
  }
  if (!refused) return {};
  return fail({.code = Errc::refused,
               .message = "pickle: global " + std::string(module) + "." + std::string(name) +
                          ": no checkpoint needs it, and loading it in Python would run it",
               .hint = "do not load this file with torch.load(weights_only=False); ask who made it"});
}

}  // namespace ckpt::pickle
