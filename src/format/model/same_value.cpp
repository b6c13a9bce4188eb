#include "format/model/same_value.hpp"

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace ckpt {
namespace {

/// Compares the direct contents of two values and pushes the remaining parts on the stack.
class Comparison {
 public:
  bool run(const Value& a, const Value& b) {
    open_.emplace_back(&a, &b);
    while (!open_.empty()) {
      const Value* left = open_.back().first;
      const Value* right = open_.back().second;
      open_.pop_back();
      if (left == right) continue;
      if (left == nullptr || right == nullptr || left->v.index() != right->v.index()) return false;
      if (!std::visit([&](const auto& value) { return same(value, std::get<std::decay_t<decltype(value)>>(right->v)); },
                      left->v)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
  bool same(const List& a, const List& b) {
    if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
    for (std::size_t i = 0; i < a.items.size(); ++i) {
      if (a.items[i] != b.items[i]) open_.emplace_back(a.items[i].get(), b.items[i].get());
    }
    return true;
  }
  bool same(const Dict& a, const Dict& b) {
    if (a.items.size() != b.items.size()) return false;
    for (std::size_t i = 0; i < a.items.size(); ++i) {
      open_.emplace_back(a.items[i].first.get(), b.items[i].first.get());
      open_.emplace_back(a.items[i].second.get(), b.items[i].second.get());
    }
    return true;
  }
  bool same(const Opaque& a, const Opaque& b) {
    if (a.global != b.global) return false;
    open_.emplace_back(a.args.get(), b.args.get());
    open_.emplace_back(a.state.get(), b.state.get());
    return true;
  }
  template <class T>
  bool same(const T& a, const T& b) {
    return a == b;
  }

  std::vector<std::pair<const Value*, const Value*>> open_;
};

}  // namespace

bool same_value(const Value& a, const Value& b) {
  return Comparison().run(a, b);
}

}  // namespace ckpt
