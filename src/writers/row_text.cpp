#include "writers/row_text.hpp"

#include <utility>

#include "engine/comm_text.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kMostDimensions = 64;

void append_words(std::string& text, std::string_view words) {
  append_number(text, words.size());
  text += words;
}

/// Takes values from the front of a text; once it is too short everything is empty and `bad`.
struct Cursor {
  std::string_view rest;
  bool bad = false;

  std::uint64_t number() {
    if (rest.size() < kNumberBytes) {
      bad = true;
      return 0;
    }
    const std::uint64_t value = take_number(rest);
    rest.remove_prefix(kNumberBytes);
    return value;
  }
  std::string words() {
    const std::uint64_t bytes = number();
    if (bytes > rest.size()) {
      bad = true;
      return {};
    }
    std::string taken(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
    return taken;
  }
};

}  // namespace

void append_tensor(std::string& text, const Tensor& tensor) {
  append_words(text, tensor.name);
  append_number(text, static_cast<std::uint64_t>(tensor.dtype));
  append_number(text, static_cast<std::uint64_t>(tensor.role));
  append_number(text, tensor.shape.size());
  for (const std::uint64_t size : tensor.shape) append_number(text, size);
  append_words(text, tensor.parameter);
  append_words(text, tensor.slot);
  append_words(text, tensor.true_dtype);
}

Result<std::vector<Tensor>> tensors_from_text(std::string_view text) {
  std::vector<Tensor> tensors;
  Cursor cursor{text};
  while (!cursor.rest.empty() && !cursor.bad) {
    Tensor tensor{.name = cursor.words()};
    const std::uint64_t dtype = cursor.number();
    const std::uint64_t role = cursor.number();
    const std::uint64_t dimensions = cursor.number();
    cursor.bad = cursor.bad || dtype >= kDtypeCount || role > static_cast<std::uint64_t>(Role::blob) ||
                 dimensions > kMostDimensions;
    for (std::uint64_t d = 0; d < dimensions && !cursor.bad; ++d) tensor.shape.push_back(cursor.number());
    tensor.dtype = static_cast<Dtype>(dtype);
    tensor.role = static_cast<Role>(role);
    tensor.parameter = cursor.words();
    tensor.slot = cursor.words();
    tensor.true_dtype = cursor.words();
    tensors.push_back(std::move(tensor));
  }
  if (cursor.bad) return fail(Errc::internal, "save: another rank described its tensors in an unknown way");
  return tensors;
}

}  // namespace ckpt
