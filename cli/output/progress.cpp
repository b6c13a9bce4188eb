#include "cli/output/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "cli/output/json.hpp"
#include "cli/output/table.hpp"
#include "cli/process/signals.hpp"

namespace ckpt::cli {
namespace {

constexpr double kWindow_s = 10;
constexpr double kSampleEvery_s = 0.25;
constexpr double kFirstLine_s = 5;
constexpr double kJsonEvery_s = 1;
constexpr std::chrono::milliseconds kTick{100};
constexpr std::string_view kNameGap = "   ";
constexpr std::size_t kLeastName = 12;  // columns; a shorter piece of a name says nothing
constexpr std::size_t kMostName = 48;

/// Whole percent, rounded down: 100 only when all is done.
unsigned percent(const Reading& reading) {
  if (reading.total_bytes == 0) return 0;
  const double share = static_cast<double>(reading.done_bytes) / static_cast<double>(reading.total_bytes);
  const auto whole = static_cast<unsigned>(std::clamp(share, 0.0, 1.0) * 100);
  return reading.done_bytes < reading.total_bytes ? std::min(whole, 99u) : 100;
}

/// "verify", "verify 3 of 15"
std::string phase_text(const Reading& reading) {
  return reading.item == 0 ? reading.phase : fmt::format("{} {} of {}", reading.phase, reading.item, reading.items);
}

std::string eta_text(const Reading& reading) {
  return reading.eta_s ? "ETA " + format_clock(*reading.eta_s) : "ETA unknown";
}

}  // namespace

ProgressMode progress_mode(std::string_view choice, bool quiet, bool err_is_terminal) {
  if (choice == "bar") return ProgressMode::bar;
  if (choice == "plain") return ProgressMode::plain;
  if (choice == "json") return ProgressMode::json;
  if (choice == "none" || quiet) return ProgressMode::none;
  return err_is_terminal ? ProgressMode::bar : ProgressMode::plain;
}

void Meter::update(const Progress& progress, double now_s) {
  if (progress.phase != phase_ || progress.item != item_ || progress.done_bytes < done_) {
    phase_ = progress.phase;
    began_s_ = now_s;
    began_bytes_ = progress.done_bytes;
    samples_.assign(1, {now_s, progress.done_bytes});
  }
  name_ = progress.name;
  item_ = progress.item;
  items_ = progress.items;
  done_ = progress.done_bytes;
  total_ = progress.total_bytes;
  if (now_s - samples_.back().at_s >= kSampleEvery_s) samples_.push_back({now_s, done_});
  while (samples_.size() > 2 && samples_[1].at_s <= now_s - kWindow_s) samples_.pop_front();
}

Reading Meter::read(double now_s) const {
  Reading out{.phase = phase_,
              .done_bytes = done_,
              .total_bytes = total_,
              .elapsed_s = now_s - began_s_,
              .name = name_,
              .item = item_,
              .items = items_};
  if (samples_.empty()) return out;
  if (out.elapsed_s > 0) out.mean = static_cast<double>(done_ - began_bytes_) / out.elapsed_s;
  const double window_s = now_s - samples_.front().at_s;
  if (window_s > 0) out.rate = static_cast<double>(done_ - samples_.front().bytes) / window_s;
  const double speed = out.rate > 0 ? out.rate : out.mean;
  if (done_ >= total_)
    out.eta_s = 0;
  else if (speed > 0)
    out.eta_s = static_cast<double>(total_ - done_) / speed;
  return out;
}

std::string bar_line(const Reading& reading, SizeStyle style, std::size_t width) {
  const auto bar_of = [&](std::size_t cells) {
    const std::size_t full = reading.total_bytes == 0 ? 0 : cells * percent(reading) / 100;
    std::string out;
    for (std::size_t i = 0; i < cells; ++i) out += i < full ? "█" : "░";
    return out;
  };
  const std::string bar = bar_of(24);
  const std::string head = fmt::format(" {} {:>3} % ", phase_text(reading), percent(reading));
  const std::string size = format_size_of(reading.done_bytes, reading.total_bytes, style);
  const std::string tail = "   " + eta_text(reading);
  const std::string rate = "   " + format_rate(reading.rate, style);
  const std::string mean = fmt::format(" (mean {})", format_rate(reading.mean, style));
  // Parts that do not fit are omitted, the least useful first: the mean, the name, the bar, which becomes shorter before, the
  // rate, the time left.
  for (const std::string& line :
       {head + bar + "  " + size + rate + mean + tail, head + bar + "  " + size + rate + tail}) {
    const std::size_t used = text_width(line) + kNameGap.size() + 1;
    if (!reading.name.empty() && used + kLeastName <= width)
      return line + std::string(kNameGap) + shorten(printable(reading.name), std::min(kMostName, width - used));
  }
  for (const std::string& line :
       {head + bar + "  " + size + rate + mean + tail, head + bar + "  " + size + rate + tail,
        head + bar_of(10) + "  " + size + rate + tail, head + " " + size + rate + tail, head + " " + size + tail})
    if (text_width(line) < width) return line;
  return fmt::format(" {} %", percent(reading));
}

std::string plain_line(const Reading& reading, SizeStyle style) {
  return fmt::format("ckpt: {} {} %, {}, {} (mean {}), {}", phase_text(reading), percent(reading),
                     format_size_of(reading.done_bytes, reading.total_bytes, style), format_rate(reading.rate, style),
                     format_rate(reading.mean, style), eta_text(reading)) +
         (reading.name.empty() ? "" : ", " + printable(reading.name));
}

std::string json_line(const Reading& reading) {
  std::string line;
  json::Writer out = line_writer(line);
  out.begin_object().member("schema", "ckpt.progress/1").member("phase", reading.phase);
  out.member("done_bytes", reading.done_bytes).member("total_bytes", reading.total_bytes);
  out.member("elapsed_s", reading.elapsed_s).member("rate_bytes_per_s", reading.rate);
  out.member("mean_bytes_per_s", reading.mean).member("eta_s", reading.eta_s);
  put_optional(out, "name", reading.name);
  if (reading.item != 0) out.member("item", reading.item).member("items", reading.items);
  out.end_object();
  return line;
}

ProgressDisplay::ProgressDisplay(Console& console, Options options)
    : console_(console), options_(options), began_(std::chrono::steady_clock::now()) {
  const double every_s = std::chrono::duration<double>(options_.every).count();
  next_line_s_ = options_.mode == ProgressMode::json ? 0 : std::min(kFirstLine_s, every_s);
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (const std::system_error&) {
    // Without a thread there is no animation; the last line is printed all the same.
  }
}

ProgressDisplay::~ProgressDisplay() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  const double now = now_s();
  if (options_.mode == ProgressMode::json && meter_.started()) console_.err(json_line(meter_.read(now)));
  console_.moving("");
}

double ProgressDisplay::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void ProgressDisplay::report(const Progress& progress) {
  const std::scoped_lock lock(mutex_);
  meter_.update(progress, now_s());
}

void ProgressDisplay::run() {
  for (;;) {
    std::optional<Reading> reading;
    double now = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kTick, [this] { return ended_; });
      if (ended_) return;
      now = now_s();
      if (meter_.started()) reading = meter_.read(now);
    }
    show_signals(reading, now);
    if (reading) show(*reading, now);
  }
}

void ProgressDisplay::show_signals(const std::optional<Reading>& reading, double now) {
  if (take_status_request())
    console_.err(reading ? plain_line(*reading, options_.style)
                         : fmt::format("ckpt: preparing for {}", format_seconds(now)));
  if (stop_flag().load(std::memory_order_relaxed) && !stop_said_) {
    stop_said_ = true;
    console_.err("ckpt: stopping; press Ctrl-C again to quit immediately");
  }
}

void ProgressDisplay::show(const Reading& reading, double now) {
  if (options_.mode == ProgressMode::bar) {
    console_.moving(bar_line(reading, options_.style, console_.width()));
    return;
  }
  if (options_.mode == ProgressMode::none || now < next_line_s_) return;
  if (options_.mode == ProgressMode::json) {
    console_.err(json_line(reading));
    next_line_s_ = now + kJsonEvery_s;
  } else {
    console_.err(plain_line(reading, options_.style));
    next_line_s_ = now + std::chrono::duration<double>(options_.every).count();
  }
}

}  // namespace ckpt::cli
