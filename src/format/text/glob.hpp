#pragma once

#include <string_view>

namespace ckpt {

/// True when `name` matches a glob: '*' any run, '?' one character, '[abc]' one of a set.
bool matches_glob(std::string_view name, std::string_view glob);

}  // namespace ckpt
