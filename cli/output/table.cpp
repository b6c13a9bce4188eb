#include "cli/output/table.hpp"

#include <algorithm>

#include "cli/output/console.hpp"

namespace ckpt::cli {
namespace {

/// The byte at which column `column` of UTF-8 text begins.
std::size_t byte_of_column(std::string_view text, std::size_t column) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
    if (column == 0) break;
    --column;
  }
  return i;
}

void append_cell(std::string& out, std::string_view cell, std::size_t width, bool right, bool last) {
  const std::size_t have = text_width(cell);
  const std::size_t blanks = width > have ? width - have : 0;
  if (right) out.append(blanks, ' ');
  out += cell;
  if (!right) out.append(blanks, ' ');
  out += "  ";
  if (!last) return;
  out.erase(out.find_last_not_of(' ') + 1);
  out += "\n";
}

Table without_empty_columns(const Table& table) {
  Table out;
  out.rows.resize(table.rows.size());
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const bool empty =
        !table.rows.empty() && std::ranges::all_of(table.rows, [&](const auto& row) { return row[i].empty(); });
    if (empty) continue;
    out.columns.push_back(table.columns[i]);
    for (std::size_t r = 0; r < table.rows.size(); ++r) out.rows[r].push_back(table.rows[r][i]);
  }
  return out;
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
  return std::string(text.substr(0, byte_of_column(text, head))) + "…" +
         std::string(text.substr(byte_of_column(text, have - tail)));
}

Drawn draw_aligned(const Table& whole, std::size_t width) {
  constexpr std::size_t least_shrunk = 16;
  const Table table = without_empty_columns(whole);
  std::vector<std::size_t> widths;
  for (const Table::Column& column : table.columns) widths.push_back(text_width(column.title));
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  std::size_t total = 2 * (widths.size() - 1);
  for (const std::size_t one : widths) total += one;
  for (std::size_t i = 0; i < widths.size() && total > width; ++i) {
    if (!table.columns[i].shrinks || widths[i] <= least_shrunk) continue;
    const std::size_t cut = std::min(total - width, widths[i] - least_shrunk);
    widths[i] -= cut;
    total -= cut;
  }
  Drawn out;
  for (std::size_t i = 0; i < widths.size(); ++i)
    append_cell(out.text, table.columns[i].title, widths[i], table.columns[i].right, i + 1 == widths.size());
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool too_wide = table.columns[i].shrinks && text_width(row[i]) > widths[i];
      if (too_wide) ++out.shortened;
      append_cell(out.text, too_wide ? shorten(row[i], widths[i]) : row[i], widths[i], table.columns[i].right,
                  i + 1 == widths.size());
    }
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
