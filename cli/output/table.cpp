#include "cli/output/table.hpp"

#include <algorithm>

#include "cli/output/console.hpp"
#include "cli/output/paragraph.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::cli {
namespace {

/// The bytes of UTF-8 text that fit into its first `columns`; or, with `over`, that reach that column.
std::size_t bytes_of_columns(std::string_view text, std::size_t columns, bool over) {
  std::size_t bytes = 0;
  std::size_t used = 0;
  while (bytes < text.size()) {
    const CodePoint one = first_code_point(text.substr(bytes));
    const std::size_t next = used + (one.bytes == 0 ? 1 : columns_of(one.value));
    if (over ? used >= columns : next > columns) break;
    used = next;
    bytes += std::max<std::size_t>(1, one.bytes);
  }
  return bytes;
}

/// With blanks up to `width`, and not after the last column.
std::string padded(std::string_view cell, std::size_t width, bool right, bool last) {
  const std::size_t have = text_width(cell);
  const std::string blanks(width > have ? width - have : 0, ' ');
  if (right) return blanks + std::string(cell);
  return std::string(cell) + (last ? "" : blanks);
}

/// The columns that have a cell, or all of an empty table.
std::vector<std::size_t> filled_columns(const Table& table) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const bool empty =
        !table.rows.empty() && std::ranges::all_of(table.rows, [&](const auto& row) { return row[i].empty(); });
    if (!empty) out.push_back(i);
  }
  return out;
}

std::string shortened(std::string_view cell, std::size_t width, bool keeps_head) {
  if (!keeps_head) return shorten(cell, width);
  return std::string(cell.substr(0, bytes_of_columns(cell, width - 1, false))) + "…";
}

/// The fewest columns that one of this width can have.
std::size_t least_width(const Table::Column& column, std::size_t width) {
  if (!column.shrinks && !column.wraps) return width;
  return std::min(width, std::max(column.least, text_width(column.title)));
}

/// With two blanks between columns.
std::size_t total_width(const std::vector<std::size_t>& widths) {
  std::size_t out = widths.empty() ? 0 : 2 * (widths.size() - 1);
  for (const std::size_t one : widths) out += one;
  return out;
}

/// Leaves out columns until the others fit when they are shortened.
void drop_columns(const Table& table, std::size_t width, std::vector<std::size_t>& shown,
                  std::vector<std::size_t>& widths) {
  for (;;) {
    std::vector<std::size_t> least;
    for (std::size_t i = 0; i < shown.size(); ++i) least.push_back(least_width(table.columns[shown[i]], widths[i]));
    if (total_width(least) <= width) return;
    std::size_t last = shown.size();
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (table.columns[shown[i]].drops) last = i;
    }
    if (last == shown.size()) return;
    shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(last));
    widths.erase(widths.begin() + static_cast<std::ptrdiff_t>(last));
  }
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::string shorten(std::string_view text, std::size_t columns) {
  const std::size_t have = text_width(text);
  if (have <= columns) return std::string(text);
  const std::size_t tail = (columns - 1) * 2 / 3;  // the end of a tensor's name distinguishes more than its start
  const std::size_t head = columns - 1 - tail;
  return std::string(text.substr(0, bytes_of_columns(text, head, false))) + "…" +
         std::string(text.substr(bytes_of_columns(text, have - tail, true)));
}

Drawn draw_aligned(const Table& table, std::size_t width, const PaintCell& paint) {
  std::vector<std::size_t> shown = filled_columns(table);
  std::vector<std::size_t> widths;
  for (const std::size_t c : shown) {
    widths.push_back(text_width(table.columns[c].title));
    for (const auto& row : table.rows)
      widths.back() = std::max(widths.back(), std::min(text_width(row[c]), kWidestColumn));
  }
  drop_columns(table, width, shown, widths);
  std::size_t total = total_width(widths);
  const std::vector<std::size_t> wanted = widths;
  for (std::size_t i = widths.size(); i-- > 0 && total > width;) {  // what comes first matters most
    const std::size_t least = least_width(table.columns[shown[i]], widths[i]);
    const std::size_t cut = std::min(total - width, widths[i] - least);
    widths[i] -= cut;
    total -= cut;
  }
  Drawn out;
  const auto add_row = [&](const std::vector<std::string>& cells, bool is_title) {
    std::size_t last = 0;  // the last column with text: nothing but blanks after it
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (!cells[shown[i]].empty()) last = i;
    }
    std::size_t indent = 0;
    for (std::size_t i = 0; i <= last && i < shown.size(); ++i) {
      const Table::Column& column = table.columns[shown[i]];
      const std::string& cell = cells[shown[i]];
      const bool too_wide = !is_title && column.shrinks && widths[i] < wanted[i] && text_width(cell) > widths[i];
      if (too_wide) ++out.shortened;
      std::string text =
          padded(too_wide ? shortened(cell, widths[i], column.keeps_head) : cell, widths[i], column.right, i == last);
      if (column.wraps && i == last && !is_title)
        text = fitted(std::string(indent, ' ') + cell, indent, indent + widths[i]).substr(indent);
      indent += widths[i] + 2;
      out.text += paint && !is_title ? paint(shown[i], cell, text) : text;
      if (i != last) out.text += "  ";
    }
    out.text += "\n";
  };
  std::vector<std::string> titles;
  for (const Table::Column& column : table.columns) titles.push_back(column.title);
  add_row(titles, true);
  for (const auto& row : table.rows) add_row(row, false);
  return out;
}

std::string draw_tsv(const Table& table) {
  std::string out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) out += (i == 0 ? "" : "\t") + table.columns[i].title;
  out += "\n";
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i != 0) out += '\t';
      out += printable(row[i]);
    }
    out += '\n';
  }
  return out;
}

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const auto number = [](std::string_view text) {
        std::size_t end = 0;
        while (end < text.size() && is_digit(text[end])) ++end;
        std::size_t zeros = 0;
        while (zeros + 1 < end && text[zeros] == '0') ++zeros;
        return std::pair{text.substr(zeros, end - zeros), end};
      };
      const auto [digits_a, end_a] = number(a);
      const auto [digits_b, end_b] = number(b);
      if (digits_a.size() != digits_b.size()) return digits_a.size() < digits_b.size();
      if (digits_a != digits_b) return digits_a < digits_b;
      a.remove_prefix(end_a);
      b.remove_prefix(end_b);
      continue;
    }
    if (a[0] != b[0]) return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]);
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "01" and "1": a strict order still
}

}  // namespace ckpt::cli
