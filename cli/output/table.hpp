#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::cli {

/// One cell that is wider shifts its own row, and does not make every other one as wide.
constexpr std::size_t kWidestColumn = 200;

/// A listing: columns that fit a terminal, or tab-separated values for a program.
struct Table {
  struct Column {
    std::string title;
    bool right = false;    ///< numbers
    bool shrinks = false;  ///< is shortened in the middle if the terminal is too narrow
    bool drops = false;  ///< is left out if the terminal is too narrow even for shortened columns, the last such first
    std::size_t least = 16;   ///< columns of a shortened one
    bool wraps = false;       ///< of the last one: continues below itself instead, by words
    bool keeps_head = false;  ///< a sentence: is shortened at its end instead
  };
  std::vector<Column> columns{};
  std::vector<std::vector<std::string>> rows{};
};

struct Drawn {
  std::string text;
  std::size_t shortened = 0;  ///< cells that did not fit
};

/// Without columns that are empty. With a header row, two blanks between columns, at most `width` columns wide as far
/// as the shrinking columns allow.
/// `paint` (may be empty) colours the padded text of a cell: by column of `table` and the cell.
using PaintCell = std::function<std::string(std::size_t column, const std::string& cell, std::string_view text)>;
Drawn draw_aligned(const Table& table, std::size_t width, const PaintCell& paint = {});

/// With a header row, one tab between cells, nothing shortened; tabs and line breaks inside cells become '?'.
std::string draw_tsv(const Table& table);

/// Shortens text in the middle: "model.layers…weight". `columns` >= 3.
std::string shorten(std::string_view text, std::size_t columns);

/// Compares names as people count: "layers.2" before "layers.10"; true when `a` comes first.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace ckpt::cli
