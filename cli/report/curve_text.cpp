#include "cli/report/curve_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "catalog/report/explain.hpp"

namespace ckpt::cli {
namespace {

std::string seconds_text(double seconds) {
  return catalog::duration_text(catalog::Duration(static_cast<std::int64_t>(std::clamp(seconds * 1000, 0.0, 9e17))));
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out.push_back(c);
    }
  }
  return out;
}

/// The picture's scales: logarithmic time, lost time up to a round percentage.
struct Frame {
  double from = 1;
  double to = 2;
  double top = 1;
  static constexpr double kLeft = 70;
  static constexpr double kRight = 700;
  static constexpr double kUp = 30;
  static constexpr double kDown = 360;
  double x(double interval) const {
    return kLeft + (kRight - kLeft) * (std::log(interval) - std::log(from)) / (std::log(to) - std::log(from));
  }
  double y(double lost) const { return kDown - (kDown - kUp) * std::min(lost / top, 1.0); }
};

std::string path_of(const std::vector<catalog::CurvePoint>& points, const Frame& frame,
                    double catalog::CurvePoint::*value) {
  std::string out;
  for (const catalog::CurvePoint& point : points) {
    out += fmt::format("{}{:.1f},{:.1f}", out.empty() ? "M" : " L", frame.x(point.interval_s), frame.y(point.*value));
  }
  return out;
}

}  // namespace

std::string curve_text(const std::vector<catalog::CurvePoint>& points, const std::vector<catalog::CurveMark>& marks,
                       std::size_t width) {
  double most = 0;
  for (const catalog::CurvePoint& point : points) most = std::max(most, point.lost);
  std::string out;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const catalog::CurvePoint& point = points[i];
    const auto length =
        static_cast<std::size_t>(most > 0 ? std::round(point.lost / most * static_cast<double>(width)) : 0);
    std::string names;
    for (const catalog::CurveMark& mark : marks) {
      // To the row whose interval is nearest in the logarithm.
      const double own = std::fabs(std::log(mark.interval_s / point.interval_s));
      const bool before = i > 0 && std::fabs(std::log(mark.interval_s / points[i - 1].interval_s)) <= own;
      const bool after = i + 1 < points.size() && std::fabs(std::log(mark.interval_s / points[i + 1].interval_s)) < own;
      if (mark.interval_s > 0 && !before && !after) names += (names.empty() ? "  < " : ", ") + mark.name;
    }
    out += fmt::format("{:>9}  {:>6.2f} %  {}{}\n", seconds_text(point.interval_s), point.lost * 100,
                       std::string(length, '#'), names);
  }
  return out;
}

std::string curve_svg(const std::vector<catalog::CurvePoint>& points, const std::vector<catalog::CurveMark>& marks) {
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"420\" viewBox=\"0 0 720 420\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"720\" height=\"420\" fill=\"white\"/>\n";
  if (points.size() < 2) return out + "</svg>\n";
  Frame frame{.from = points.front().interval_s, .to = points.back().interval_s};
  double least = 1;
  for (const catalog::CurvePoint& point : points) least = std::min(least, point.lost);
  // The region near the minimum matters: a few times the minimum is high enough.
  frame.top = std::min(1.0, std::ceil(std::max(least * 4, 0.005) * 200) / 200);
  for (int i = 0; i <= 4; ++i) {
    const double lost = frame.top * i / 4;
    out += fmt::format(
        "<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"62\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g} %</text>\n",
        Frame::kLeft, Frame::kRight, frame.y(lost), frame.y(lost), frame.y(lost) + 4, lost * 100);
  }
  for (int i = 0; i <= 4; ++i) {
    const double interval = frame.from * std::pow(frame.to / frame.from, i / 4.0);
    out += fmt::format("<text x=\"{:.1f}\" y=\"378\" text-anchor=\"middle\">{}</text>\n", frame.x(interval),
                       seconds_text(interval));
  }
  out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n",
                     path_of(points, frame, &catalog::CurvePoint::lost));
  out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#c26a1b\" stroke-dasharray=\"4 3\"/>\n",
                     path_of(points, frame, &catalog::CurvePoint::saving));
  double label = Frame::kUp + 12;
  for (const catalog::CurveMark& mark : marks) {
    if (!(mark.interval_s >= frame.from && mark.interval_s <= frame.to)) continue;
    const double x = frame.x(mark.interval_s);
    const bool right = x < (Frame::kLeft + Frame::kRight) / 2;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" stroke=\"#888\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.0f}\" text-anchor=\"{5}\">{6}, {7}</text>\n",
        x, Frame::kUp, Frame::kDown, right ? x + 4 : x - 4, label, right ? "start" : "end", xml_escaped(mark.name),
        seconds_text(mark.interval_s));
    label += 15;
  }
  return out +
         "<text x=\"385\" y=\"402\" text-anchor=\"middle\">training time between two saves</text>\n"
         "<text x=\"70\" y=\"20\">lost time (line), stalls by saves (dashes)</text>\n</svg>\n";
}

}  // namespace ckpt::cli
