#include "format/torch/torch_object.hpp"

#include <gtest/gtest.h>

#include "support/pickle_writer.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::kNone;
using pickle::NodeId;
using test::PickleWriter;

Graph parsed(const std::string& text) {
  auto graph = pickle::parse(std::as_bytes(std::span(text)));
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph ? *graph : *pickle::parse(std::as_bytes(std::span("N.", 2)));
}

std::optional<TensorView> view_of(const std::string& text) {
  const Graph graph = parsed(text);
  auto view = as_tensor(graph, graph.root());
  EXPECT_TRUE(view) << (view ? "" : view.error().message);
  return view ? *view : std::nullopt;
}

Errc code_of(const std::string& text) {
  const Graph graph = parsed(text);
  const auto view = as_tensor(graph, graph.root());
  return view ? Errc{} : view.error().code;
}

std::string kind_of(const std::string& text) {
  const Graph graph = parsed(text);
  EXPECT_TRUE(as_tensor(graph, graph.root()) && !*as_tensor(graph, graph.root()));
  return std::string(unsupported_kind(graph, graph.root()));
}

std::optional<std::string> no_name(NodeId) {
  return std::nullopt;
}

Value value_of(const std::string& text) {
  const Graph graph = parsed(text);
  const auto value = to_value(graph, graph.root(), no_name);
  EXPECT_TRUE(value) << (value ? "" : value.error().message);
  return value ? **value : Value{};
}

std::string v3(std::string_view dtype, std::int64_t bytes, std::initializer_list<std::int64_t> size) {
  PickleWriter writer;
  writer.global("torch._utils", "_rebuild_tensor_v3").raw("(");
  writer.storage("0", bytes, "UntypedStorage", "torch.storage").integer(1).tuple_of(size);
  std::vector<std::int64_t> strides(size.size(), 1);
  writer.raw("(");
  for (const std::int64_t stride : strides) writer.integer(stride);
  writer.raw("t\x89").ordered_dict().global("torch", dtype).raw("tR");
  return writer.stop();
}

TEST(TorchObject, APlainTensorIsAView) {
  const auto view = view_of(PickleWriter().tensor("key", 24, 4, {2, 3}, {3, 1}).stop());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->storage_key, "key");
  EXPECT_EQ(view->dtype_name, "float32");
  EXPECT_EQ(view->storage_bytes, 96u);
  EXPECT_EQ(view->storage_offset, 4u);
  EXPECT_EQ(view->shape, (Shape{2, 3}));
  EXPECT_EQ(view->strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(view->element_bytes, 4u);
  EXPECT_EQ(view->attributes, kNone);
}

TEST(TorchObject, NewDtypesComeFromTheCallAndStoragesCountBytes) {
  const auto view = view_of(v3("uint16", 8, {3}));
  ASSERT_TRUE(view);
  EXPECT_EQ(view->dtype_name, "uint16");
  EXPECT_EQ(view->storage_bytes, 8u);
  EXPECT_EQ(view->element_bytes, 2u);
  EXPECT_EQ(code_of(v3("uint16", 8, {4})), Errc::corrupt);  // begins at element 1, so one too many
  EXPECT_EQ(code_of(v3("float99", 8, {3})), Errc::corrupt);
}

TEST(TorchObject, ParametersAndAttributesAreUnwrapped) {
  PickleWriter parameter;
  parameter.global("torch._utils", "_rebuild_parameter")
      .tensor("0", 4, 0, {4}, {1})
      .raw("\x88")
      .ordered_dict()
      .raw("\x87R");
  ASSERT_TRUE(view_of(parameter.stop()));

  const auto typed = [](const char* attribute) {
    PickleWriter out;
    out.global("torch._tensor", "_rebuild_from_type_v2").raw("(").global("torch._utils", "_rebuild_tensor_v2");
    out.global("torch", "Tensor")
        .raw("(")
        .storage("0", 4)
        .integer(0)
        .tuple_of({4})
        .tuple_of({1})
        .raw("\x89")
        .ordered_dict();
    return parsed(out.raw("t}").text(attribute).text("0_3").raw("stR").stop());
  };
  const Graph graph = typed("ds_id");
  const auto view = as_tensor(graph, graph.root());
  ASSERT_TRUE(view && *view);
  EXPECT_EQ(as_text(graph, graph.find((**view).attributes, "ds_id")), "0_3");
  EXPECT_TRUE((**view).has_attributes);
  const Graph marked = typed("_has_been_cloned");  // by FSDP1, which leaves it there
  const auto clone = as_tensor(marked, marked.root());
  ASSERT_TRUE(clone && *clone);
  EXPECT_FALSE((**clone).has_attributes);
}

TEST(TorchObject, ViewsThatLeaveTheirStorageAreCorrupt) {
  const auto code = [](std::int64_t count, std::int64_t offset, std::initializer_list<std::int64_t> size,
                       std::initializer_list<std::int64_t> stride) {
    return code_of(PickleWriter().tensor("0", count, offset, size, stride).stop());
  };
  EXPECT_EQ(code(4, 0, {4}, {1}), Errc{});
  EXPECT_EQ(code(4, 1, {4}, {1}), Errc::corrupt);
  EXPECT_EQ(code(4, -1, {4}, {1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {-4}, {1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {4}, {-1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {2, 2}, {1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {2, 2}, {3, 1}), Errc::corrupt);
  EXPECT_EQ(code(-4, 0, {4}, {1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {0, 100}, {1, 1}), Errc{});  // no element at all
  EXPECT_EQ(code(4, 0, {100, 4}, {0, 1}), Errc{});  // expanded
  EXPECT_EQ(code(4, 0, {2, 4}, {std::int64_t{1} << 62, 1}), Errc::corrupt);
  EXPECT_EQ(code(4, 0, {std::int64_t{1} << 62, 4, 4}, {0, 0, 1}), Errc::corrupt);  // its size overflows
}

TEST(TorchObject, OtherTensorsAreToldByName) {
  const auto call = [](std::string_view module, std::string_view name) {
    return PickleWriter().global(module, name).raw(")R").stop();
  };
  EXPECT_EQ(kind_of(call("torch._utils", "_rebuild_sparse_tensor")), "sparse tensor");
  EXPECT_EQ(kind_of(call("torch._utils", "_rebuild_qtensor")), "quantized tensor");
  EXPECT_EQ(kind_of(call("torch._utils", "_rebuild_nested_tensor")), "nested tensor");
  EXPECT_EQ(kind_of(call("torch._utils", "_rebuild_meta_tensor_no_storage")), "meta tensor");
  EXPECT_EQ(kind_of(PickleWriter().storage("0", 4).stop()), "bare storage");
  PickleWriter distributed;
  distributed.global("torch._tensor", "_rebuild_from_type_v2").raw("(");
  distributed.global("torch._utils", "_rebuild_wrapper_subclass")
      .global("torch.distributed.tensor", "DTensor")
      .raw(")}tR");
  EXPECT_EQ(kind_of(distributed.stop()), "DTensor");
  EXPECT_EQ(kind_of("}."), "");
}

TEST(TorchObject, ConjugatedViewsAreNotPlain) {
  PickleWriter writer;
  writer.global("torch._utils", "_rebuild_tensor_v2").raw("(").storage("0", 4, "ComplexFloatStorage").integer(0);
  writer.tuple_of({4}).tuple_of({1}).raw("\x89").ordered_dict().raw("}").text("conj").raw("\x88stR");
  EXPECT_EQ(kind_of(writer.stop()), "conjugated or negated view");
}

TEST(TorchObject, MappingsOfEverySpelling) {
  const auto keys = [](const std::string& text) {
    const Graph graph = parsed(text);
    std::vector<std::string> out;
    const auto pairs = as_mapping(graph, graph.root());
    if (!pairs) return std::vector<std::string>{"none"};
    for (const auto& [key, value] : *pairs) out.push_back(as_text(graph, key).value_or("?"));
    return out;
  };
  const std::vector<std::string> ab{"a", "b"};
  const std::string two = PickleWriter(0).raw("(").text("a").raw("K\1").text("b").raw("K\2u").stop();
  const std::string_view fill = std::string_view(two).substr(0, two.size() - 1);
  EXPECT_EQ(keys(PickleWriter().raw("}").raw(fill).stop()), ab);
  EXPECT_EQ(keys(PickleWriter().ordered_dict().raw(fill).stop()), ab);
  EXPECT_EQ(keys(PickleWriter().ordered_dict().stop()), std::vector<std::string>{});
  EXPECT_EQ(keys(PickleWriter()
                     .global("collections", "OrderedDict")
                     .raw("](](")
                     .text("a")
                     .raw("K\1e](")
                     .text("b")
                     .raw("K\2ee\x85R")
                     .stop()),
            ab);
  EXPECT_EQ(
      keys(
          PickleWriter().global("collections", "defaultdict").global("builtins", "list").raw("\x85R").raw(fill).stop()),
      ab);
  EXPECT_EQ(keys(PickleWriter().global("collections", "Counter").raw("}").raw(fill).raw("\x85R").stop()), ab);
  EXPECT_EQ(keys(PickleWriter().global("argparse", "Namespace").raw(")\x81}").raw(fill).raw("b").stop()), ab);
  EXPECT_EQ(keys(PickleWriter()
                     .global("m", "Slots")
                     .raw(")\x81N}")
                     .raw(fill)
                     .raw("\x86"
                          "b")
                     .stop()),
            ab);
  EXPECT_EQ(keys("]."), std::vector<std::string>{"none"});
  EXPECT_EQ(keys(PickleWriter().global("m", "C").raw(")R").stop()), std::vector<std::string>{"none"});
}

TEST(TorchObject, IntegersShapesAndSequences) {
  const auto with_root = [](const std::string& text, auto ask) {
    const Graph graph = parsed(text);
    return ask(graph, graph.root());
  };
  const auto integer = [](const Graph& graph, NodeId node) { return as_integer(graph, node); };
  const auto shape = [](const Graph& graph, NodeId node) { return as_shape(graph, node); };
  EXPECT_EQ(with_root("K\7.", integer), 7);
  EXPECT_EQ(with_root("\x88.", integer), 1);
  EXPECT_EQ(with_root(PickleWriter().global("deepspeed.config", "ZeroStageEnum").raw("K\2\x85R").stop(), integer), 2);
  const auto member = [](const char* of, const char* name) {
    return PickleWriter()
        .global("__builtin__", "getattr")
        .global("deepspeed.config", of)
        .text(name)
        .raw("\x86R")
        .stop();
  };
  EXPECT_EQ(with_root(member("ZeroStageEnum", "gradients"), integer), 2);  // as Python 3.11.2 has it
  EXPECT_EQ(with_root(member("ZeroStageEnum", "disabled"), integer), 0);
  EXPECT_EQ(with_root(member("ZeroStageEnum", "none"), integer), std::nullopt);
  EXPECT_EQ(with_root(member("OtherEnum", "gradients"), integer), std::nullopt);
  EXPECT_EQ(unknown_classes(parsed(member("Other", "x"))), std::vector<std::string>{"deepspeed.config.Other"});
  EXPECT_EQ(with_root("N.", integer), std::nullopt);
  EXPECT_EQ(with_root(PickleWriter().global("torch", "Size").tuple_of({2, 3}).raw("\x85R").stop(), shape),
            (Shape{2, 3}));
  EXPECT_EQ(with_root(PickleWriter().tuple_of({2, 3}).stop(), shape), (Shape{2, 3}));
  EXPECT_EQ(with_root(PickleWriter().tuple_of({2, -3}).stop(), shape), std::nullopt);
  EXPECT_EQ(with_root("}.", shape), std::nullopt);
  const Graph set = parsed(PickleWriter().global("__builtin__", "set").raw("](K\1K\2e\x85R").stop());
  EXPECT_EQ(as_sequence(set, set.root())->size(), 2u);
}

TEST(TorchValue, BytesInTheSpellingsOfEachProtocol) {
  const auto bytes = [](const std::string& text) {
    const Value value = value_of(text);
    const auto* held = std::get_if<Bytes>(&value.v);
    return held != nullptr ? held->data : "(none)";
  };
  const std::string encoded =
      PickleWriter(0).global("_codecs", "encode").text(std::string("\0\xc3\xbf", 3)).text("latin1").raw("\x86R").stop();
  EXPECT_EQ(bytes("\x80\x02" + encoded), std::string("\0\xff", 2));
  EXPECT_EQ(bytes(PickleWriter()
                      .global("__builtin__", "bytearray")
                      .raw(encoded.substr(0, encoded.size() - 1))
                      .raw("\x85R")
                      .stop()),
            std::string("\0\xff", 2));
  EXPECT_EQ(bytes(PickleWriter().global("__builtin__", "bytes").raw(")R").stop()), "");
  EXPECT_EQ(bytes(PickleWriter().bytes("b").stop()), "b");
  EXPECT_EQ(bytes(PickleWriter().global("_codecs", "encode").text("\xe4\xbd\xa0").text("latin1").raw("\x86R").stop()),
            "(none)");  // not a byte: stays as it was called
}

TEST(TorchValue, ObjectsOfUnknownClassesStayInert) {
  const std::string text =
      PickleWriter().global("my.module", "Config").raw("K\1\x85\x81}").text("lr").raw("K\2sb").stop();
  const Value value = value_of(text);
  const auto& object = std::get<Opaque>(value.v);
  EXPECT_EQ(object.global, "my.module.Config");
  EXPECT_EQ(std::get<std::int64_t>(std::get<List>(object.args->v).items.at(0)->v), 1);
  const auto& state = std::get<Dict>(object.state->v);
  EXPECT_EQ(std::get<std::string>(state.items.at(0).first->v), "lr");
  EXPECT_EQ(unknown_classes(parsed(text)), std::vector<std::string>{"my.module.Config"});
  EXPECT_EQ(unknown_classes(parsed(PickleWriter().ordered_dict().stop())), std::vector<std::string>{});
}

TEST(TorchValue, ASubclassOfListOrDictKeepsItsItems) {
  const Value value = value_of(PickleWriter().global("m", "MyList").raw(")R(K\1K\2e").stop());
  const auto& state = std::get<Dict>(std::get<Opaque>(value.v).state->v);
  ASSERT_EQ(state.items.size(), 1u);
  EXPECT_EQ(std::get<std::string>(state.items[0].first->v), "items");
  EXPECT_EQ(std::get<List>(state.items[0].second->v).items.size(), 2u);
}

TEST(TorchValue, SharedValuesAreSharedAndTensorsAreNamed) {
  const Graph graph = parsed(PickleWriter().raw("]q\1(K\1e0h\1h\1").tensor("0", 4, 0, {4}, {1}).raw("\x87").stop());
  const auto value = to_value(graph, graph.root(), [](NodeId) { return std::optional<std::string>("w"); });
  ASSERT_TRUE(value);
  const auto& items = std::get<List>((*value)->v).items;
  EXPECT_EQ(items.at(0), items.at(1));
  EXPECT_EQ(std::get<TensorRef>(items.at(2)->v).name, "w");
}

TEST(TorchValue, AListInsideItselfEnds) {
  const Graph graph = parsed(std::string("]q\0h\0a.", 7));
  const auto value = to_value(graph, graph.root(), no_name);
  ASSERT_TRUE(value);
  EXPECT_EQ(std::get<Opaque>(std::get<List>((*value)->v).items.at(0)->v).global, "...");
}

TEST(TorchValue, EachTimeThatAListContainsItselfCounts) {
  const Graph graph = parsed("]2a2a2a.");
  Expansion expansion;
  ASSERT_TRUE(to_value(graph, graph.root(), no_name, &expansion));
  EXPECT_EQ(expansion.values, 4U);
}

TEST(TorchValue, TheLimitIsForAllThatIsTakenOfAGraph) {
  const Graph graph = parsed("]2a2a2a.");
  Expansion so_far{.values = Expansion::most_values - 4};
  ASSERT_TRUE(to_value(graph, graph.root(), no_name, &so_far));
  const auto value = to_value(graph, graph.root(), no_name, &so_far);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Errc::refused);
}

TEST(TorchValue, TextThatIsStoredOnceCountsEachTime) {
  const std::string text(std::size_t{1} << 20, 'a');
  const std::string once = std::string("X\0\0\x10\0", 5) + text + std::string("q\0", 2);
  const Graph twice = parsed("](" + once + std::string("h\0e.", 4));
  Expansion expansion;
  ASSERT_TRUE(to_value(twice, twice.root(), no_name, &expansion));
  EXPECT_EQ(expansion.text_bytes, 2 * text.size());
  std::string often = "](" + once;
  for (int i = 0; i < 300; ++i) often += std::string("h\0", 2);
  const Graph graph = parsed(often + "e.");
  const auto value = to_value(graph, graph.root(), no_name);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Errc::refused);
}

TEST(TorchValue, ValuesThatUnfoldWithoutEndAreRefused) {
  std::string bomb = "\x80\x02]q\1K\1a";
  for (char i = 2; i < 32; ++i) bomb += std::string("0](h") + char(i - 1) + "h" + char(i - 1) + "eq" + i;
  const Graph graph = parsed(bomb + ".");
  const auto value = to_value(graph, graph.root(), no_name);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Errc::refused);
}

}  // namespace
}  // namespace ckpt::torch
