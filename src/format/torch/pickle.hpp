#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/result.hpp"

namespace ckpt::pickle {

/// Limits that no input may pass; each overrun is `refused`.
struct Budget {
  std::uint64_t max_nodes = std::uint64_t{64} << 20;  ///< values and memo entries
  std::uint64_t max_opcodes = std::uint64_t{512} << 20;
  std::uint32_t max_depth = 1000;                    ///< nesting of containers and calls
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< memory of the graph
  Errc over_bytes = Errc::refused;                   ///< when max_bytes is exceeded: `memory` for a user's limit
};

using NodeId = std::uint32_t;
constexpr NodeId kNone = 0xffffffff;

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,
  big_integer,
  real,
  text,
  bytes,
  list,
  tuple,
  set,
  dict,
  global,      ///< a symbol "module name"; never looked up
  call,        ///< REDUCE / NEWOBJ / NEWOBJ_EX: callable, arguments; with BUILD state and items set later
  persistent,  ///< BINPERSID: its id
};

/// The value graph that a pickle describes. Nothing is executed: a call is a node. Shared values are shared nodes, and
/// a container may contain itself: code that walks the graph must handle both. An accessor of another kind returns
/// zero, nothing or kNone; kNone itself reads as None. Views into text, bytes and items point into the graph. About 16
/// bytes per value and 4 per item.
class Graph {
 public:
  Kind kind(NodeId id) const;
  bool boolean(NodeId id) const;
  std::int64_t integer(NodeId id) const;
  double real(NodeId id) const;
  /// text: UTF-8 (lone surrogates unchanged); bytes: the bytes; big_integer: decimal; global: "module name"
  std::string_view text(NodeId id) const;
  /// list, tuple, set: the items; dict: key, value, key, value, ...; call: items appended or set after the call
  /// (a list's items, or a dict's keys and values)
  std::span<const NodeId> items(NodeId id) const;
  /// True for a dict, and for a call whose items are keys and values.
  bool has_pairs(NodeId id) const;
  NodeId callee(NodeId id) const;         ///< call: the callable (usually a global)
  NodeId arguments(NodeId id) const;      ///< call: a tuple; persistent: the id's value
  NodeId state(NodeId id) const;          ///< call: BUILD state, or kNone
  std::uint64_t offset(NodeId id) const;  ///< byte of the pickle at which the node was made (equal texts, globals and
                                          ///< small numbers are one node: where the first was made)
  NodeId root() const;
  std::size_t node_count() const;    ///< ids are below it
  std::uint64_t text_bytes() const;  ///< memory of all text and bytes, shared ones once

  /// The value of a text key in a dict (or a call's dict items); kNone if absent or not a dict.
  NodeId find(NodeId dict, std::string_view key) const;
  bool is_new_object(NodeId id) const;  ///< a call by NEWOBJ: class.__new__(class, *arguments)
  bool is_global(NodeId id, std::string_view module_and_name) const;
  /// For a call: the callee's "module name", else empty.
  std::string_view callee_name(NodeId id) const;

  struct Impl;
  explicit Graph(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Interprets one pickle of protocol 0 (as far as torch writes it), 2, 3, 4 or 5, up to its STOP.
///
/// data     from PROTO on; bytes after STOP are ignored; at most 4 GiB
/// used     if not null: the bytes consumed; after an error all of them if more data might have helped, else 0
/// errors   corrupt: not a pickle, cut short, a wrong stack, an unknown opcode; unsupported: a later protocol; refused:
///          over budget, an opcode that reaches outside the pickle or builds old classes (PERSID, INST, OBJ, EXT,
///          NEXT_BUFFER), or a global of os, posix, nt, subprocess, sys, importlib, runpy, shutil, socket, ctypes and
///          their submodules, or of builtins outside the table
/// offsets  of errors are bytes from the start of `data`
Result<Graph> parse(std::span<const std::byte> data, const Budget& budget = {}, std::size_t* used = nullptr);

}  // namespace ckpt::pickle
