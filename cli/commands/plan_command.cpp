#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/plan_source.hpp"
#include "api/doctor/disk_speed.hpp"
#include "api/run/save_plan.hpp"
#include "catalog/policy_flags.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/disk_text.hpp"
#include "cli/text/units.hpp"
#include "cli/words/catalog_words.hpp"
#include "cli/words/flag_values.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kCurveRows = 21;
constexpr std::size_t kCurvePoints = 200;  // of the picture
constexpr std::size_t kCurveWidth = 50;

Result<std::uint64_t> ranks_of(std::string_view text) {
  return parse_count(text, 1, 1'000'000'000);
}

/// "40G", "40G/s", "100GB/s".
Result<double> rate_of(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  CKPT_TRY(const std::uint64_t bytes, parse_size(text));
  if (bytes == 0) return fail(Errc::usage, "the bandwidth must be above 0");
  return static_cast<double>(bytes);
}

/// "20%".
Result<double> fraction_of(std::string_view text) {
  CKPT_TRY(const double percent, catalog::parse_percent(text));
  return percent / 100;
}

/// "30000h/node" for the given nodes, or "234h" for the whole job.
Result<double> mtbf_of(std::string_view text, std::uint64_t nodes) {
  const bool each = text.ends_with("/node");
  if (each) text.remove_suffix(5);
  CKPT_TRY(const double seconds, seconds_of(text));
  if (!(seconds > 0)) return fail(Errc::usage, "expected a time above 0");
  return each ? seconds / static_cast<double>(nodes) : seconds;
}

Result<SavePlanRequest> read_plan_request(const Words& words) {
  SavePlanRequest out;
  std::uint64_t nodes = 1;
  double state_bytes = 0;
  double stall_s = 0;
  catalog::RankMemory memory;
  CKPT_CHECK(read_flag(words, "params", out.parameters, catalog::parse_parameters));
  CKPT_CHECK(
      read_flag(words, "state-bytes", state_bytes, [](std::string_view text) { return parse_count(text, 1, 64); }));
  CKPT_CHECK(read_flag(words, "tp", out.sharding.tensor, ranks_of));
  CKPT_CHECK(read_flag(words, "pp", out.sharding.pipeline, ranks_of));
  CKPT_CHECK(read_flag(words, "dp", out.sharding.data, ranks_of));
  CKPT_CHECK(read_flag(words, "zero-stage", out.sharding.zero_stage,
                       [](std::string_view text) { return parse_count(text, 0, 3); }));
  CKPT_CHECK(read_flag(words, "bw", out.bandwidth, rate_of));
  CKPT_CHECK(read_flag(words, "stall", stall_s, seconds_of));
  CKPT_CHECK(read_flag(words, "local-bw", out.local_bandwidth, rate_of));
  CKPT_CHECK(read_flag(words, "node-loss", out.node_loss, fraction_of));
  CKPT_CHECK(read_flag(words, "trash", out.trash_s, seconds_of));
  CKPT_CHECK(read_flag(words, "restart", out.restart_s, seconds_of));
  CKPT_CHECK(read_flag(words, "rework", out.rework_s, seconds_of));
  CKPT_CHECK(read_flag(words, "step-time", out.step_s, seconds_of));
  CKPT_CHECK(read_flag(words, "nodes", nodes, ranks_of));
  CKPT_CHECK(read_flag(words, "mtbf", out.mtbf_s, [nodes](std::string_view text) { return mtbf_of(text, nodes); }));
  CKPT_CHECK(read_flag(words, "gpu-memory", memory.gpu, parse_size));
  CKPT_CHECK(read_flag(words, "host-memory", memory.host, parse_size));
  CKPT_CHECK(read_flag(words, "nvme", memory.nvme, parse_size));
  if (words.value("precision") != nullptr) out.precision = words.text("precision");
  if (words.value("state-bytes") != nullptr) out.state_bytes = state_bytes;
  if (words.value("stall") != nullptr) out.stall_s = stall_s;
  if (words.value("gpu-memory") != nullptr) out.rank_memory = memory;
  out.sharding.replica_parallel = words.on("replica-parallel");
  out.keep = words.all("keep");
  return out;
}

/// Values from --bench and from the checkpoint on the command line, unless an option gives them.
struct MeasuredInputs {
  PlanSource source{};
  std::optional<DiskSpeed> speed{};
};

/// --bench: the bandwidth by the disk itself.
Result<DiskSpeed> measure(Session& session, const Words& words, SavePlanRequest& request, PlanSource& source) {
  const std::string directory = words.text("bench");
  std::uint64_t bytes = kBenchBytes;
  CKPT_CHECK(read_flag(words, "size", bytes, parse_size));
  CKPT_TRY(const DiskSpeed speed, measure_disk(session.io, directory, bytes, session.stop));
  request.bandwidth = speed.write_rate();
  source.notes.push_back(fmt::format(
      "the bandwidth was measured by one process in {}; shared storage may be faster with all ranks: if so, "
      "give --bw",
      directory));
  return speed;
}

Result<MeasuredInputs> read_source(Context& context, SavePlanRequest& request) {
  const Words& words = context.words;
  const bool bench = words.value("bench") != nullptr;
  if (bench && words.value("bw") != nullptr) return fail(Errc::usage, "--bench and --bw exclude each other");
  if (!bench && words.value("size") != nullptr) return fail(Errc::usage, "--size needs --bench");
  MeasuredInputs out;
  if (bench || !words.arguments.empty()) {
    CKPT_TRY(const auto opened, OpenSession::alone(context));
    if (opened->failure() != nullptr) return fail(*opened->failure());
    PlanSource measured;
    if (bench) {
      CKPT_TRY(out.speed, measure(opened->session(), words, request, measured));
    }
    if (!words.arguments.empty()) {
      CKPT_TRY(out.source, take_from(opened->session(), named(words, words.arguments.front()), request));
    }
    out.source.notes.insert(out.source.notes.end(), measured.notes.begin(), measured.notes.end());
    opened->end_progress();
  }
  if (request.parameters == 0 || request.bandwidth == 0) {
    return fail({.code = Errc::usage,
                 .message = "--params and --bw are required",
                 .hint = "example: ckpt plan --params 70B --bw 40G, or ckpt plan RUN@latest --bench DIR"});
  }
  return out;
}

std::string bytes_text(double bytes, SizeStyle sizes) {
  return format_size(bytes < 1.8e19 ? static_cast<std::uint64_t>(bytes) : UINT64_MAX, sizes);
}
std::string percent_text(double part) {
  return fmt::format("{:.2f} %", part * 100);
}

void print_choices(Context& context, const SavePlan& plan) {
  const auto row = [&](std::string_view label, auto cell, std::string_view note = "") {
    std::string line = fmt::format("{:<14}", label);
    for (const SaveChoice& choice : plan.choices) line += fmt::format("{:<28}", cell(choice));
    line += note;
    line.erase(line.find_last_not_of(' ') + 1);
    say(context, line + "\n");
  };
  const bool failures = plan.choices.front().costs.mtbf_s > 0;
  row("", [](const SaveChoice& c) { return c.name; });
  row("stall", [](const SaveChoice& c) { return format_seconds(c.costs.stall_s); });
  row("durable", [](const SaveChoice& c) { return format_seconds(c.costs.drain_s); });
  if (failures) {
    row(
        "best every", [](const SaveChoice& c) { return format_seconds(c.best_s); }, "(exact, for random failures)");
    row("Young", [](const SaveChoice& c) { return format_seconds(c.young_s); });
    row("Daly", [](const SaveChoice& c) { return format_seconds(c.daly_s); });
  }
  row(
      "base rule",
      [](const SaveChoice& c) {
        return fmt::format("{} ({})", format_seconds(c.base.interval_s), catalog::limit_name(c.base.limit));
      },
      "(max of rework limit, 20 x stall, 1.1 x durable)");
  row("save every", [](const SaveChoice& c) {
    return c.steps != 0 ? fmt::format("{} ({})", format_seconds(c.chosen_s), format_counted(c.steps, "step"))
                        : format_seconds(c.chosen_s);
  });
  row("limited by", [](const SaveChoice& c) { return c.reason; });
  row("overhead", [](const SaveChoice& c) { return percent_text(c.overhead); });
  const auto any = [&](auto holds) { return std::any_of(plan.choices.begin(), plan.choices.end(), holds); };
  if (any([](const SaveChoice& c) { return c.remote_every != 0; })) {
    row("to storage", [](const SaveChoice& c) {
      return c.remote_every > 1 ? fmt::format("1 of {}", c.remote_every) : std::string("each");
    });
  }
  if (any([](const SaveChoice& c) { return c.host_bytes > 0; })) {
    row(
        "host memory", [&](const SaveChoice& c) { return bytes_text(c.host_bytes, context.settings.sizes); },
        "(per rank, while a save is in flight)");
  }
  if (!failures) return;
  row(
      "lost time", [](const SaveChoice& c) { return percent_text(c.lost); }, "(saves, failures, restarts)");
  row(
      "  10-90 %",
      [](const SaveChoice& c) { return fmt::format("{:.2f}-{:.2f} %", c.lost_low * 100, c.lost_high * 100); },
      "(over likely failure rates)");
  row("  base rule", [](const SaveChoice& c) { return percent_text(c.lost_base); });
  row("at a failure", [](const SaveChoice& c) { return format_seconds(c.loss_at_failure_s); });
}

void print_sensitivity(Context& context, const SavePlan& plan) {
  if (plan.sensitivity.empty()) return;
  say(context, "sensitivity: interval, lost time\n");
  for (const Sensitivity& one : plan.sensitivity) {
    std::string line = fmt::format("{:<18}", one.name);
    for (const SaveChoice& choice : one.choices)
      line += fmt::format("{} {:<20}", choice.name,
                          fmt::format("{}, {}", format_seconds(choice.chosen_s), percent_text(choice.lost)));
    line.erase(line.find_last_not_of(' ') + 1);
    say(context, line + "\n");
  }
}

void print_memory(Context& context, const SavePlan& plan) {
  const SizeStyle sizes = context.settings.sizes;
  say(context, fmt::format("{:<8}{:<34}{:>12}{:>12}{:>12}\n", "ZeRO", "offload", "GPU", "host", "NVMe"));
  for (std::size_t i = 0; i < plan.memory.size(); ++i) {
    const catalog::MemoryBytes& row = plan.memory[i];
    say(context, fmt::format("{:<8}{:<34}{:>12}{:>12}{:>12}{}\n", row.zero_stage, catalog::offload_name(row.offload),
                             bytes_text(row.gpu, sizes), bytes_text(row.host, sizes), bytes_text(row.nvme, sizes),
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
                                   bytes_text(model.disk.weights, sizes), bytes_text(model.disk.optimizer, sizes),
                                   bytes_text(model.disk.total, sizes), bytes_text(model.disk.largest_rank, sizes));
    for (const catalog::MemoryBytes& row : model.memory)
      if (row.offload == catalog::Offload::none) line += fmt::format("{:>11}", bytes_text(row.gpu, sizes));
    if (model.fits) {
      const catalog::MemoryBytes& row = model.memory[*model.fits];
      line += fmt::format("   < ZeRO {}, offload {}, fits", row.zero_stage, catalog::offload_name(row.offload));
    }
    say(context, line + "\n");
  }
}

void print_plan(Context& context, const SavePlan& plan, const SavePlanRequest& request,
                const std::optional<DiskSpeed>& speed) {
  const SizeStyle sizes = context.settings.sizes;
  if (speed)
    say(context, fmt::format("disk {}: {}\n", printable(context.words.text("bench")), disk_text(*speed, sizes)));
  say(context, fmt::format("size {} ({}): weights {}, optimizer {} · largest rank {} · write {} at {}\n",
                           bytes_text(plan.disk.total, sizes), bytes_text(plan.disk.total, SizeStyle::decimal),
                           bytes_text(plan.disk.weights, sizes), bytes_text(plan.disk.optimizer, sizes),
                           bytes_text(plan.disk.largest_rank, sizes), format_seconds(plan.write_s),
                           format_rate(request.bandwidth, sizes)));
  if (request.mtbf_s > 0) say(context, fmt::format("one failure in {}\n", format_seconds(request.mtbf_s)));
  print_choices(context, plan);
  say(context, fmt::format("recommended   {}\n", plan.explanation));
  print_sensitivity(context, plan);
  if (plan.bandwidth_wanted > 0) {
    say(context, fmt::format("bandwidth     {} lets blocking saves meet {} of rework within 5 %\n",
                             format_rate(plan.bandwidth_wanted, sizes), format_seconds(request.rework_s)));
  }
  if (plan.kept) {
    say(context, fmt::format("storage       {} kept at most: {}\n", *plan.kept,
                             bytes_text(plan.disk.total * static_cast<double>(*plan.kept), sizes)));
    say(context, fmt::format("  peak        {} with {} in the trash and one being written; {} a day\n",
                             bytes_text(plan.peak_bytes, sizes), plan.trashed, bytes_text(plan.bytes_a_day, sizes)));
  } else if (plan.unbounded) {
    say(context, "storage       unbounded: a rule of --keep has no limit\n");
  }
  if (request.rank_memory || context.words.on("memory-table")) print_memory(context, plan);
  if (context.words.on("models")) print_models(context, plan);
  for (const std::string& warning : plan.warnings) say(context, fmt::format("note    {}\n", warning));
}

std::uint64_t whole_bytes(double value) {
  return value < 1.8e19 ? static_cast<std::uint64_t>(value) : UINT64_MAX;
}

void put_choice(json::Writer& out, const SaveChoice& choice, bool failures) {
  const auto number = [](std::uint64_t value) { return value != 0 ? std::optional(value) : std::nullopt; };
  const auto of_failures = [&](double value) { return failures ? std::optional(value) : std::nullopt; };
  out.begin_object().member("name", choice.name).member("stall_s", choice.costs.stall_s);
  out.member("durable_s", choice.costs.drain_s).member("best_s", choice.best_s).member("young_s", choice.young_s);
  out.member("daly_s", choice.daly_s).member("base_rule_s", choice.base.interval_s);
  out.member("base_rule_limit", catalog::limit_name(choice.base.limit)).member("chosen_s", choice.chosen_s);
  out.member("chosen_steps", number(choice.steps)).member("reason", choice.reason);
  out.member("overhead", choice.overhead).member("lost", of_failures(choice.lost));
  out.member("lost_base_rule", of_failures(choice.lost_base)).member("lost_low", of_failures(choice.lost_low));
  out.member("lost_high", of_failures(choice.lost_high)).member("remote_every", number(choice.remote_every));
  out.member("host_bytes", whole_bytes(choice.host_bytes));
  out.member("lost_at_failure_s", of_failures(choice.loss_at_failure_s)).end_object();
}

void put_memory(json::Writer& out, const std::vector<catalog::MemoryBytes>& rows, std::optional<std::size_t> fits) {
  out.key("memory").begin_array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.begin_object().member("zero_stage", rows[i].zero_stage);
    out.member("offload", catalog::offload_name(rows[i].offload)).member("gpu_bytes", whole_bytes(rows[i].gpu));
    out.member("host_bytes", whole_bytes(rows[i].host)).member("nvme_bytes", whole_bytes(rows[i].nvme));
    out.member("fits", fits == i).end_object();
  }
  out.end_array();
}

std::string plan_data(const SavePlan& plan, const SavePlanRequest& request, const std::optional<DiskSpeed>& speed) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object().member("parameters", whole_bytes(request.parameters));
  out.member("total_bytes", whole_bytes(plan.disk.total)).member("weights_bytes", whole_bytes(plan.disk.weights));
  out.member("optimizer_bytes", whole_bytes(plan.disk.optimizer));
  out.member("largest_rank_bytes", whole_bytes(plan.disk.largest_rank));
  out.member("smallest_rank_bytes", whole_bytes(plan.disk.smallest_rank)).member("bandwidth", request.bandwidth);
  put(out.key("bench"), speed);
  out.member("write_s", plan.write_s);
  out.member("mtbf_s", request.mtbf_s > 0 ? std::optional(request.mtbf_s) : std::nullopt);
  out.key("choices").begin_array();
  for (const SaveChoice& choice : plan.choices) put_choice(out, choice, request.mtbf_s > 0);
  out.end_array().member("chosen", plan.choices[plan.chosen].name).member("explanation", plan.explanation);
  out.key("sensitivity").begin_array();
  for (const Sensitivity& other : plan.sensitivity) {
    out.begin_object().member("name", other.name).key("choices").begin_array();
    for (const SaveChoice& choice : other.choices) {
      out.begin_object().member("name", choice.name).member("chosen_s", choice.chosen_s).member("lost", choice.lost);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().member("bytes_a_day", whole_bytes(plan.bytes_a_day)).member("trashed", plan.trashed);
  out.member("peak_bytes", plan.kept ? std::optional(whole_bytes(plan.peak_bytes)) : std::nullopt);
  out.member("bandwidth_wanted",
             plan.bandwidth_wanted > 0 ? std::optional(whole_bytes(plan.bandwidth_wanted)) : std::nullopt);
  out.member("kept", plan.kept);
  put_memory(out, plan.memory, plan.fits);
  out.key("models").begin_array();
  for (const ModelSize& model : plan.models) {
    out.begin_object().member("name", model.name).member("parameters", whole_bytes(model.parameters));
    out.member("weights_bytes", whole_bytes(model.disk.weights));
    out.member("optimizer_bytes", whole_bytes(model.disk.optimizer));
    out.member("total_bytes", whole_bytes(model.disk.total));
    out.member("largest_rank_bytes", whole_bytes(model.disk.largest_rank));
    put_memory(out, model.memory, model.fits);
    out.end_object();
  }
  out.end_array().member("notes", plan.warnings).end_object();
  return data;
}

}  // namespace

Answer run_plan(Context& context) {
  auto request = read_plan_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto looked = read_source(context, *request);
  if (!looked) return failed(name_signal(std::move(looked).error()));
  const std::vector<std::string>& notes = looked->source.notes;
  auto plan = plan_saves(*request);
  if (!plan) return failed(std::move(plan).error());
  plan->warnings.insert(plan->warnings.begin(), notes.begin(), notes.end());
  const bool picture = context.words.on("curve") || context.words.on("svg");
  if (picture && request->mtbf_s <= 0) {
    return failed({.code = Errc::usage,
                   .message = "a curve needs a failure rate",
                   .hint = "add --mtbf, e.g. --mtbf 30000h/node --nodes 128"});
  }
  Answer out;
  if (context.settings.json) {
    out.data = plan_data(*plan, *request, looked->speed);
    return out;
  }
  // The curve is that of saves to the storage; tiers have two intervals.
  const SaveChoice& choice = plan->choices[request->stall_s ? 1 : 0];
  if (context.words.on("svg")) {
    say(context, curve_svg(curve_of(choice, kCurvePoints), marks_of(choice)), true);
    return out;
  }
  print_plan(context, *plan, *request, looked->speed);
  if (context.words.on("curve"))
    say(context, "lost time of " + choice.name + " saves\n" +
                     curve_text(curve_of(choice, kCurveRows), marks_of(choice), kCurveWidth));
  return out;
}

}  // namespace ckpt::cli
