#include "engine/io/hold_directory.hpp"

namespace ckpt {

Result<std::unique_ptr<HeldDirectory>> hold_directory(Io& io, const std::string& path, const HoldOptions& options) {
  auto* holds = dynamic_cast<HoldsDirectories*>(&io);
  return holds == nullptr ? std::make_unique<HeldDirectory>() : holds->hold_directory(path, options);
}

}  // namespace ckpt
