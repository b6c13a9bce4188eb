#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "api/catalog/plan_source.hpp"
#include "api/doctor/disk_speed.hpp"
#include "api/run/save_plan.hpp"
#include "catalog/policy_flags.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/curve_text.hpp"
#include "cli/report/disk_text.hpp"
#include "cli/report/plan_text.hpp"
#include "cli/text/units.hpp"
#include "cli/words/flag_values.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kCurvePoints = 200;  // of the picture

Result<std::uint64_t> ranks_of(std::string_view text) {
  return parse_count(text, 1, 1'000'000'000);
}

/// "40G", "40G/s", "100GB/s".
Result<double> rate_of(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  CKPT_TRY(const std::uint64_t bytes, parse_size(text));
  if (bytes == 0) return fail(Errc::usage, "the bandwidth must be above 0");
  if (std::isdigit(static_cast<unsigned char>(text.back())) != 0)
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' has no unit", text),
                 .hint = fmt::format("write {0}M or {0}G", text)});
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

Result<PlanInputs> read_plan_inputs(const Words& words) {
  PlanInputs inputs;
  SavePlanRequest& out = inputs.request;
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
  CKPT_CHECK(read_flag(words, "gpus", out.gpus, ranks_of));
  CKPT_CHECK(read_flag(words, "gpu-hour", inputs.gpu_hour, parse_price));
  out.keep = words.all("keep");
  if (words.value("nodes") != nullptr) inputs.nodes = nodes;
  return inputs;
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
  if (bench && words.value("bw") != nullptr) return fail(Errc::usage, "--bench and --bw cannot be used together");
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
  const bool no_size = request.parameters == 0;
  if (no_size || request.bandwidth == 0) {
    return fail({.code = Errc::usage,
                 .message = !no_size                 ? "--bw or --bench is required"
                            : request.bandwidth == 0 ? "--params and --bw are required"
                                                     : "--params is required",
                 .hint = "example: ckpt plan --params 70B --bw 40G, or ckpt plan RUN@latest --bench DIR"});
  }
  return out;
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

std::string plan_data(const SavePlan& plan, const PlanInputs& inputs) {
  const SavePlanRequest& request = inputs.request;
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object().member("parameters", whole_bytes(request.parameters));
  out.member("total_bytes", whole_bytes(plan.disk.total)).member("weights_bytes", whole_bytes(plan.disk.weights));
  out.member("optimizer_bytes", whole_bytes(plan.disk.optimizer));
  out.member("largest_rank_bytes", whole_bytes(plan.disk.largest_rank));
  out.member("smallest_rank_bytes", whole_bytes(plan.disk.smallest_rank)).member("bandwidth", request.bandwidth);
  put(out.key("bench"), inputs.speed);
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
  const double hours = gpu_hours_a_day(plan, plan.choices[plan.chosen]);
  const bool priced = plan.gpus != 0 && inputs.gpu_hour;
  out.member("gpus", plan.gpus != 0 ? std::optional(plan.gpus) : std::nullopt);
  out.member("gpu_hours_lost_a_day", plan.gpus != 0 ? std::optional(hours) : std::nullopt);
  out.member("money_lost_a_day", priced ? std::optional(hours * inputs.gpu_hour->amount) : std::nullopt);
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
  auto inputs = read_plan_inputs(context.words);
  if (!inputs) return failed(std::move(inputs).error());
  SavePlanRequest* request = &inputs->request;
  auto looked = read_source(context, *request);
  if (!looked) return failed(name_signal(std::move(looked).error()));
  inputs->speed = looked->speed;
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
    out.data = plan_data(*plan, *inputs);
    return out;
  }
  // The curve is that of saves to the storage; tiers have two intervals.
  const SaveChoice& choice = plan->choices[request->stall_s ? 1 : 0];
  if (context.words.on("svg")) {
    say(context, curve_svg(curve_of(choice, kCurvePoints), marks_of(choice)), true);
    return out;
  }
  print_plan(context, *plan, *inputs);
  if (context.words.on("curve")) print_curve(context, choice);
  return out;
}

}  // namespace ckpt::cli
