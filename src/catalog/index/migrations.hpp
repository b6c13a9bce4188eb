#pragma once

#include <span>
#include <string_view>

namespace ckpt::catalog {

/// The scripts of schemas/catalog, in order: the n-th migrates version n to n + 1.
std::span<const std::string_view> migrations();

}  // namespace ckpt::catalog
