#include "format/torch/pickle_writer.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "format/little_endian.hpp"

namespace ckpt::pickle {
namespace {

constexpr std::uint64_t kBatch = 1000;  // _pickle.c: BATCHSIZE

/// A decimal number in two's complement, little-endian, as short as it can be.
std::string two_s_complement(std::string_view decimal) {
  const bool negative = decimal.starts_with('-');
  if (negative) decimal.remove_prefix(1);
  std::string bytes(1, '\0');
  for (const char digit : decimal) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (char& byte : bytes) {
      carry += 10u * static_cast<unsigned char>(byte);
      byte = static_cast<char>(carry & 0xffu);
      carry >>= 8;
    }
    if (carry != 0) bytes.push_back(static_cast<char>(carry));
  }
  bytes.push_back('\0');  // room for the sign
  if (negative) {
    unsigned carry = 1;
    for (char& byte : bytes) {
      carry += 0xffu & ~static_cast<unsigned>(static_cast<unsigned char>(byte));
      byte = static_cast<char>(carry & 0xffu);
      carry >>= 8;
    }
  }
  const auto sign = [](char byte) { return (static_cast<unsigned char>(byte) & 0x80u) != 0; };
  while (bytes.size() > 1 && bytes.back() == (sign(bytes[bytes.size() - 2]) ? '\xff' : '\0')) bytes.pop_back();
  return bytes;
}

}  // namespace

Writer::Writer() : frames_{{.form = Form::root, .items = 1}} {
  op('\x80');
  op('\x02');
}

void Writer::number(std::uint64_t value, unsigned bytes) {
  append_little_endian(out_, value, bytes);
}

/// Whether the batch that item number `at` begins has no MARK: the pickler looks one item ahead, for an exact list or
/// dict at its size.
bool Writer::is_alone(const Frame& frame, std::uint64_t at) const {
  const bool by_size = frame.form == Form::list || frame.form == Form::dict || frame.form == Form::set_items;
  const std::uint64_t unit = frame.form == Form::dict || frame.form == Form::pairs ? 2 : 1;
  return by_size ? frame.items == unit : frame.items - at == unit;
}

void Writer::before() {
  Frame& frame = frames_.back();
  const bool is_dict = frame.form == Form::dict || frame.form == Form::pairs;
  const bool is_list = frame.form == Form::list || frame.form == Form::items || frame.form == Form::set_items;
  assert(frame.form == Form::object || frame.done < frame.items);
  if (!is_dict && !is_list) return;
  if (frame.done % (is_dict ? 2 * kBatch : kBatch) == 0 && !is_alone(frame, frame.done)) op('(');
}

void Writer::after() {
  Frame& frame = frames_.back();
  ++frame.done;
  const bool is_dict = frame.form == Form::dict || frame.form == Form::pairs;
  const bool is_list = frame.form == Form::list || frame.form == Form::items || frame.form == Form::set_items;
  if (!is_dict && !is_list) return;
  const std::uint64_t batch = is_dict ? 2 * kBatch : kBatch;
  const bool ends_batch = frame.done % batch == 0;
  if (!ends_batch && frame.done != frame.items) return;
  const bool alone = is_alone(frame, (frame.done - 1) / batch * batch);
  op(is_dict ? (alone ? 's' : 'u') : (alone ? 'a' : 'e'));
  // It walks a dict until a batch is not full, so that one may be empty.
  if (frame.form == Form::dict && ends_batch && frame.done == frame.items) out_ += "(u";
}

MemoIndex Writer::put() {
  const MemoIndex index = memo_count_++;
  const bool is_short = index < 256;
  op(is_short ? 'q' : 'r');
  number(index, is_short ? 1 : 4);
  return index;
}

void Writer::get(MemoIndex index) {
  before();
  const bool is_short = index < 256;
  op(is_short ? 'h' : 'j');
  number(index, is_short ? 1 : 4);
  after();
}

void Writer::none() {
  before();
  op('N');
  after();
}

void Writer::boolean(bool value) {
  before();
  op(value ? '\x88' : '\x89');
  after();
}

void Writer::integer(std::int64_t value) {
  before();
  if (value >= 0 && value <= 0xff) {
    op('K');
    number(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xffff) {
    op('M');
    number(static_cast<std::uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    op('J');
    number(static_cast<std::uint64_t>(value), 4);
  } else {
    unsigned bytes = 5;
    while (bytes < 8 && (value >> (8 * bytes - 1)) != 0 && (value >> (8 * bytes - 1)) != -1) ++bytes;
    op('\x8a');
    number(bytes, 1);
    number(static_cast<std::uint64_t>(value), bytes);
  }
  after();
}

void Writer::big_integer(std::string_view decimal) {
  before();
  const std::string bytes = two_s_complement(decimal);
  const bool is_short = bytes.size() < 256;
  op(is_short ? '\x8a' : '\x8b');
  number(bytes.size(), is_short ? 1 : 4);
  out_ += bytes;
  after();
}

void Writer::real(double value) {
  before();
  op('G');
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out_.push_back(static_cast<char>(bits >> shift));
  after();
}

MemoIndex Writer::write_text(std::string_view utf8) {
  op('X');
  number(utf8.size(), 4);
  out_ += utf8;
  return put();
}

MemoIndex Writer::text(std::string_view utf8) {
  const auto [at, is_new] = texts_.try_emplace(hash128(utf8), memo_count_);
  if (!is_new) {
    get(at->second);
    return at->second;
  }
  return own_text(utf8);
}

MemoIndex Writer::own_text(std::string_view utf8) {
  before();
  const MemoIndex index = write_text(utf8);
  after();
  return index;
}

MemoIndex Writer::bytes(std::string_view data) {
  begin_object();
  if (data.empty()) {
    global("__builtin__ bytes");
    begin_tuple(0);
    end();
  } else {
    std::string latin1;
    latin1.reserve(data.size() + data.size() / 2);
    for (const char c : data) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        latin1.push_back(c);
      } else {
        latin1.push_back(static_cast<char>(0xc0u | byte >> 6));
        latin1.push_back(static_cast<char>(0x80u | (byte & 0x3fu)));
      }
    }
    global("_codecs encode");
    begin_tuple(2);
    own_text(latin1);
    text("latin1");
    end();
  }
  reduce();
  return end();
}

MemoIndex Writer::global(std::string_view module_and_name) {
  std::string line = std::string(module_and_name).append(1, '\n');
  assert(line.find(' ') != std::string::npos);
  line[line.find(' ')] = '\n';
  const auto known = globals_.find(line);
  if (known != globals_.end()) {
    get(known->second);
    return known->second;
  }
  before();
  op('c');
  out_ += line;
  const MemoIndex index = put();
  globals_.emplace(std::move(line), index);
  after();
  return index;
}

void Writer::begin(Form form, std::uint64_t items, MemoIndex memo) {
  frames_.push_back({.form = form, .items = items, .memo = memo});
}

void Writer::begin_tuple(std::uint64_t items) {
  before();
  if (items > 3) op('(');
  begin(Form::tuple, items);
}

void Writer::begin_list(std::uint64_t items) {
  before();
  op(']');
  begin(Form::list, items, put());
}

void Writer::begin_dict(std::uint64_t items) {
  before();
  op('}');
  begin(Form::dict, 2 * items, put());
}

void Writer::begin_set(std::uint64_t items, bool frozen) {
  begin_object();
  global(frozen ? "__builtin__ frozenset" : "__builtin__ set");
  begin_tuple(1);
  before();
  op(']');
  begin(Form::set_items, items, put());
}

void Writer::begin_object() {
  before();
  begin(Form::object, 0);
}

MemoIndex Writer::close_call(char opcode) {
  assert(frames_.back().form == Form::object && frames_.back().done == 2);
  op(opcode);
  return frames_.back().memo = put();
}

MemoIndex Writer::reduce() {
  return close_call('R');
}

MemoIndex Writer::new_object() {
  return close_call('\x81');
}

void Writer::begin_items(std::uint64_t items) {
  begin(Form::items, items);
}

void Writer::begin_pairs(std::uint64_t items) {
  begin(Form::pairs, 2 * items);
}

void Writer::build() {
  assert(frames_.back().form == Form::object);
  op('b');
}

void Writer::begin_persistent() {
  before();
  begin(Form::persistent, 1);
}

MemoIndex Writer::end() {
  const Frame frame = frames_.back();
  assert(frames_.size() > 1 && (frame.form == Form::object || frame.done == frame.items));
  frames_.pop_back();
  MemoIndex index = frame.memo;
  switch (frame.form) {
    case Form::tuple:
      if (frame.items == 0) {
        op(')');
      } else {
        op(frame.items > 3 ? 't' : static_cast<char>(0x84 + static_cast<int>(frame.items)));
        index = put();
      }
      break;
    case Form::persistent:
      op('Q');
      break;
    case Form::set_items:
      after();  // the list, which is the one argument
      end();
      reduce();
      return end();
    case Form::items:
    case Form::pairs:
      return 0;  // not a value itself
    default:
      break;
  }
  after();
  return index;
}

std::string Writer::finish() && {
  assert(frames_.size() == 1 && frames_.front().done == 1);
  op('.');
  return std::move(out_);
}

}  // namespace ckpt::pickle
