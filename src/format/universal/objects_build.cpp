#include <fmt/format.h>

#include <bit>
#include <type_traits>

#include "format/model/scalar_json.hpp"
#include "format/text/json.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::universal {
namespace {

/// Writes values without recursion: what is still to be written stands on a stack, next on top.
class Writer {
 public:
  Writer(std::string& out, const Renamed& renamed) : out_(out), renamed_(renamed) {}

  Result<> write(const Value& root) {
    push(&root, 1);
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      if (task.value == nullptr) {
        out_ += task.text;
        continue;
      }
      if (++written_ > kMaxObjectValues)
        return fail(Errc::refused, fmt::format("more than {} values in all objects", kMaxObjectValues));
      if (task.depth > kMaxObjectDepth)
        return fail(Errc::refused, fmt::format("values nested deeper than {}", kMaxObjectDepth));
      depth_ = task.depth;
      if (const auto* number = std::get_if<BigInt>(&task.value->v);
          number != nullptr && !is_large_decimal(number->decimal))
        return fail(Errc::internal, "a big integer that is no decimal number: " + shown_text(number->decimal));
      std::visit([this](const auto& value) { append(value); }, task.value->v);
    }
    return {};
  }

 private:
  struct Task {
    const Value* value;     // null: write `text`
    std::string_view text;  // literals only
    std::size_t depth;
  };

  void push(std::string_view text) { tasks_.push_back({nullptr, text, 0}); }
  void push(const Value* value, std::size_t depth) {
    static const Value kNothing{};
    tasks_.push_back({value == nullptr ? &kNothing : value, {}, depth});
  }
  void append_tagged(std::string_view tag, std::string_view text) {
    out_ += fmt::format("{{\"{}\":", tag);
    json::append_quoted(out_, text);
    out_ += '}';
  }

  void append(None) { out_ += "null"; }
  void append(bool value) { out_ += value ? "true" : "false"; }
  void append(std::int64_t value) { append_integer(out_, value); }
  void append(const BigInt& value) { append_tagged("int", value.decimal); }
  void append(double value) { append_tagged("float", fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value))); }
  void append(const std::string& text) { append_any_text(out_, text); }
  void append(const Bytes& bytes) {
    out_ += R"({"bytes":")";
    append_hex(out_, bytes.data);
    out_ += R"("})";
  }
  void append(const TensorRef& tensor) {
    const auto renamed = renamed_.find(tensor.name);
    append_tagged("tensor", shown_text(renamed == renamed_.end() ? tensor.name : renamed->second));
  }
  void append(const List& list) {
    if (list.kind != List::Kind::list) {
      out_ += list.kind == List::Kind::tuple ? R"({"tuple":)" : R"({"set":)";
      push("}");
    }
    out_ += '[';
    push("]");
    for (std::size_t i = list.items.size(); i-- > 0;) {
      push(list.items[i].get(), depth_ + 1);
      if (i != 0) push(",");
    }
  }
  void append(const Dict& dict) {
    out_ += R"({"dict":[)";
    push("]}");
    for (std::size_t i = dict.items.size(); i-- > 0;) {
      push("]");
      push(dict.items[i].second.get(), depth_ + 1);
      push(",");
      push(dict.items[i].first.get(), depth_ + 1);
      push(i == 0 ? "[" : ",[");
    }
  }
  void append(const Opaque& object) {
    out_ += R"({"object":{"global":)";
    json::append_quoted(out_, shown_text(object.global));
    push("}}");
    if (object.state != nullptr) {
      push(object.state.get(), depth_ + 1);
      push(R"(,"state":)");
    }
    if (object.args != nullptr) {
      push(object.args.get(), depth_ + 1);
      push(R"(,"args":)");
    }
  }

  std::string& out_;
  const Renamed& renamed_;
  std::vector<Task> tasks_{};
  std::size_t depth_ = 0;    // of the value that is being written
  std::size_t written_ = 0;  // values so far, in all objects
};

}  // namespace

Result<std::string> build_objects(const Hash128& id, std::span<const NamedObject> objects, const Renamed& renamed) {
  std::string out =
      fmt::format(R"({{"format":"ckpt.objects","version":"{}","id":"{}","objects":[)", kVersion, id.hex());
  Writer writer(out, renamed);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const NamedObject& object = objects[i];
    out += i == 0 ? "\n{\"name\":" : ",\n{\"name\":";
    json::append_quoted(out, shown_text(object.name));
    if (!object.path.empty()) {
      out += R"(,"path":)";
      append_path(out, object.path);
    }
    out += R"(,"value":)";
    if (Result<> written = writer.write(object.value); !written) {
      Error error = std::move(written).error();
      error.message = fmt::format("{}: write objects.json: {}", object.name, error.message);
      return fail(std::move(error));
    }
    out += '}';
  }
  out += "\n]}\n";
  return out;
}

}  // namespace ckpt::universal
