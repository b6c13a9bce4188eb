#include "api/convert/slice.hpp"

#include <algorithm>
#include <charconv>

namespace ckpt {
namespace {

Error wrong(std::string_view text, std::string_view reason) {
  return {.code = Errc::usage,
          .message = "--slice '" + std::string(text) + "': " + std::string(reason),
          .hint = "use NumPy syntax: 'layer.weight[0:128, :]', 'layer.bias[-1]'"};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// A number, or nothing for an empty text.
Result<std::optional<std::int64_t>> number(std::string_view whole, std::string_view digits) {
  digits = trimmed(digits);
  if (digits.empty()) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) return fail(wrong(whole, "a number is too large"));
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return fail(wrong(whole, "'" + std::string(digits) + "' is not a number"));
  }
  return value;
}

Result<Slice::Entry> parse_entry(std::string_view whole, std::string_view text) {
  using Kind = Slice::Entry::Kind;
  text = trimmed(text);
  if (text.empty()) return fail(wrong(whole, "empty entry"));
  if (text == "...") return Slice::Entry{.kind = Kind::rest};
  Slice::Entry out;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    out.kind = Kind::index;
    CKPT_TRY(out.begin, number(whole, text));
    return out;
  }
  if (text.find(':', colon + 1) != std::string_view::npos) return fail(wrong(whole, "slice steps are not supported"));
  CKPT_TRY(out.begin, number(whole, text.substr(0, colon)));
  CKPT_TRY(out.end, number(whole, text.substr(colon + 1)));
  return out;
}

/// A position, counted from the end if negative; clipped to [0, size].
std::uint64_t position(std::int64_t value, std::uint64_t size) {
  if (value >= 0) return std::min(static_cast<std::uint64_t>(value), size);
  const std::uint64_t back = std::uint64_t{0} - static_cast<std::uint64_t>(value);
  return back > size ? 0 : size - back;
}

}  // namespace

Result<Slice> parse_slice(std::string_view text) {
  const std::size_t open = text.rfind('[');
  if (open == std::string_view::npos || open == 0 || !text.ends_with(']')) {
    return fail(wrong(text, "is not NAME[...]"));
  }
  Slice out{.name = std::string(text.substr(0, open)), .text = std::string(text.substr(open))};
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  std::size_t rests = 0;
  for (bool more = true; more;) {
    const std::size_t comma = inside.find(',');
    CKPT_TRY(const Slice::Entry entry, parse_entry(text, inside.substr(0, comma)));
    rests += entry.kind == Slice::Entry::Kind::rest ? 1 : 0;
    out.entries.push_back(entry);
    more = comma != std::string_view::npos;
    if (more) inside.remove_prefix(comma + 1);
  }
  if (rests > 1) return fail(wrong(text, "'...' appears twice"));
  return out;
}

Result<TensorPart> apply_slice(const Slice& slice, const Tensor& tensor) {
  using Kind = Slice::Entry::Kind;
  const std::string whole = slice.name + slice.text;
  const auto wrong_here = [&](std::string reason) {
    Error error = wrong(whole, reason);
    error.tensor = tensor.name;
    error.hint.clear();
    return fail(std::move(error));
  };
  const bool has_rest =
      std::any_of(slice.entries.begin(), slice.entries.end(), [](const auto& e) { return e.kind == Kind::rest; });
  const std::size_t written = slice.entries.size() - (has_rest ? 1 : 0);
  const std::size_t dims = tensor.shape.size();
  if (written > dims) {
    return wrong_here(std::to_string(written) + " entries, but the tensor has " + std::to_string(dims) + " dimensions");
  }
  TensorPart out{.box = Box::whole(tensor.shape)};
  std::vector<bool> kept(dims, true);
  std::size_t dim = 0;
  for (const Slice::Entry& entry : slice.entries) {
    if (entry.kind == Kind::rest) {
      dim += dims - written;
      continue;
    }
    const std::uint64_t size = tensor.shape[dim];
    if (entry.kind == Kind::index) {
      const std::int64_t index = *entry.begin;
      const std::uint64_t at = position(index, size);
      const bool inside = index >= 0 ? at < size : std::uint64_t{0} - static_cast<std::uint64_t>(index) <= size;
      if (!inside) {
        return wrong_here("index " + std::to_string(index) + " is outside dimension " + std::to_string(dim) +
                          ", which has " + std::to_string(size));
      }
      out.box.offset[dim] = at;
      out.box.size[dim] = 1;
      kept[dim] = false;
    } else {
      const std::uint64_t begin = entry.begin ? position(*entry.begin, size) : 0;
      const std::uint64_t end = entry.end ? position(*entry.end, size) : size;
      out.box.offset[dim] = std::min(begin, size);
      out.box.size[dim] = end > begin ? end - begin : 0;
    }
    ++dim;
  }
  for (std::size_t i = 0; i < dims; ++i) {
    if (kept[i]) out.shape.push_back(out.box.size[i]);
  }
  if (is_packed(tensor.dtype) && out.box != Box::whole(tensor.shape)) {
    return wrong_here("the elements of " + std::string(dtype_name(tensor.dtype)) + " share bytes and cannot be sliced");
  }
  return out;
}

}  // namespace ckpt
