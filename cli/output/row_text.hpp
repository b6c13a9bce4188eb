#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// One row of a document (json.hpp: Rows), written as text in the layout of documents. For verbs that print a hundred
/// thousand rows: building a tree for each dominates their time. Call the methods in the order of the members.
class RowText {
 public:
  RowText() { begin_object(); }

  void number(std::string_view key, std::uint64_t value);
  void boolean(std::string_view key, bool value);
  /// As put_text: bytes that are no UTF-8 become U+FFFD, and `key`_b64 holds the true ones.
  void text(std::string_view key, std::string_view value);

  void begin_array(std::string_view key);
  /// Of an array of objects: what follows is in the next one.
  void begin_element();
  void end_element();
  void end_array();

  /// The row. Nothing is called afterwards.
  std::string take();

 private:
  void line();
  void name(std::string_view key);
  void begin_object();
  void end(char bracket);

  std::string out_{"\n      "};
  std::size_t indent_ = 6;
  bool is_empty_ = true;  // the innermost object or array, so far
};

}  // namespace ckpt::cli
