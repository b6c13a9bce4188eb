#include "format/universal/objects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <variant>

#include "format/model/scalar_json.hpp"
#include "format/text/error_context.hpp"
#include "format/text/json.hpp"
#include "format/text/parse_number.hpp"
#include "format/text/utf8.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt::universal {
namespace {

using Kind = json::Event::Kind;

// A value may cost three levels of JSON ({"dict":[[...]]}) and four tokens; the outer object, array and row come first.
constexpr std::size_t kMaxJsonLevels = 3 * kMaxObjectDepth;
constexpr json::Limits kObjectsLimits{
    .max_bytes = kMaxManifestBytes, .max_depth = kMaxJsonLevels + 4, .max_values = 8 * kMaxObjectValues};

tl::unexpected<Error> bad_objects(Check check, std::string_view reason) {
  return violates(check, fmt::format("objects.json: {}", reason));
}
tl::unexpected<Error> bad_value(std::string_view reason) {
  return bad_objects(Check::value_form, reason);
}
tl::unexpected<Error> bad_form(std::string_view reason) {
  return bad_objects(Check::objects_form, reason);
}
tl::unexpected<Error> too_deep() {
  return bad_objects(Check::value_limits, fmt::format("values nested deeper than {}", kMaxObjectDepth));
}

/// The reason of a reader of one value, as an error of this file.
template <class T>
Result<T> in_file(Result<T> result) {
  if (!result) return bad_value(result.error().message);
  return result;
}

struct Node;
using Members = std::vector<std::pair<std::string, Node>>;

/// The result of a JSON value: a value, or an object that is only part of one.
struct Node {
  std::variant<std::shared_ptr<Value>, Members> content{};
  std::size_t height = 1;  // of values inside values
};

Node make(Value value, std::size_t height = 1) {
  return {std::make_shared<Value>(std::move(value)), height};
}

/// For an object that is not a known kind of value: a later version may have more kinds, but none with several members.
tl::unexpected<Error> unknown_kind(const Node& node) {
  const auto& members = std::get<Members>(node.content);
  if (members.size() != 1) return bad_value(fmt::format("an object of {} members", members.size()));
  return bad_objects(Check::value_kind, fmt::format("unknown kind of value '{}'", members.front().first));
}

Value* value_of(Node& node) {
  auto* value = std::get_if<std::shared_ptr<Value>>(&node.content);
  return value == nullptr ? nullptr : value->get();
}

template <class T>
T* content_of(Node& node) {
  Value* value = value_of(node);
  return value == nullptr ? nullptr : std::get_if<T>(&value->v);
}

List* plain_list(Node& node) {
  List* list = content_of<List>(node);
  return list != nullptr && list->kind == List::Kind::list ? list : nullptr;
}

Result<Node> read_int(const std::string& decimal) {
  if (!is_large_decimal(decimal)) return bad_value("an int that is not a large decimal number");
  if (const auto value = parse_number<std::int64_t>(decimal)) return make({*value});
  return make({BigInt{decimal}});
}

Result<Node> read_float(const std::string& digits) {
  CKPT_TRY(const std::string bytes, in_file(read_hex(digits)));
  if (bytes.size() != 8) return bad_value("a float that is not 16 hexadecimal digits");
  std::uint64_t bits = 0;
  for (const char c : bytes) bits = bits << 8 | static_cast<unsigned char>(c);
  return make({std::bit_cast<double>(bits)});
}

Result<Node> read_text(const std::string& digits) {
  CKPT_TRY(std::string bytes, in_file(read_hex(digits)));
  if (is_utf8(bytes)) return bad_value("UTF-8 text in hexadecimal digits");
  return make({std::move(bytes)});
}

Result<Node> read_bytes(const std::string& digits) {
  CKPT_TRY(std::string bytes, in_file(read_hex(digits)));
  return make({Bytes{std::move(bytes)}});
}

/// Builds values from tokens, inside out: a container is made when it ends, from its finished items.
class ValueBuilder final : public json::Handler {
 public:
  Result<> on(const json::Event& event) override {
    switch (event.kind) {
      case Kind::null:
        return add_value({None{}});
      case Kind::boolean:
        return add_value({event.boolean});
      case Kind::negative:
        if (event.negative < -static_cast<std::int64_t>(kMaxJsonInteger))
          return bad_value("an integer below -(2^53 - 1)");
        return add_value({event.negative});
      case Kind::natural:
        if (event.natural > kMaxJsonInteger) return bad_value("an integer above 2^53 - 1");
        return add_value({static_cast<std::int64_t>(event.natural)});
      case Kind::real:
        return bad_value("a number with a fraction or an exponent");
      case Kind::text:
        return add_value({std::string(event.text)});
      case Kind::key:
        keys_.emplace_back(event.text);
        return {};
      case Kind::begin_object:
        if (open_.size() == kMaxJsonLevels) return too_deep();
        open_.push_back({Members{}, 0});
        return {};
      case Kind::begin_array:
        if (open_.size() == kMaxJsonLevels) return too_deep();
        ++count_;
        open_.push_back(make({List{}}));
        return {};
      case Kind::end_array:
      case Kind::end_object: {
        Node done = std::move(open_.back());
        open_.pop_back();
        if (event.kind == Kind::end_object) {
          CKPT_TRY(done, close(std::move(done)));
        }
        return add(std::move(done));
      }
    }
    return {};
  }

  /// The value whose last token was received.
  Result<Value> take() {
    Node node = std::exchange(root_, Node{});
    if (value_of(node) == nullptr) return unknown_kind(node);
    if (node.height > kMaxObjectDepth) return too_deep();
    if (count_ > kMaxObjectValues)
      return bad_objects(Check::value_limits, fmt::format("more than {} values", kMaxObjectValues));
    return std::move(*value_of(node));
  }

 private:
  Result<> add_value(Value value) {
    ++count_;
    return add(make(std::move(value)));
  }

  Result<> add(Node node) {
    // One level more than a value may have: the array of a dict's pairs is not a value.
    if (node.height > kMaxObjectDepth + 1) return too_deep();
    if (open_.empty()) {
      root_ = std::move(node);
      return {};
    }
    Node& parent = open_.back();
    if (auto* members = std::get_if<Members>(&parent.content)) {
      members->emplace_back(std::move(keys_.back()), std::move(node));
      keys_.pop_back();
      return {};
    }
    if (value_of(node) == nullptr) return unknown_kind(node);
    parent.height = std::max(parent.height, node.height + 1);
    plain_list(parent)->items.push_back(std::get<std::shared_ptr<Value>>(std::move(node.content)));
    return {};
  }

  /// An object of one member named as a kind of value is that value; any other is unchanged.
  Result<Node> close(Node node) {
    auto& members = std::get<Members>(node.content);
    if (members.size() != 1) return node;
    auto& [kind, content] = members.front();
    if (kind == "tuple" || kind == "set") {
      List* list = plain_list(content);
      if (list == nullptr) return bad_value("a tuple or set that is not an array");
      list->kind = kind == "set" ? List::Kind::set : List::Kind::tuple;
      return std::move(content);
    }
    if (kind == "dict") return close_dict(content);
    if (kind == "object") return close_object(content);
    const bool scalar = kind == "int" || kind == "float" || kind == "text" || kind == "bytes" || kind == "tensor";
    if (!scalar) return node;
    std::string* text = content_of<std::string>(content);
    if (text == nullptr) return bad_value(kind + " without text");
    if (kind == "int") return read_int(*text);
    if (kind == "float") return read_float(*text);
    if (kind == "text") return read_text(*text);
    if (kind == "bytes") return read_bytes(*text);
    return make({TensorRef{std::move(*text)}});
  }

  Result<Node> close_dict(Node& content) {
    List* pairs = plain_list(content);
    if (pairs == nullptr) return bad_value("a dict that is not an array");
    Dict dict;
    dict.items.reserve(pairs->items.size());
    for (const ValuePtr& item : pairs->items) {
      const auto* pair = std::get_if<List>(&item->v);
      if (pair == nullptr || pair->kind != List::Kind::list || pair->items.size() != 2)
        return bad_value("a dict item that is not a key and a value");
      dict.items.emplace_back(pair->items[0], pair->items[1]);
    }
    count_ -= dict.items.size();  // pairs are not values, and their level does not count
    const std::size_t height = dict.items.empty() ? 1 : content.height - 1;
    return make({std::move(dict)}, height);
  }

  Result<Node> close_object(Node& content) {
    auto* members = std::get_if<Members>(&content.content);
    if (members == nullptr) return bad_value("an object without members");
    Opaque object;
    bool named = false;
    std::size_t height = 1;
    for (auto& [key, member] : *members) {
      auto* value = std::get_if<std::shared_ptr<Value>>(&member.content);
      if (value == nullptr) return unknown_kind(member);
      if (key == "global") {
        std::string* global = content_of<std::string>(member);
        if (global == nullptr) return bad_value("an object whose global is not text");
        object.global = std::move(*global);
        named = true;
        continue;  // its text counted for the object
      }
      if (key != "args" && key != "state") return bad_value("an object with an unknown member");
      (key == "args" ? object.args : object.state) = std::move(*value);
      height = std::max(height, member.height + 1);
    }
    if (!named) return bad_value("an object without a global");
    return make({std::move(object)}, height);
  }

  Node root_{};
  std::vector<Node> open_{};
  std::vector<std::string> keys_{};  // whose values are still open
  std::size_t count_ = 0;            // values so far, in all objects
};

/// Takes the rows of the document apart as they stream by.
class ObjectsReader final : public json::JudgingHandler {
 public:
  Result<Objects> finish() && {
    if (format_ != "ckpt.objects") return bad_form("not an objects file");
    if (!is_known_version(version_))
      return bad_objects(Check::objects_version,
                         fmt::format("this release reads {} and 1.x, not {}", kOldVersion, version_));
    const std::optional<Hash128> id = Hash128::from_hex(id_);
    if (!id) return bad_form("id is not 32 lower-case hexadecimal digits");
    if (!rows_seen_) return bad_form("objects are missing");
    out_.id = *id;
    out_.version = std::move(version_);
    return std::move(out_);
  }

 private:
  Result<> take(const json::Event& event) override {
    const bool ends = event.kind != Kind::key && event.kind != Kind::begin_array && event.kind != Kind::begin_object;
    if (event.depth == 0) {
      if (event.kind == Kind::begin_object || event.kind == Kind::end_object) return {};
      return bad_form("not an object");
    }
    if (event.depth == 1) return on_member(event, ends);
    if (!in_rows_) return scalars_.on(event);
    if (event.depth == 2) return on_row(event);
    if (event.depth == 3 && event.kind == Kind::key) {
      row_key_ = event.text;
      return {};
    }
    if (row_key_ == "value") {
      CKPT_CHECK(values_.on(event));
      if (!ends || event.depth != 3) return {};
      CKPT_TRY(row_.value, values_.take());
      has_value_ = true;
      return {};
    }
    CKPT_CHECK(scalars_.on(event));
    if (!ends || event.depth != 3) return {};
    return on_row_member(scalars_.take());
  }

  /// A token of a member of the outermost object.
  Result<> on_member(const json::Event& event, bool ends) {
    if (event.kind == Kind::key) {
      key_ = event.text;
      return {};
    }
    if (key_ == "objects") {
      if (event.kind != Kind::begin_array && event.kind != Kind::end_array) return bad_form("objects is not an array");
      in_rows_ = event.kind == Kind::begin_array;
      rows_seen_ = true;
      return {};
    }
    CKPT_CHECK(scalars_.on(event));
    if (!ends) return {};
    const json::Value value = scalars_.take();
    std::string* const known = key_ == "format"    ? &format_
                               : key_ == "version" ? &version_
                               : key_ == "id"      ? &id_
                                                   : nullptr;
    if (known == nullptr) return {};
    if (value.text() == nullptr) return bad_form(key_ + " is not text");
    *known = *value.text();
    return {};
  }

  /// The begin or end of a row.
  Result<> on_row(const json::Event& event) {
    if (event.kind == Kind::begin_object) {
      row_ = {};
      has_name_ = has_value_ = false;
      return {};
    }
    if (event.kind != Kind::end_object) return bad_form("objects holds something other than objects");
    if (!has_name_ || !has_value_) return bad_form("an object without name or value");
    out_.objects.push_back(std::move(row_));
    return {};
  }

  Result<> on_row_member(json::Value value) {
    if (row_key_ == "name") {
      if (value.text() == nullptr) return bad_form("name is not text");
      row_.name = *value.text();
      has_name_ = true;
    } else if (row_key_ == "path") {
      CKPT_TRY(row_.path, in_file(read_path(value)));
    }
    return {};
  }

  Objects out_{};
  std::string format_{}, version_{}, id_{};
  std::string key_{};      // the member of the outermost object
  std::string row_key_{};  // the member of the row
  bool in_rows_ = false;
  bool rows_seen_ = false;
  NamedObject row_{};
  bool has_name_ = false;
  bool has_value_ = false;
  json::Builder scalars_{};
  ValueBuilder values_{};
};

}  // namespace

Result<Objects> parse_objects(std::string_view text) {
  ObjectsReader reader;
  auto read = json::parse(text, reader, kObjectsLimits);
  if (!read && !reader.has_failed())
    return violates(Check::objects_form, with_context(std::move(read).error(), "objects.json: parse"));
  CKPT_CHECK(std::move(read));
  return std::move(reader).finish();
}

}  // namespace ckpt::universal
