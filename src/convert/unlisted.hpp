#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// Tensors in the files of a Hugging Face checkpoint that its index does not list for the file that holds them.
class Unlisted {
 public:
  /// `elsewhere`  the index lists the name in another file: that tensor is used
  void add(std::string_view name, bool elsewhere);
  /// Superseded tensors are a note; tensors that the index does not list are data that is skipped.
  void report(std::vector<Finding>& findings) const;

 private:
  struct Some {
    std::uint64_t count = 0;
    std::string first{};
  };
  Some superseded_{};
  Some unnamed_{};
};

}  // namespace ckpt
