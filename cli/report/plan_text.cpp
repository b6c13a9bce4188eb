#include "cli/report/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/output/paragraph.hpp"
#include "cli/output/table.hpp"
#include "cli/report/curve_text.hpp"
#include "cli/report/disk_text.hpp"
#include "cli/text/units.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kCurveRows = 21;
constexpr std::size_t kCurveWidth = 50;
constexpr std::size_t kLabelWidth = 14;

std::string plan_bytes(double bytes, SizeStyle sizes) {
  return format_size(bytes < 1.8e19 ? static_cast<std::uint64_t>(bytes) : UINT64_MAX, sizes);
}
std::string share_text(double part) {
  return fmt::format("{:.2f} %", part * 100);
}

std::string way_name(const SaveChoice& choice) {
  return choice.name == "tiers" ? "two-tier" : choice.name;
}

/// "51.6", "1 238".
std::string amount_text(double amount) {
  if (amount < 100) return fmt::format("{:.3g}", amount);
  return format_count(static_cast<std::uint64_t>(std::min(std::round(amount), 1e18)));
}

std::string interval_text(const SaveChoice& choice) {
  return choice.steps != 0
             ? fmt::format("{} ({})", format_seconds(choice.chosen_s), format_counted(choice.steps, "step"))
             : format_seconds(choice.chosen_s);
}

/// Wrapped below itself on a terminal.
void print_labelled(Context& context, std::string_view label, const std::string& text) {
  const std::string body = wrapped(text, kLabelWidth, context.console.table_width());
  say(context, fmt::format("{:<{}}{}", label, kLabelWidth, body.substr(kLabelWidth)));
}

/// ", 260 GPU hours, $651".
std::string gpu_hours_text(double hours, const PlanInputs& inputs) {
  std::string out = fmt::format("{} GPU hours", amount_text(hours));
  if (inputs.gpu_hour) out += ", " + price_text(*inputs.gpu_hour, hours * inputs.gpu_hour->amount);
  return out;
}

void print_recommendation(Context& context, const SavePlan& plan, const PlanInputs& inputs) {
  const SaveChoice& chosen = plan.choices[plan.chosen];
  const bool failures = chosen.costs.mtbf_s > 0;
  const auto line = [&](std::string_view label, const std::string& text) {
    print_labelled(context, fmt::format("  {}", label), text);
  };
  print_labelled(
      context, "recommended",
      context.console.paint_out(Ink::bold, fmt::format("{} saves every {}", way_name(chosen), interval_text(chosen))));
  line("why", plan.limit);
  if (failures) {
    line("lost time", fmt::format("{} by saves, failures and restarts ({:.2f}-{:.2f} % over likely failure rates)",
                                  share_text(chosen.lost), chosen.lost_low * 100, chosen.lost_high * 100));
  } else {
    line("lost time", fmt::format("{} by saves; failures are not known", share_text(chosen.overhead)));
  }
  if (plan.gpus != 0)
    line("a day", fmt::format("{} lost on {}", gpu_hours_text(gpu_hours_a_day(plan, chosen), inputs),
                              format_counted(plan.gpus, "GPU")));
  if (failures) {
    std::string text = fmt::format("one in {}", format_seconds(chosen.costs.mtbf_s));
    if (inputs.nodes) text += fmt::format(" on {}", format_counted(*inputs.nodes, "node"));
    text += fmt::format("; it loses {} of work", format_seconds(chosen.loss_at_failure_s));
    if (chosen.costs.restart_s > 0) text += fmt::format(" and {} of restart", format_seconds(chosen.costs.restart_s));
    if (plan.gpus != 0) {
      const double seconds = chosen.loss_at_failure_s + chosen.costs.restart_s;
      text += ": " + gpu_hours_text(seconds / 3600 * static_cast<double>(plan.gpus), inputs);
    }
    line("a failure", text);
  }
  for (const SaveChoice& other : plan.choices) {
    if (&other == &chosen || !failures) continue;
    std::string text = fmt::format("{} saves every {} lose {}", way_name(other), format_seconds(other.chosen_s),
                                   share_text(other.lost));
    const double more = gpu_hours_a_day(plan, other) - gpu_hours_a_day(plan, chosen);
    if (plan.gpus != 0 && more > 0) text += fmt::format(": {} a day more", gpu_hours_text(more, inputs));
    if (other.lost < chosen.lost) text += ", not enough of a gain to be worth it";
    line("instead", text);
  }
  say(context, "\n");
}

/// A row of a table of choices: a label, a cell for each choice, and a note.
class ChoiceTable {
 public:
  explicit ChoiceTable(const SavePlan& plan) : choices_(plan.choices) {
    table_.columns.push_back({.title = ""});
    for (const SaveChoice& choice : choices_) table_.columns.push_back({.title = choice.name});
    table_.columns.push_back({.title = "", .drops = true});
  }
  template <class Cell>
  void row(std::string label, Cell cell, std::string note = {}) {
    std::vector<std::string> cells{std::move(label)};
    for (const SaveChoice& choice : choices_) cells.push_back(cell(choice));
    cells.push_back(std::move(note));
    table_.rows.push_back(std::move(cells));
  }
  const Table& table() const { return table_; }

 private:
  const std::vector<SaveChoice>& choices_;
  Table table_{};
};

void print_choices(Context& context, const SavePlan& plan) {
  using Choice = SaveChoice;
  ChoiceTable out(plan);
  const bool failures = plan.choices.front().costs.mtbf_s > 0;
  const auto any = [&](auto holds) { return std::any_of(plan.choices.begin(), plan.choices.end(), holds); };
  out.row("save every", interval_text);
  out.row("limited by", [](const Choice& c) { return c.reason; });
  out.row(
      "stall", [](const Choice& c) { return format_seconds(c.costs.stall_s); }, "per save");
  out.row(
      "durable", [](const Choice& c) { return format_seconds(c.costs.drain_s); }, "after the start of a save");
  if (failures) {
    out.row(
        "best every", [](const Choice& c) { return format_seconds(c.best_s); }, "exact, for random failures");
    out.row("Young", [](const Choice& c) { return format_seconds(c.young_s); });
    out.row("Daly", [](const Choice& c) { return format_seconds(c.daly_s); });
  }
  out.row(
      "rule of thumb",
      [](const Choice& c) {
        return fmt::format("{} ({})", format_seconds(c.base.interval_s), catalog::limit_name(c.base.limit));
      },
      "the largest of --rework, 20 stalls, 1.1 x durable");
  out.row(
      "overhead", [](const Choice& c) { return share_text(c.overhead); }, "saves alone");
  if (any([](const Choice& c) { return c.remote_every != 0; })) {
    out.row("to storage", [](const Choice& c) {
      return c.remote_every > 1 ? fmt::format("1 of {}", c.remote_every) : std::string("each");
    });
  }
  if (any([](const Choice& c) { return c.host_bytes > 0; })) {
    out.row(
        "host memory", [&](const Choice& c) { return plan_bytes(c.host_bytes, context.settings.sizes); },
        "per rank, during a save");
  }
  if (failures) {
    out.row(
        "lost time", [](const Choice& c) { return share_text(c.lost); }, "saves, failures, restarts");
    out.row(
        "  10-90 %",
        [](const Choice& c) { return fmt::format("{:.2f}-{:.2f} %", c.lost_low * 100, c.lost_high * 100); },
        "over likely failure rates");
    out.row(
        "  rule of thumb", [](const Choice& c) { return share_text(c.lost_base); }, "at its interval");
    out.row(
        "per failure", [](const Choice& c) { return format_seconds(c.loss_at_failure_s); }, "of work, on average");
  }
  say(context, draw_aligned(out.table(), context.console.table_width()).text + "\n");
}

void print_sensitivity(Context& context, const SavePlan& plan) {
  if (plan.sensitivity.empty()) return;
  Table table{.columns = {{.title = "SENSITIVITY"}}};
  for (const SaveChoice& choice : plan.choices) {
    table.columns.push_back({.title = choice.name, .right = true});
    table.columns.push_back({.title = "lost", .right = true});
  }
  const auto add = [&](const std::string& name, const std::vector<SaveChoice>& choices) {
    std::vector<std::string> cells{name};
    for (const SaveChoice& choice : choices) {
      cells.push_back(format_seconds(choice.chosen_s));
      cells.push_back(share_text(choice.lost));
    }
    table.rows.push_back(std::move(cells));
  };
  add("as given", plan.choices);
  for (const Sensitivity& one : plan.sensitivity) add(one.name, one.choices);
  say(context, draw_aligned(table, context.console.table_width()).text + "\n");
}

void print_storage(Context& context, const SavePlan& plan, const PlanInputs& inputs) {
  const SizeStyle sizes = context.settings.sizes;
  const SavePlanRequest& request = inputs.request;
  if (inputs.speed)
    print_labelled(context, "disk",
                   fmt::format("{}: {}", printable(context.words.text("bench")), disk_text(*inputs.speed, sizes)));
  print_labelled(context, "size",
                 fmt::format("{} ({}): weights {}, optimizer {}", plan_bytes(plan.disk.total, sizes),
                             plan_bytes(plan.disk.total, SizeStyle::decimal), plan_bytes(plan.disk.weights, sizes),
                             plan_bytes(plan.disk.optimizer, sizes)));
  print_labelled(context, "  write",
                 fmt::format("{} at {}; largest rank {}", format_seconds(plan.write_s),
                             format_rate(request.bandwidth, sizes), plan_bytes(plan.disk.largest_rank, sizes)));
  if (plan.bandwidth_wanted > 0) {
    print_labelled(context, "bandwidth",
                   fmt::format("{} keeps blocking saves below 5 % with {} of rework",
                               format_rate(plan.bandwidth_wanted, sizes), format_seconds(request.rework_s)));
  }
  if (plan.kept) {
    print_labelled(context, "storage",
                   fmt::format("{} kept at most: {}", *plan.kept,
                               plan_bytes(plan.disk.total * static_cast<double>(*plan.kept), sizes)));
    print_labelled(context, "  peak",
                   fmt::format("{} with {} in the trash and one being written; {} a day",
                               plan_bytes(plan.peak_bytes, sizes), plan.trashed, plan_bytes(plan.bytes_a_day, sizes)));
  } else if (plan.unbounded) {
    print_labelled(context, "storage", "unbounded: a rule of --keep has no limit");
  }
}

void print_memory(Context& context, const SavePlan& plan) {
  const SizeStyle sizes = context.settings.sizes;
  say(context, fmt::format("{:<8}{:<34}{:>12}{:>12}{:>12}\n", "ZeRO", "offload", "GPU", "host", "NVMe"));
  for (std::size_t i = 0; i < plan.memory.size(); ++i) {
    const catalog::MemoryBytes& row = plan.memory[i];
    say(context, fmt::format("{:<8}{:<34}{:>12}{:>12}{:>12}{}\n", row.zero_stage, catalog::offload_name(row.offload),
                             plan_bytes(row.gpu, sizes), plan_bytes(row.host, sizes), plan_bytes(row.nvme, sizes),
                             plan.fits == i ? "   < fits, with the least offload" : ""));
  }
  say(context, "per rank, without activations and buffers\n");
}

void print_models(Context& context, const SavePlan& plan) {
  const SizeStyle sizes = context.settings.sizes;
  say(context, fmt::format("{:<10}{:>12}{:>12}{:>12}{:>14}   GPU with ZeRO 0 to 3, without offload\n", "model",
                           "weights", "optimizer", "on disk", "largest rank"));
  for (const ModelSize& model : plan.models) {
    std::string line = fmt::format("{:<10}{:>12}{:>12}{:>12}{:>14}  ", model.name,
                                   plan_bytes(model.disk.weights, sizes), plan_bytes(model.disk.optimizer, sizes),
                                   plan_bytes(model.disk.total, sizes), plan_bytes(model.disk.largest_rank, sizes));
    for (const catalog::MemoryBytes& row : model.memory)
      if (row.offload == catalog::Offload::none) line += fmt::format("{:>11}", plan_bytes(row.gpu, sizes));
    if (model.fits) {
      const catalog::MemoryBytes& row = model.memory[*model.fits];
      line += fmt::format("   < ZeRO {}, offload {}, fits", row.zero_stage, catalog::offload_name(row.offload));
    }
    say(context, line + "\n");
  }
}

}  // namespace

Result<Price> parse_price(std::string_view text) {
  const auto is_number = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  const auto begin = std::ranges::find_if(text, is_number);
  const auto end = std::find_if_not(begin, text.end(), is_number);
  const auto stripped = [](std::string_view part) {
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    return std::string(part);
  };
  Price out{.before = stripped({text.begin(), begin}), .after = stripped({end, text.end()})};
  const std::string_view number(begin, end);
  const auto [rest, code] = std::from_chars(number.data(), number.data() + number.size(), out.amount);
  const bool is_price = code == std::errc() && rest == number.data() + number.size() && out.amount > 0 &&
                        out.before.find('-') == std::string::npos;
  if (!is_price) return fail(Errc::usage, fmt::format("'{}' is not a price, e.g. 2.50, $2.50 or 2.50EUR", text));
  return out;
}

std::string price_text(const Price& price, double amount) {
  const std::string number = amount < 100 ? fmt::format("{:.2f}", amount) : amount_text(amount);
  const bool has_currency = !price.before.empty() || !price.after.empty();
  return fmt::format("{}{}{}{}{}", has_currency ? "" : "cost ", printable(price.before), number,
                     price.after.empty() ? "" : " ", printable(price.after));
}

void print_plan(Context& context, const SavePlan& plan, const PlanInputs& inputs) {
  print_recommendation(context, plan, inputs);
  print_choices(context, plan);
  print_sensitivity(context, plan);
  print_storage(context, plan, inputs);
  if (inputs.request.rank_memory || context.words.on("memory-table")) print_memory(context, plan);
  if (context.words.on("models")) print_models(context, plan);
  for (const std::string& warning : plan.warnings) say(context, fmt::format("note    {}\n", warning));
}

void print_curve(Context& context, const SaveChoice& choice) {
  say(context, fmt::format("\n{:>9}  {:>8}  of {} saves\n", "interval", "lost", choice.name) +
                   curve_text(curve_of(choice, kCurveRows), marks_of(choice), kCurveWidth));
}

}  // namespace ckpt::cli
