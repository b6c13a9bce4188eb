#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/convert/stats.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/output/table.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::array<std::string_view, 2> kTroubles{"NAN", "INF"};

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "0.5 %"; "" if there is none.
std::string share_text(std::uint64_t count, std::uint64_t of) {
  if (count == 0) return {};
  return fmt::format("{:.2g} %", 100 * static_cast<double>(count) / static_cast<double>(of));
}

Table table_for_people(const StatsReport& report) {
  Table out{.columns = {{.title = "NAME", .shrinks = true},
                        {.title = "DTYPE", .drops = true},
                        {.title = "SHAPE", .drops = true},
                        {.title = "MIN", .right = true},
                        {.title = "MAX", .right = true},
                        {.title = "MEAN", .right = true},
                        {.title = "STD", .right = true},
                        {.title = "NORM", .right = true},
                        {.title = "ZEROS", .right = true},
                        {.title = kTroubles[0].data(), .right = true},
                        {.title = kTroubles[1].data(), .right = true}}};
  const auto number = [](double value) { return fmt::format("{:.3g}", value); };
  for (const TensorStats& tensor : report.tensors) {
    const auto of = [&](double TensorStats::Moments::*member) {
      return tensor.moments ? number((*tensor.moments).*member) : "";
    };
    out.rows.push_back({printable(tensor.name), tensor.dtype, shape_text(tensor.shape), of(&TensorStats::Moments::min),
                        of(&TensorStats::Moments::max), of(&TensorStats::Moments::mean),
                        of(&TensorStats::Moments::deviation), tensor.norm ? number(*tensor.norm) : "",
                        share_text(tensor.zeros, tensor.elements), tensor.nan == 0 ? "" : format_count(tensor.nan),
                        tensor.infinite == 0 ? "" : format_count(tensor.infinite)});
  }
  return out;
}

Table table_for_programs(const StatsReport& report) {
  Table out;
  for (const char* title :
       {"NAME", "DTYPE", "SHAPE", "ELEMENTS", "MIN", "MAX", "MEAN", "STD", "NORM", "ZEROS", "NAN", "INF"})
    out.columns.push_back({.title = title});
  for (const TensorStats& tensor : report.tensors) {
    const auto of = [&](double TensorStats::Moments::*member) {
      return tensor.moments ? fmt::format("{}", (*tensor.moments).*member) : "";
    };
    out.rows.push_back({printable(tensor.name), tensor.dtype, shape_text(tensor.shape), std::to_string(tensor.elements),
                        of(&TensorStats::Moments::min), of(&TensorStats::Moments::max), of(&TensorStats::Moments::mean),
                        of(&TensorStats::Moments::deviation), tensor.norm ? fmt::format("{}", *tensor.norm) : "",
                        std::to_string(tensor.zeros), std::to_string(tensor.nan), std::to_string(tensor.infinite)});
  }
  return out;
}

void print_report(Context& context, const StatsReport& report) {
  if (context.words.on("tsv")) return say(context, draw_tsv(table_for_programs(report)));
  const Table table = table_for_people(report);
  const auto paint = [&](std::size_t column, const std::string& cell, std::string_view text) {
    const bool is_trouble =
        !cell.empty() && std::ranges::find(kTroubles, table.columns[column].title) != kTroubles.end();
    return is_trouble ? context.console.paint_out(Ink::red, text) : std::string(text);
  };
  const auto troubled = std::ranges::count_if(
      report.tensors, [](const TensorStats& tensor) { return tensor.nan + tensor.infinite != 0; });
  std::string out = draw_aligned(table, context.console.table_width(), paint).text;
  out += fmt::format("{}, {} in {}", format_counted(report.tensors.size(), "tensor"),
                     format_size(report.bytes, context.settings.sizes), format_seconds(report.seconds));
  if (troubled != 0) out += fmt::format(" · {} with NaN or Inf", format_count(static_cast<std::uint64_t>(troubled)));
  say(context, out + "\n");
}

/// JSON has no infinite numbers: a norm may be one.
std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string data_of(const StatsReport& report, const std::string& path) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "path", path);
  out.member("format", report.format).member("bytes", report.bytes).member("elapsed_s", report.seconds);
  out.key("tensors").begin_array();
  for (const TensorStats& tensor : report.tensors) {
    out.begin_object();
    put_text(out, "name", tensor.name);
    out.member("dtype", tensor.dtype).member("shape", tensor.shape).member("elements", tensor.elements);
    const auto of = [&](double TensorStats::Moments::*member) {
      return tensor.moments ? finite((*tensor.moments).*member) : std::nullopt;
    };
    out.member("min", of(&TensorStats::Moments::min)).member("max", of(&TensorStats::Moments::max));
    out.member("mean", of(&TensorStats::Moments::mean)).member("std", of(&TensorStats::Moments::deviation));
    out.member("norm", finite(tensor.norm)).member("zeros", tensor.zeros);
    out.member("nan", tensor.nan).member("inf", tensor.infinite).end_object();
  }
  out.end_array().end_object();
  return data;
}

}  // namespace

Answer run_stats(Context& context) {
  const Words& words = context.words;
  StatsRequest request{.from = words.text("from"), .only = words.all("only")};
  if (words.arguments[0].empty()) return failed({.code = Errc::usage, .message = "missing PATH"});
  auto report = ask_alone(context, [&](Session& session) -> Result<StatsReport> {
    CKPT_TRY(request.path, source_path(context, session, words.arguments[0]));
    return stats(session, request);
  });
  if (!report) return failed(std::move(report).error());
  Answer out;
  take_warnings(out, report->findings);
  if (context.settings.json) {
    out.data = data_of(*report, request.path);
    return out;
  }
  print_report(context, *report);
  print_findings(context, out.warnings);
  return out;
}

}  // namespace ckpt::cli
