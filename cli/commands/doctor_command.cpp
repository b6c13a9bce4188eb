#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

#include "api/doctor/doctor.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/disk_text.hpp"
#include "cli/report/machine_health.hpp"
#include "cli/report/store_health.hpp"
#include "cli/report/volume_health.hpp"
#include "cli/text/units.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

struct Asked {
  DoctorRequest request;
  std::optional<std::uint64_t> save_bytes{};  ///< of the next save
  bool system = false;                        ///< advice about the root file system too
};

struct Findings {
  std::vector<Diagnosis> all{};
  bool healthy = true;  ///< none is Health::fail
};

Result<Asked> read_doctor_request(const Words& words) {
  if (const Value* store = words.value("store");
      !words.arguments.empty() && store != nullptr && store->origin == "--store")
    return fail(Errc::usage, "DIR and --store cannot be used together");
  Asked out{.request = {.path = words.arguments.empty() ? store_of(words) : words.arguments[0], .now = now()},
            .system = words.on("system")};
  const auto size_of = [&](std::string_view flag) -> Result<std::optional<std::uint64_t>> {
    const Value* value = words.value(flag);
    if (value == nullptr) return std::nullopt;
    auto bytes = parse_size(value->text);
    if (!bytes) return fail(Errc::usage, fmt::format("{}: {}", value->origin, bytes.error().message));
    return *bytes;
  };
  CKPT_TRY(out.save_bytes, size_of("need"));
  CKPT_TRY(const auto bench_bytes, size_of("size"));
  if (words.on("bench") || bench_bytes) out.request.bench_bytes = bench_bytes.value_or(kBenchBytes);
  return out;
}

Findings find(const DoctorReport& report, const Asked& asked) {
  Findings out{.all = diagnose(report.machine)};
  std::ranges::move(diagnose(report.volume, asked.save_bytes, asked.system), std::back_inserter(out.all));
  if (report.store) std::ranges::move(diagnose(*report.store), std::back_inserter(out.all));
  out.healthy = std::ranges::none_of(out.all, [](const Diagnosis& one) { return one.health == Health::fail; });
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

void print_report(Context& context, const DoctorReport& report, const Findings& findings, const Asked& asked) {
  for (const Diagnosis& one : findings.all) {
    const bool grave = one.health == Health::warn || one.health == Health::fail;
    say(context, fmt::format("{}    {}\n", label_of(context.console, one.health), printable(one.text)), grave);
    if (!one.mend.empty()) say(context, fmt::format("        try  {}\n", printable(one.mend)), grave);
  }
  if (!report.speed) return;
  const DiskSpeed& speed = *report.speed;
  const SizeStyle sizes = context.settings.sizes;
  say(context, fmt::format("disk    {}\n", disk_text(speed, sizes)));
  if (asked.save_bytes && speed.write_rate() > 0) {
    say(context, fmt::format("        a save of {} takes at least {}\n", format_size(*asked.save_bytes, sizes),
                             format_seconds(static_cast<double>(*asked.save_bytes) / speed.write_rate())));
  }
}

std::string report_data(const DoctorReport& report, const Findings& findings, const Asked& asked) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "path", asked.request.path);
  out.member("healthy", findings.healthy).key("findings").begin_array();
  for (const Diagnosis& one : findings.all) {
    out.begin_object().member("health", health_name(one.health)).member("about", one.about);
    put_text(out, "text", one.text);
    put_text(out, "try", one.mend);
    out.end_object();
  }
  out.end_array().member("need_bytes", asked.save_bytes);
  put(out.key("disk"), report.speed);
  out.end_object();
  return data;
}

}  // namespace

Answer run_doctor(Context& context) {
  auto asked = read_doctor_request(context.words);
  if (!asked) return failed(std::move(asked).error());
  auto report = ask_alone(context, [&](Session& session) { return doctor(session, asked->request); });
  if (!report) return failed(std::move(report).error());
  const Findings findings = find(*report, *asked);
  Answer out;
  out.exit_code = findings.healthy ? 0 : exit_code(Errc::differs);
  if (context.settings.json) {
    out.data = report_data(*report, findings, *asked);
  } else {
    print_report(context, *report, findings, *asked);
  }
  return out;
}

}  // namespace ckpt::cli
