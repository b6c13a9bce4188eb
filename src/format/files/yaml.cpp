#include "format/files/yaml.hpp"

#include <fmt/format.h>
#include <yaml.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostLevels = 64;

struct EventDeleter {
  void operator()(yaml_event_t* event) const {
    yaml_event_delete(event);
    delete event;
  }
};
using Event = std::unique_ptr<yaml_event_t, EventDeleter>;

Value scalar(const yaml_event_t& event) {
  const auto& own = event.data.scalar;
  std::string text(reinterpret_cast<const char*>(own.value), own.length);
  if (own.style != YAML_PLAIN_SCALAR_STYLE) return {std::move(text)};
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {None{}};
  if (text == "true" || text == "True" || text == "TRUE") return {true};
  if (text == "false" || text == "False" || text == "FALSE") return {false};
  const std::string_view digits = std::string_view(text).substr(text.front() == '+' ? 1 : 0);
  if (const auto whole = parse_number<std::int64_t>(digits)) return {*whole};
  const bool has_digit = text.find_first_of("0123456789") != std::string::npos;  // "inf" is a text
  if (const auto real = has_digit ? parse_number<double>(digits) : std::nullopt) return {*real};
  return {std::move(text)};
}

class Document {
 public:
  explicit Document(std::string_view text) : is_ready_(yaml_parser_initialize(&parser_) != 0) {
    if (is_ready_)
      yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Document() {
    if (is_ready_) yaml_parser_delete(&parser_);
  }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Result<Value> read() {
    if (!is_ready_) return fail(Errc::memory, "no memory to read YAML");
    for (;;) {
      CKPT_TRY(const Event event, next());
      switch (event->type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
          break;
        case YAML_STREAM_END_EVENT:
        case YAML_DOCUMENT_END_EVENT:
          return root_ == nullptr ? Value{None{}} : *root_;
        case YAML_MAPPING_START_EVENT:
        case YAML_SEQUENCE_START_EVENT:
          if (open_.size() == kMostLevels) return fail(wrong("nested too deeply"));
          open_.push_back({.value = event->type == YAML_MAPPING_START_EVENT ? Value{Dict{}} : Value{List{}}});
          break;
        case YAML_MAPPING_END_EVENT:
        case YAML_SEQUENCE_END_EVENT:
          add(std::exchange(open_.back().value, {}), true);
          break;
        default:
          add(event->type == YAML_SCALAR_EVENT ? scalar(*event) : Value{None{}}, false);
      }
    }
  }

 private:
  /// A mapping or sequence whose end was not read yet.
  struct Open {
    Value value{};
    ValuePtr key{};  ///< of a mapping, that waits for its value
  };

  Error wrong(std::string_view reason) const {
    return {.code = Errc::corrupt,
            .message = fmt::format("line {}: {}", parser_.mark.line + 1, reason.empty() ? "not YAML" : reason)};
  }

  Result<Event> next() {
    auto event = std::make_unique<yaml_event_t>();
    if (yaml_parser_parse(&parser_, event.get()) == 0)
      return fail(wrong(parser_.problem == nullptr ? "" : parser_.problem));
    return Event(event.release());
  }

  void add(Value value, bool is_end) {
    if (is_end) open_.pop_back();
    auto item = std::make_shared<const Value>(std::move(value));
    if (open_.empty()) {
      root_ = std::move(item);
      return;
    }
    Open& into = open_.back();
    if (auto* list = std::get_if<List>(&into.value.v)) {
      list->items.push_back(std::move(item));
    } else if (into.key == nullptr) {
      into.key = std::move(item);
    } else {
      std::get<Dict>(into.value.v).items.emplace_back(std::move(into.key), std::move(item));
      into.key = nullptr;
    }
  }

  yaml_parser_t parser_{};
  bool is_ready_ = false;
  std::vector<Open> open_{};
  ValuePtr root_{};
};

}  // namespace

Result<Value> parse_yaml(std::string_view text) {
  return Document(text).read();
}

}  // namespace ckpt
