#include <fmt/format.h>

#include <bit>
#include <type_traits>

#include "format/model/scalar_json.hpp"
#include "format/text/error_context.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::universal {
namespace {

/// Writes values without recursion: the remaining ones are on a stack, next on top.
class ValueWriter {
 public:
  ValueWriter(json::Writer& out, const Renamed& renamed) : out_(out), renamed_(renamed) {}

  Result<> write(const Value& root) {
    push(&root, 1);
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      if (task.part == Part::value) {
        CKPT_CHECK(write_one(*task.value, task.depth));
      } else {
        put(task.part);
      }
    }
    return {};
  }

 private:
  enum class Part : std::uint8_t { value, begin_array, end_array, end_object, key_args, key_state };
  struct Task {
    Part part;
    const Value* value = nullptr;
    std::size_t depth = 0;
  };

  Result<> write_one(const Value& value, std::size_t depth) {
    if (++written_ > kMaxObjectValues)
      return fail(Errc::refused, fmt::format("more than {} values in all objects", kMaxObjectValues));
    if (depth > kMaxObjectDepth)
      return fail(Errc::unsupported, fmt::format("values nested deeper than {}", kMaxObjectDepth));
    depth_ = depth;
    if (const auto* number = std::get_if<BigInt>(&value.v); number != nullptr && !is_large_decimal(number->decimal))
      return fail(Errc::internal, "a big integer that is not a decimal number: " + shown_text(number->decimal));
    std::visit([this](const auto& content) { put(content); }, value.v);
    return {};
  }

  void push(Part part) { tasks_.push_back({part}); }
  void push(const Value* value, std::size_t depth) {
    static const Value kNothing{};
    tasks_.push_back({Part::value, value == nullptr ? &kNothing : value, depth});
  }
  /// {"tag": for a value without a JSON form; the caller ends the object.
  json::Writer& begin_tagged(std::string_view tag) { return out_.begin_object().key(tag); }
  void put_tagged(std::string_view tag, std::string_view text) { begin_tagged(tag).value(text).end_object(); }

  void put(Part part) {
    switch (part) {
      case Part::value:
        break;
      case Part::begin_array:
        out_.begin_array();
        break;
      case Part::end_array:
        out_.end_array();
        break;
      case Part::end_object:
        out_.end_object();
        break;
      case Part::key_args:
        out_.key("args");
        break;
      case Part::key_state:
        out_.key("state");
        break;
    }
  }
  void put(None) { out_.value(nullptr); }
  void put(bool value) { out_.value(value); }
  void put(std::int64_t value) { put_integer(out_, value); }
  void put(const BigInt& value) { put_tagged("int", value.decimal); }
  void put(double value) { put_tagged("float", fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value))); }
  void put(const std::string& text) { put_any_text(out_, text); }
  void put(const Bytes& bytes) { put_tagged("bytes", hex_of(bytes.data)); }
  void put(const TensorRef& tensor) {
    const auto renamed = renamed_.find(tensor.name);
    put_tagged("tensor", shown_text(renamed == renamed_.end() ? tensor.name : renamed->second));
  }
  void put(const List& list) {
    if (list.kind != List::Kind::list) {
      begin_tagged(list.kind == List::Kind::tuple ? "tuple" : "set");
      push(Part::end_object);
    }
    out_.begin_array();
    push(Part::end_array);
    for (std::size_t i = list.items.size(); i-- > 0;) push(list.items[i].get(), depth_ + 1);
  }
  void put(const Dict& dict) {
    begin_tagged("dict").begin_array();
    push(Part::end_object);
    push(Part::end_array);
    for (std::size_t i = dict.items.size(); i-- > 0;) {
      push(Part::end_array);
      push(dict.items[i].second.get(), depth_ + 1);
      push(dict.items[i].first.get(), depth_ + 1);
      push(Part::begin_array);
    }
  }
  void put(const Opaque& object) {
    begin_tagged("object").begin_object().member("global", shown_text(object.global));
    push(Part::end_object);
    push(Part::end_object);
    if (object.state != nullptr) {
      push(object.state.get(), depth_ + 1);
      push(Part::key_state);
    }
    if (object.args != nullptr) {
      push(object.args.get(), depth_ + 1);
      push(Part::key_args);
    }
  }

  json::Writer& out_;
  const Renamed& renamed_;
  std::vector<Task> tasks_{};
  std::size_t depth_ = 0;    // of the value that is being written
  std::size_t written_ = 0;  // values so far, in all objects
};

}  // namespace

Result<> put_value(json::Writer& out, const Value& value) {
  return ValueWriter(out, {}).write(value);
}

Result<std::string> build_objects(const Hash128& id, std::span<const NamedObject> objects, const Renamed& renamed) {
  std::string text;
  json::Writer out(text);
  out.begin_object().member("format", "ckpt.objects").member("version", kVersion).member("id", id.hex());
  out.key("objects").begin_array();
  ValueWriter writer(out, renamed);
  for (const NamedObject& object : objects) {
    out.line().begin_object().member("name", shown_text(object.name));
    if (!object.path.empty()) put_path(out.key("path"), object.path);
    out.key("value");
    if (Result<> written = writer.write(object.value); !written)
      return fail(with_context(std::move(written).error(), object.name + ": write objects.json"));
    out.end_object();
  }
  out.line().end_array().end_object();
  return text + '\n';
}

}  // namespace ckpt::universal
