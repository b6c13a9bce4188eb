#include "format/torch/pickle.hpp"

#include <bit>

#include "format/text/parse_number.hpp"
#include "format/torch/pickle_builder.hpp"
#include "format/torch/pickle_cursor.hpp"
#include "format/torch/pickle_memo.hpp"

// The machine of Python's pickle (Lib/pickle.py, Lib/pickletools.py), with one difference: REDUCE, NEWOBJ and BUILD
// make nodes and nothing runs.

namespace ckpt::pickle {
namespace {

constexpr std::size_t kLongestInteger = 1024;           // bytes; the largest seen are 17 (numpy's PCG64 state)
constexpr std::size_t kMostKeywordCallArguments = 255;  // they are copied, so they must be few
constexpr std::uint64_t kBudgetInterval = 256;          // opcodes between two checks of the memory limit

class Machine {
 public:
  Machine(std::span<const std::byte> data, const Budget& budget)
      : in_(data), budget_(budget), max_nodes_(std::min(budget.max_nodes, kMostNodes)) {}

  Result<Graph> run(std::size_t& used) {
    auto graph = read();
    used = graph ? in_.position() : in_.ran_out() ? in_.size() : 0;
    return graph;
  }

 private:
  Result<Graph> read() {
    if (in_.size() > 0xffffffffu) return in_.refuse("it has more than 4 GiB");
    for (;;) {
      std::uint8_t opcode = 0;
      if (!in_.next(opcode)) return in_.broken("it ends without STOP");
      if (opcode == '.') break;
      out_.at(in_.opcode_at());
      CKPT_CHECK(step(opcode));
      if (++opcode_count_ % kBudgetInterval == 0) CKPT_CHECK(check_budget());
    }
    if (stack_.size() != 1 || !marks_.empty()) return in_.broken("the stack does not hold one value at STOP");
    CKPT_CHECK(check_budget());
    memo_.clear();
    if (!out_.nests_within(stack_.back(), budget_.max_depth)) {
      return in_.refuse("values nest deeper than " + std::to_string(budget_.max_depth));
    }
    return Graph(out_.finish(stack_.back()));
  }

  using Status = Result<>;
  using Items = std::span<const NodeId>;

  Status check_budget() const {
    if (opcode_count_ > budget_.max_opcodes) return in_.refuse("more opcodes than the budget allows");
    if (out_.node_count() > max_nodes_) return in_.refuse("more values than the budget allows");
    const std::uint64_t bytes = out_.memory_bytes() + memo_.bytes() + stack_.capacity() * sizeof(NodeId) +
                                marks_.capacity() * sizeof(std::size_t);
    if (out_.exhausted()) return in_.refuse("more memory than the budget allows");
    if (bytes > budget_.max_bytes)
      return in_.failed(budget_.over_bytes, "more than " + std::to_string(budget_.max_bytes >> 20) + " MiB of memory");
    return {};
  }

  // --- values --------------------------------------------------------------------------------------------------
  Status push(NodeId id) {
    stack_.push_back(id);
    return {};
  }
  Status push_text(std::string_view text) {
    if (!is_text(text)) return in_.broken("text is not UTF-8");
    return push(out_.text(text));
  }
  // Python 2's str: text if possible.
  Status push_string(std::string_view text) { return push(is_text(text) ? out_.text(text) : out_.bytes(text)); }
  Status push_short_string(std::uint64_t size) {
    CKPT_TRY(const std::string_view text, in_.take(size));
    return push_string(text);
  }
  Status push_unicode(std::uint64_t size) {
    CKPT_TRY(const std::string_view text, in_.take(size));
    return push_text(text);
  }
  Status push_bytes(std::uint64_t size) {
    CKPT_TRY(const std::string_view bytes, in_.take(size));
    return push(out_.bytes(bytes));
  }
  Status push_integer(std::uint64_t value) { return push(out_.integer(static_cast<std::int64_t>(value))); }
  Status push_signed(std::uint64_t value) {
    return push(out_.integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(value))));
  }
  Status push_long(std::uint64_t size) {
    if (size > kLongestInteger) {
      if (size > in_.left()) return in_.broken("an integer runs past the end");
      return in_.refuse("an integer of " + std::to_string(size) + " bytes");
    }
    CKPT_TRY(const std::string_view raw, in_.take(size));
    if (size > 8) return push(out_.big_integer(decimal_of(std::as_bytes(std::span(raw)))));
    std::uint64_t value = size != 0 && (static_cast<unsigned char>(raw.back()) & 0x80u) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return push_integer(value);
  }
  Status push_float() {
    CKPT_TRY(const std::string_view raw, in_.take(8));
    std::uint64_t bits = 0;
    for (const char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);  // big-endian
    return push(out_.real(bits));
  }
  // Protocol 0: INT ("00" and "01" are bools) and LONG ("5L").
  Status push_integer_line(bool may_be_bool) {
    CKPT_TRY(std::string_view text, in_.line());
    if (may_be_bool && (text == "00" || text == "01")) return push(out_.boolean(text == "01"));
    if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
    if (const auto value = parse_number<std::int64_t>(text)) return push(out_.integer(*value));
    const std::size_t digits_at = text.starts_with('-') ? 1 : 0;
    const bool is_number = text.size() > digits_at && text.size() <= 3 * kLongestInteger &&
                           text.find_first_not_of("0123456789", digits_at) == std::string_view::npos;
    if (!is_number) return in_.broken("an integer is not a number");
    return push(out_.big_integer(text));
  }
  Status push_float_line() {
    CKPT_TRY(const std::string_view text, in_.line());
    const auto value = parse_number<double>(text);
    if (!value) return in_.broken("a float is not a number");
    return push(out_.real(std::bit_cast<std::uint64_t>(*value)));
  }
  Status push_unicode_line() {
    CKPT_TRY(const std::string_view text, in_.line());
    if (!decode_unicode_line(text, scratch_)) return in_.broken("a quoted string is malformed");
    return push_text(scratch_);
  }
  Status push_string_line() {
    CKPT_TRY(const std::string_view text, in_.line());
    if (!decode_string_line(text, scratch_)) return in_.broken("a quoted string is malformed");
    return push_string(scratch_);
  }

  // --- globals -------------------------------------------------------------------------------------------------
  Status push_global(std::string_view module, std::string_view name) {
    const bool named = !module.empty() && !name.empty() && module.find(' ') == std::string_view::npos;
    if (!named || !is_text(module) || !is_text(name)) return in_.broken("a global has no proper name");
    if (auto allowed = check_global(module, name); !allowed) {
      allowed.error().offset = in_.opcode_at();
      return allowed;
    }
    scratch_.assign(module).append(1, ' ').append(name);
    return push(out_.global(scratch_));
  }
  Status global_lines() {
    CKPT_TRY(const std::string_view module, in_.line());
    CKPT_TRY(const std::string_view name, in_.line());
    return push_global(module, name);
  }
  Status stack_global() {
    CKPT_TRY(const NodeId name, pop());
    CKPT_TRY(const NodeId module, pop());
    if (out_.node(module).kind() != Kind::text || out_.node(name).kind() != Kind::text) {
      return in_.broken("STACK_GLOBAL needs two strings");
    }
    return push_global(out_.text_of(module), out_.text_of(name));
  }

  // --- stack, marks, memo --------------------------------------------------------------------------------------
  std::size_t above_floor() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  tl::unexpected<Error> empty_stack() const { return in_.broken("the stack is empty"); }
  Result<NodeId> top() const {
    if (above_floor() == 0) return empty_stack();
    return stack_.back();
  }
  Result<NodeId> pop() {
    CKPT_TRY(const NodeId id, top());
    stack_.pop_back();
    return id;
  }
  Status discard() {
    if (above_floor() == 0 && !marks_.empty()) {
      marks_.pop_back();
      return {};
    }
    if (above_floor() == 0) return empty_stack();
    stack_.pop_back();
    return {};
  }
  // The last `count` values; they stay on the stack until drop().
  Result<Items> last(std::size_t count) const {
    if (above_floor() < count) return empty_stack();
    return Items(stack_).last(count);
  }
  // The values above the last mark, which is taken away; they stay on the stack until drop().
  Result<Items> above_mark() {
    if (marks_.empty()) return in_.broken("there is no MARK");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return Items(stack_).subspan(begin);
  }
  void drop(std::size_t count) { stack_.resize(stack_.size() - count); }
  Status discard_to_mark() {
    CKPT_TRY(const Items values, above_mark());
    drop(values.size());
    return {};
  }
  Status duplicate() {
    CKPT_TRY(const NodeId id, top());
    return push(id);
  }
  Status memo_put(std::uint64_t index) {
    // Every pickler numbers its memo from 0, so the input bounds the memory of the memo.
    if (index > opcode_count_) return in_.refuse("memo index " + std::to_string(index) + " is not dense");
    CKPT_TRY(const NodeId id, top());
    memo_.put(index, id);
    return {};
  }
  Status memo_get(std::uint64_t index) {
    const NodeId id = memo_.get(index);
    if (id == kNone) return in_.broken("memo entry " + std::to_string(index) + " was never set");
    return push(id);
  }

  // --- containers and calls ------------------------------------------------------------------------------------
  Status collect(Kind kind, Result<Items> values) {
    if (!values) return tl::unexpected<Error>(std::move(values).error());
    if (kind == Kind::dict && values->size() % 2 != 0) return in_.broken("a key without a value");
    const NodeId id = out_.container(kind, *values);
    drop(values->size());
    return push(id);
  }
  Status add(Kind wanted, Result<Items> values) {
    if (!values) return tl::unexpected<Error>(std::move(values).error());
    if (wanted == Kind::dict && values->size() % 2 != 0) return in_.broken("a key without a value");
    if (above_floor() <= values->size()) return empty_stack();
    const NodeId target = stack_[stack_.size() - values->size() - 1];
    if (!out_.add(target, wanted, *values)) return in_.broken("items for a value that cannot hold them");
    drop(values->size());
    return {};
  }
  Status call(NodeId arguments) {
    CKPT_TRY(const NodeId function, pop());
    if (out_.node(arguments).kind() != Kind::tuple) return in_.broken("arguments are not a tuple");
    const Kind kind = out_.node(function).kind();
    if (kind != Kind::global && kind != Kind::call) return in_.broken("the callee is neither a function nor a class");
    return push(out_.call(function, arguments));
  }
  Status call_plain() {
    CKPT_TRY(const NodeId arguments, pop());
    return call(arguments);
  }
  Status new_object() {
    CKPT_CHECK(call_plain());
    out_.note_new_object(stack_.back());
    return {};
  }
  // NEWOBJ_EX: keyword arguments, if any, become one more argument.
  Status call_with_keywords() {
    CKPT_TRY(const NodeId keywords, pop());
    if (out_.node(keywords).kind() != Kind::dict) return in_.broken("keyword arguments are not a dict");
    if (out_.items_of(keywords).empty()) return new_object();
    CKPT_TRY(const NodeId arguments, pop());
    const Items plain = out_.items_of(arguments);
    if (plain.size() > kMostKeywordCallArguments) return in_.refuse("keyword arguments next to too many arguments");
    std::vector<NodeId> all(plain.begin(), plain.end());
    all.push_back(keywords);
    if (out_.node(arguments).kind() != Kind::tuple) return in_.broken("arguments are not a tuple");
    return call(out_.container(Kind::tuple, all));
  }
  Status build() {
    CKPT_TRY(const NodeId state, pop());
    CKPT_TRY(const NodeId target, top());
    if (!out_.set_state(target, state))
      return in_.broken("BUILD of a value that is not an object, or already has a state");
    return {};
  }
  Status persistent() {
    CKPT_TRY(const NodeId id, pop());
    // torch's legacy files store a module's class this way, with its source (_legacy_save, persistent_id).
    const Items parts = out_.node(id).kind() == Kind::tuple ? out_.items_of(id) : Items{};
    if (parts.size() == 4 && out_.text_of(parts[0]) == "module" && out_.node(parts[1]).kind() == Kind::global) {
      return push(parts[1]);
    }
    return push(out_.persistent(id));
  }

  // --- opcodes -------------------------------------------------------------------------------------------------
  Status protocol(std::uint64_t version) {
    if (version <= 5) return {};
    return in_.failed(Errc::unsupported, "protocol " + std::to_string(version) + "; 0 to 5 are known");
  }
  Status frame(std::uint64_t size) {
    if (size > in_.left()) return in_.broken("a frame runs past the end");
    return {};
  }
  // Calls kAct with an opcode's argument: a number of kWidth bytes, or (below) the number that a line holds. Known when
  // it is compiled, so that the most frequent opcodes cost no call.
  template <unsigned kWidth, Status (Machine::*kAct)(std::uint64_t)>
  Status with() {
    std::uint64_t argument = 0;
    if (!in_.number<kWidth>(argument)) return in_.cut_short(kWidth);
    return (this->*kAct)(argument);
  }
  Status with_line(Status (Machine::*act)(std::uint64_t)) {
    CKPT_TRY(const std::uint64_t argument, in_.line_index());
    return (this->*act)(argument);
  }
  Status step(std::uint8_t opcode);
  Status step_old(std::uint8_t opcode);

  Cursor in_;
  const Budget& budget_;
  std::uint64_t max_nodes_;
  Builder out_;
  std::uint64_t opcode_count_ = 0;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  Memo memo_;
  std::string scratch_;
};

Result<> Machine::step(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80:
      return with<1, &Machine::protocol>();
    case 0x95:
      return with<8, &Machine::frame>();
    case '(':
      marks_.push_back(stack_.size());
      return {};
    case '0':
      return discard();
    case '1':
      return discard_to_mark();
    case '2':
      return duplicate();
    case 'h':
      return with<1, &Machine::memo_get>();
    case 'j':
      return with<4, &Machine::memo_get>();
    case 'q':
      return with<1, &Machine::memo_put>();
    case 'r':
      return with<4, &Machine::memo_put>();
    case 0x94:
      return memo_put(memo_.count());
    case 'N':
      return push(out_.none());
    case 0x88:
    case 0x89:
      return push(out_.boolean(opcode == 0x88));
    case 'K':
      return with<1, &Machine::push_integer>();
    case 'M':
      return with<2, &Machine::push_integer>();
    case 'J':
      return with<4, &Machine::push_signed>();
    case 0x8a:
      return with<1, &Machine::push_long>();
    case 0x8b:
      return with<4, &Machine::push_long>();
    case 'G':
      return push_float();
    case 0x8c:
      return with<1, &Machine::push_unicode>();
    case 'X':
      return with<4, &Machine::push_unicode>();
    case 0x8d:
      return with<8, &Machine::push_unicode>();
    case 'C':
      return with<1, &Machine::push_bytes>();
    case 'B':
      return with<4, &Machine::push_bytes>();
    case 0x8e:
    case 0x96:
      return with<8, &Machine::push_bytes>();
    case ']':
      return push(out_.container(Kind::list, {}));
    case '}':
      return push(out_.container(Kind::dict, {}));
    case 0x8f:
      return push(out_.container(Kind::set, {}));
    case ')':
      return collect(Kind::tuple, Items{});
    case 0x85:
    case 0x86:
    case 0x87:
      return collect(Kind::tuple, last(opcode - 0x84u));
    case 't':
      return collect(Kind::tuple, above_mark());
    case 0x91:
      return collect(Kind::set, above_mark());
    case 'a':
      return add(Kind::list, last(1));
    case 'e':
      return add(Kind::list, above_mark());
    case 's':
      return add(Kind::dict, last(2));
    case 'u':
      return add(Kind::dict, above_mark());
    case 0x90:
      return add(Kind::set, above_mark());
    case 'c':
      return global_lines();
    case 0x93:
      return stack_global();
    case 'R':
      return call_plain();
    case 0x81:
      return new_object();
    case 0x92:
      return call_with_keywords();
    case 'b':
      return build();
    case 'Q':
      return persistent();
    default:
      return step_old(opcode);
  }
}

// Opcodes of protocols 0 and 1 and of Python 2, and those that are refused.
Result<> Machine::step_old(std::uint8_t opcode) {
  switch (opcode) {
    case 'I':
    case 'L':
      return push_integer_line(opcode == 'I');
    case 'F':
      return push_float_line();
    case 'S':
      return push_string_line();
    case 'V':
      return push_unicode_line();
    case 'U':
      return with<1, &Machine::push_short_string>();
    case 'T':
      return with<4, &Machine::push_short_string>();
    case 'g':
      return with_line(&Machine::memo_get);
    case 'p':
      return with_line(&Machine::memo_put);
    case 'd':
      return collect(Kind::dict, above_mark());
    case 'l':
      return collect(Kind::list, above_mark());
    case 'i':
    case 'o':
      return in_.refuse("an object of a Python 2 class (INST, OBJ)");
    case 'P':
      return in_.refuse("a textual persistent id (PERSID)");
    case 0x82:
    case 0x83:
    case 0x84:
      return in_.refuse("an extension code (EXT)");
    case 0x97:
    case 0x98:
      return in_.refuse("a buffer outside the pickle (NEXT_BUFFER)");
    default:
      return in_.broken("unknown opcode " + std::to_string(opcode));
  }
}

}  // namespace

Result<Graph> parse(std::span<const std::byte> data, const Budget& budget, std::size_t* used) {
  std::size_t consumed = 0;
  return Machine(data, budget).run(used != nullptr ? *used : consumed);
}

}  // namespace ckpt::pickle
