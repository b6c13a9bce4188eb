#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "format/torch/pickle.hpp"
#include "format/torch/torch_object.hpp"
#include "support/pickle_encoder.hpp"

namespace ckpt {
namespace {

using test::encode;
using test::equal;

rc::Gen<ValuePtr> any_leaf() {
  const auto leaf = [](auto value) {
    auto made = std::make_shared<Value>();
    made->v = std::move(value);
    return ValuePtr(std::move(made));
  };
  return rc::gen::resize(
      60, rc::gen::oneOf(rc::gen::just(leaf(None{})), rc::gen::map(rc::gen::arbitrary<bool>(), leaf),
                         rc::gen::map(rc::gen::arbitrary<std::int64_t>(), leaf),
                         rc::gen::map(rc::gen::inRange<std::int64_t>(-300, 70000), leaf),
                         rc::gen::map(rc::gen::arbitrary<double>(), leaf),
                         rc::gen::map(rc::gen::container<std::string>(rc::gen::inRange('\0', '\x7f')), leaf),
                         rc::gen::map(rc::gen::string<std::string>(),
                                      [=](std::string data) { return leaf(Bytes{std::move(data)}); })));
}

rc::Gen<ValuePtr> any_value(int depth) {
  if (depth == 0) return any_leaf();
  // Few items a level: the number of leaves is their product.
  const auto items = rc::gen::resize(6, rc::gen::container<std::vector<ValuePtr>>(any_value(depth - 1)));
  const auto kind = rc::gen::element(List::Kind::list, List::Kind::tuple, List::Kind::set);
  return rc::gen::oneOf(any_leaf(),
                        rc::gen::apply(
                            [](List::Kind of, std::vector<ValuePtr> held) {
                              return ValuePtr(std::make_shared<Value>(Value{List{of, std::move(held)}}));
                            },
                            kind, items),
                        rc::gen::map(items, [](std::vector<ValuePtr> held) {
                          Dict dict;
                          for (std::size_t i = 0; i + 1 < held.size(); i += 2)
                            dict.items.emplace_back(held[i], held[i + 1]);
                          return ValuePtr(std::make_shared<Value>(Value{std::move(dict)}));
                        }));
}

RC_GTEST_PROP(PickleProperty, WhatIsEncodedIsDecodedInEveryProtocol, ()) {
  const ValuePtr value = *any_value(3);
  for (const int protocol : {0, 2, 3, 4, 5}) {
    const std::string text = encode(*value, protocol);
    std::size_t used = 0;
    const auto graph = pickle::parse(std::as_bytes(std::span(text)), {}, &used);
    RC_ASSERT(graph.has_value());
    RC_ASSERT(used == text.size());
    const auto decoded = torch::to_value(*graph, graph->root(), [](pickle::NodeId) { return std::nullopt; });
    RC_ASSERT(decoded.has_value());
    RC_ASSERT(equal(*value, **decoded));
  }
}

RC_GTEST_PROP(PickleProperty, EveryPrefixIsAnErrorAndNeverACrash, ()) {
  const ValuePtr value = *any_value(2);
  const std::string text = encode(*value, *rc::gen::element(0, 2, 4));
  for (std::size_t size = 0; size < text.size(); ++size) {
    RC_ASSERT(!pickle::parse(std::as_bytes(std::span(text).first(size))).has_value());
  }
}

RC_GTEST_PROP(PickleProperty, AnyBytesGiveAnAnswer, ()) {
  const auto text = *rc::gen::string<std::string>();
  const auto graph = pickle::parse(std::as_bytes(std::span(text)));
  if (graph) RC_ASSERT(graph->root() < graph->node_count());
}

}  // namespace
}  // namespace ckpt
