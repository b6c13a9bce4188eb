#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

/// How many names a message lists where it does not ask to choose among them.
constexpr std::size_t kNamesShown = 5;

/// "a, b, c and 7 more": the first names that are added, and how many others there are.
class NameList {
 public:
  explicit NameList(std::size_t shown = kNamesShown) : shown_(shown) {}

  void add(std::string_view name) {
    ++count_;
    if (named_ == shown_) return;
    if (named_++ > 0) text_ += ", ";
    text_ += name;
  }
  /// Further names that are not available.
  void add_unnamed(std::uint64_t count) { count_ += count; }

  std::uint64_t count() const { return count_; }
  std::string text() const {
    return count_ == named_ ? text_ : text_ + " and " + std::to_string(count_ - named_) + " more";
  }

 private:
  std::size_t shown_;
  std::size_t named_ = 0;
  std::uint64_t count_ = 0;
  std::string text_{};
};

/// The same of all of a range of names.
template <class Names>
std::string name_list(const Names& names, std::size_t shown = kNamesShown) {
  NameList list(shown);
  for (const auto& name : names) list.add(name);
  return list.text();
}

}  // namespace ckpt
