#include <fmt/format.h>

#include <array>

#include "api/doctor/doctor.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/disk_text.hpp"
#include "cli/text/units.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

Result<DoctorRequest> read_doctor_request(const Words& words) {
  if (const Value* store = words.value("store");
      !words.arguments.empty() && store != nullptr && store->origin == "--store")
    return fail(Errc::usage, "DIR and --store cannot be used together");
  DoctorRequest out{.path = words.arguments.empty() ? store_of(words) : words.arguments[0], .now = now()};
  const auto size_of = [&](std::string_view flag) -> Result<std::optional<std::uint64_t>> {
    const Value* value = words.value(flag);
    if (value == nullptr) return std::nullopt;
    auto bytes = parse_size(value->text);
    if (!bytes) return fail(Errc::usage, fmt::format("{}: {}", value->origin, bytes.error().message));
    return *bytes;
  };
  CKPT_TRY(out.save_bytes, size_of("need"));
  CKPT_TRY(const auto bench_bytes, size_of("size"));
  if (words.on("bench") || bench_bytes) out.bench_bytes = bench_bytes.value_or(kBenchBytes);
  return out;
}

std::string_view health_name(Health health) {
  constexpr std::array<std::string_view, 4> names{"ok", "note", "warn", "fail"};
  return names[static_cast<std::size_t>(health)];
}

std::string label_of(Console& console, Health health) {
  switch (health) {
    case Health::ok:
      return console.paint_out(Ink::green, "ok  ");
    case Health::note:
      return "note";
    case Health::warn:
      return console.paint_out(Ink::yellow, "WARN");
    case Health::fail:
      return console.paint_out(Ink::red, "FAIL");
  }
  return {};
}

void print_report(Context& context, const DoctorReport& report, const DoctorRequest& request) {
  for (const Diagnosis& one : report.findings) {
    const bool grave = one.health == Health::warn || one.health == Health::fail;
    say(context, fmt::format("{}    {}\n", label_of(context.console, one.health), printable(one.text)), grave);
    if (!one.mend.empty()) say(context, fmt::format("        try  {}\n", printable(one.mend)), grave);
  }
  if (!report.speed) return;
  const DiskSpeed& speed = *report.speed;
  const SizeStyle sizes = context.settings.sizes;
  say(context, fmt::format("disk    {}\n", disk_text(speed, sizes)));
  if (request.save_bytes && speed.write_rate() > 0) {
    say(context, fmt::format("        a save of {} takes at least {}\n", format_size(*request.save_bytes, sizes),
                             format_seconds(static_cast<double>(*request.save_bytes) / speed.write_rate())));
  }
}

std::string report_data(const DoctorReport& report, const DoctorRequest& request) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "path", request.path);
  out.member("healthy", report.healthy).key("findings").begin_array();
  for (const Diagnosis& one : report.findings) {
    out.begin_object().member("health", health_name(one.health)).member("about", one.about);
    put_text(out, "text", one.text);
    put_text(out, "try", one.mend);
    out.end_object();
  }
  out.end_array().member("need_bytes", request.save_bytes);
  put(out.key("disk"), report.speed);
  out.end_object();
  return data;
}

}  // namespace

Answer run_doctor(Context& context) {
  auto request = read_doctor_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto report = ask_alone(context, [&](Session& session) { return doctor(session, *request); });
  if (!report) return failed(std::move(report).error());
  Answer out;
  out.exit_code = report->healthy ? 0 : exit_code(Errc::differs);
  if (context.settings.json) {
    out.data = report_data(*report, *request);
  } else {
    print_report(context, *report, *request);
  }
  return out;
}

}  // namespace ckpt::cli
