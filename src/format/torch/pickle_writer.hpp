#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/hash.hpp"

namespace ckpt::pickle {

/// The memo index of a written value: Writer::get puts it on the stack again.
using MemoIndex = std::uint32_t;

/// Writes one pickle of protocol 2, opcode for opcode as CPython's C pickler does for torch.save: everything but
/// numbers, None and the empty tuple goes into the memo, items come in batches of 1000.
///
/// Values are written depth first. begin_dict and the others take the number of items; `end` closes the container and
/// returns its memo index:
///
///     writer.begin_dict(2);                                          // {"step": 7, "shape": torch.Size([2, 3])}
///     writer.text("step"), writer.integer(7);
///     writer.text("shape");
///     writer.begin_object();
///     writer.global("torch Size"), writer.begin_tuple(1), writer.begin_tuple(2);
///     writer.integer(2), writer.integer(3);
///     writer.end(), writer.end();
///     writer.reduce();                                               // torch.Size((2, 3))
///     writer.end();
///     writer.end();
///     std::string bytes = std::move(writer).finish();
///
/// A wrong number of items, or an `end` too many, is an assertion failure. Memory: the pickle, and about 40 bytes per
/// distinct text. One thread.
///
/// source  CPython Modules/_pickle.c: save_long, save_bytes, batch_list, batch_list_exact, batch_dict,
///         batch_dict_exact, save_reduce
class Writer {
 public:
  Writer();

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void big_integer(std::string_view decimal);  ///< digits, with '-' before them if negative
  void real(double value);
  /// UTF-8, also with lone surrogates. Equal texts are written once and then taken from the memo, as CPython does with
  /// the names and keys of a program.
  MemoIndex text(std::string_view utf8);
  /// A separate text, like one that a program has just computed: torch's storage keys.
  MemoIndex own_text(std::string_view utf8);
  MemoIndex bytes(std::string_view data);              ///< as _codecs.encode(text, "latin1")
  MemoIndex global(std::string_view module_and_name);  ///< "collections OrderedDict", as Graph::text of a global

  void begin_tuple(std::uint64_t items);
  void begin_list(std::uint64_t items);
  void begin_dict(std::uint64_t items);  ///< pairs; a key, its value, the next key, ...
  /// set(items) or frozenset(items).
  void begin_set(std::uint64_t items, bool frozen = false);
  /// An object: its callable, then a tuple of arguments, then `reduce` (or `new_object`); then its items, pairs and
  /// state, if any, in this order; then `end`.
  void begin_object();
  MemoIndex reduce();                     ///< callable(*arguments)
  MemoIndex new_object();                 ///< class.__new__(class, *arguments)
  void begin_items(std::uint64_t items);  ///< of an object that is a list; closed by `end`
  void begin_pairs(std::uint64_t items);  ///< of an object that is a dict; closed by `end`
  void build();                           ///< the value written last is the object's state
  /// Closes the innermost container. Returns for an object the index that `reduce` returned, for pairs and items 0.
  MemoIndex end();

  /// A value that was written before.
  void get(MemoIndex index);
  /// The value written last, which is not an item of a container, is an id by which the unpickler requests another
  /// object: a storage. To be written between `begin_persistent` and `end`.
  void begin_persistent();

  /// Bytes so far, for callers that need the final length early.
  std::size_t size() const { return out_.size(); }
  /// The pickle, with its STOP.
  std::string finish() &&;

 private:
  enum class Form : std::uint8_t { root, tuple, list, dict, items, pairs, set_items, object, persistent };
  struct Frame {
    Form form = Form::root;
    std::uint64_t items = 0;  // that it will have; of a dict twice the pairs
    std::uint64_t done = 0;   // that it has
    MemoIndex memo = 0;       // of the container, once it is known
  };

  void op(char opcode) { out_.push_back(opcode); }
  void number(std::uint64_t value, unsigned bytes);
  void before();  // a value begins
  void after();   // a value ends
  bool is_alone(const Frame& frame, std::uint64_t at) const;
  MemoIndex put();
  MemoIndex write_text(std::string_view utf8);
  MemoIndex close_call(char opcode);
  void begin(Form form, std::uint64_t items, MemoIndex memo = 0);

  struct HashOfHash {
    std::size_t operator()(const Hash128& hash) const { return static_cast<std::size_t>(hash.words()[0]); }
  };

  std::string out_;
  std::vector<Frame> frames_;
  MemoIndex memo_count_ = 0;
  std::unordered_map<Hash128, MemoIndex, HashOfHash> texts_;
  std::unordered_map<std::string, MemoIndex> globals_;
};

}  // namespace ckpt::pickle
