#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/format.hpp"

namespace ckpt {

/// Tensors in the files of a Hugging Face checkpoint whose index does not name them for the file that they stand in.
class Unlisted {
 public:
  /// `elsewhere`  the index has the name, in another file: that tensor stands for it
  void add(std::string_view name, bool elsewhere);
  /// What is superseded is a note; what the index names nowhere is data that is not carried over.
  void tell(std::vector<Finding>& findings) const;

 private:
  struct Some {
    std::uint64_t count = 0;
    std::string first{};
  };
  Some superseded_{};
  Some unnamed_{};
};

}  // namespace ckpt
