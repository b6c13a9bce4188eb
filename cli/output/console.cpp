#include "cli/output/console.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "cli/text/units.hpp"
#include "format/text/quantity.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::cli {
namespace {

bool wants_color(const std::string& choice, bool terminal, const Environment& environment) {
  if (choice == "always") return true;
  if (choice == "never" || environment("NO_COLOR")) return false;
  if (const auto forced = environment("CLICOLOR_FORCE"); forced && *forced != "0") return true;
  return terminal && environment("TERM").value_or("dumb") != "dumb";
}

bool locale_is_utf8(const Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const auto value = environment(name))
      return value->find("UTF-8") != std::string::npos || value->find("utf8") != std::string::npos;
  return false;
}

std::optional<std::size_t> given_width(const Environment& environment) {
  const auto columns = environment("COLUMNS");
  if (!columns) return std::nullopt;
  const auto value = parse_count(*columns, 20, 10'000);
  return value ? std::optional<std::size_t>(*value) : std::nullopt;
}

std::size_t terminal_width() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
  }
  return 80;
}

constexpr std::array<std::string_view, 6> kInkCodes{"", "1", "2", "1;31", "33", "32"};
constexpr std::string_view kPlainCode = "\x1b[0m";

std::string ink_begin(std::string_view code) {
  return fmt::format("\x1b[{}m", code);
}

/// Bytes of the ink's escape sequence that a text begins with; 0 if it begins with none.
std::size_t ink_bytes(std::string_view text) {
  if (text.starts_with(kPlainCode)) return kPlainCode.size();
  for (const std::string_view code : kInkCodes) {
    if (!code.empty() && text.starts_with(ink_begin(code))) return ink_begin(code).size();
  }
  return 0;
}

bool is_plain_ascii(char c) {
  return (c >= ' ' && c <= '~') || c == '\n' || c == '\t';
}

/// Text from files may be in any line: only lines, tabs and inks are passed on, other control characters are '?'.
std::string without_controls(std::string_view text, bool has_inks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t ink = has_inks && text.front() == '\x1b' ? ink_bytes(text) : 0;
    const CodePoint one = first_code_point(text);
    const std::size_t bytes = ink != 0 ? ink : std::max<std::size_t>(1, one.bytes);
    const bool is_shown = ink != 0 || is_plain_ascii(text.front()) || (one.bytes != 0 && !is_hidden(one.value));
    out += is_shown ? text.substr(0, bytes) : "?";
    text.remove_prefix(bytes);
  }
  return out;
}

/// Length in bytes of the code point that starts with this byte; 1 for a stray byte.
std::size_t sequence_bytes(unsigned char first) {
  if (first >= 0xf0) return 4;
  if (first >= 0xe0) return 3;
  if (first >= 0xc0) return 2;
  return 1;
}

}  // namespace

Console::Console(Options options, const Environment& environment) : options_(std::move(options)) {
  out_terminal_ = !options_.launched && isatty(STDOUT_FILENO) == 1;
  err_terminal_ = !options_.launched && isatty(STDERR_FILENO) == 1;
  out_color_ = wants_color(options_.color, out_terminal_, environment);
  err_color_ = wants_color(options_.color, err_terminal_, environment);
  ascii_ = !locale_is_utf8(environment);
  const auto given = given_width(environment);
  width_given_ = given.has_value();
  width_ = given.value_or(terminal_width());
}

Console::~Console() {
  const std::scoped_lock lock(mutex_);
  wipe();
  if (log_ != nullptr) std::fclose(log_);
}

Result<> Console::open_log() {
  if (!options_.speaks || options_.log_file.empty()) return {};
  const std::scoped_lock lock(mutex_);
  const auto refused = [&](std::string_view reason) {
    return fail({.code = Errc::io,
                 .message = fmt::format("{}: cannot write the log: {}", options_.log_file, reason),
                 .file = options_.log_file});
  };
  // Opening a pipe without a reader would block, and a link may lead to a file that its creator cannot write.
  const int descriptor =
      ::open(options_.log_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (descriptor < 0) return refused(errno == ELOOP ? "is a symbolic link" : std::strerror(errno));
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  log_ = regular ? ::fdopen(descriptor, "a") : nullptr;
  if (log_ != nullptr) return {};
  ::close(descriptor);
  return refused("not a regular file");
}

void Console::out(std::string_view given) {
  if (!options_.speaks || given.empty()) return;
  const bool is_plain = std::ranges::all_of(given, is_plain_ascii);
  const std::string cleaned = is_plain ? std::string() : without_controls(given, out_color_);
  const std::string_view text = is_plain ? given : cleaned;
  const std::scoped_lock lock(mutex_);
  if (frame_) {
    *frame_ += text;
    return;
  }
  wipe();
  log_lines_locked(text);
  const std::string plain = ascii_ && out_terminal_ ? to_ascii(text) : std::string();
  const std::string_view shown = plain.empty() ? text : plain;
  const bool written = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  const bool flushed = std::fflush(stdout) == 0;  // a log is read while the command runs
  if ((!written || !flushed) && out_errno_ == 0) out_errno_ = errno;
}

void Console::err(std::string_view given) {
  if (!options_.speaks) return;
  const std::string line = without_controls(given, err_color_);
  const std::scoped_lock lock(mutex_);
  if (frame_) {
    *frame_ += line + "\n";
    return;
  }
  wipe();
  log_lines_locked(line);
  // One write a line: lines of several processes then never mix.
  std::string whole = ascii_ && err_terminal_ ? to_ascii(line) : line;
  whole.push_back('\n');
  std::fflush(stdout);
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

void Console::begin_frame() {
  const std::scoped_lock lock(mutex_);
  if (!width_given_) width_ = terminal_width();
  frame_.emplace();
}

void Console::drop_frame() {
  const std::scoped_lock lock(mutex_);
  frame_.reset();
}

bool Console::show_frame() {
  const std::scoped_lock lock(mutex_);
  if (!frame_) return true;
  wipe();
  const std::string text = ascii_ ? to_ascii(*frame_) : *frame_;
  frame_.reset();
  winsize size{};
  const bool has_height = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
  std::size_t left = has_height ? size.ws_row - 1U : SIZE_MAX;  // the cursor is below the last line
  // To the top left; each line wipes the rest of the one before it; long lines are cut, not wrapped.
  std::string whole = std::exchange(frame_shown_, true) ? "\x1b[H\x1b[?7l" : "\x1b[2J\x1b[H\x1b[?7l";
  for (std::string_view rest = text; !rest.empty() && left != 0; --left) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    whole += std::string(rest.substr(0, end)) + "\x1b[K\r\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  whole += "\x1b[J\x1b[?7h";
  const bool written = std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size();
  const bool flushed = std::fflush(stdout) == 0;
  if ((!written || !flushed) && out_errno_ == 0) out_errno_ = errno;
  return written && flushed;
}

void Console::moving(std::string_view line) {
  if (!options_.speaks) return;
  const std::scoped_lock lock(mutex_);
  if (line.empty()) {
    wipe();
    return;
  }
  const std::string shown = without_controls(line, err_color_);
  std::string whole = "\r" + (ascii_ ? to_ascii(shown) : shown) + "\x1b[K";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
  std::fflush(stderr);
  moving_shown_ = true;
}

void Console::log(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  log_locked(line);
}

void Console::log_lines_locked(std::string_view text) {
  while (log_ != nullptr && !text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    log_locked(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void Console::log_locked(std::string_view line) {
  if (log_ == nullptr) return;
  std::string text;  // colours are for terminals
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else {
      text.push_back(line[i]);
    }
  }
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  fmt::print(log_, "{:%Y-%m-%dT%H:%M:%SZ} {}\n", fmt::gmtime(now), text);
  std::fflush(log_);
}

Result<> Console::finish() {
  const std::scoped_lock lock(mutex_);
  wipe();
  errno = 0;
  if (std::fflush(stdout) != 0 && out_errno_ == 0) out_errno_ = errno;
  if (out_errno_ == 0 || out_errno_ == EPIPE || (out_errno_ == EBADF && !options_.answers)) return {};
  const bool full = out_errno_ == ENOSPC || out_errno_ == EDQUOT;
  return fail({.code = full ? Errc::no_space : Errc::io,
               .message = fmt::format("standard output: {}", std::strerror(out_errno_)),
               .hint = "the command finished; only its output is lost"});
}

void Console::wipe() {
  if (!moving_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  moving_shown_ = false;
}

std::string Console::paint(bool color, Ink ink, std::string_view text) {
  const std::string_view code = kInkCodes[static_cast<std::size_t>(ink)];
  if (!color || code.empty()) return std::string(text);
  return fmt::format("{}{}{}", ink_begin(code), text, kPlainCode);
}

std::size_t text_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint one = first_code_point(text);
    columns += one.bytes == 0 ? 1 : columns_of(one.value);
    text.remove_prefix(std::max<std::size_t>(1, one.bytes));
  }
  return columns;
}

std::string to_ascii(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> words{
      {{"░", "."}, {"·", "-"}, {"→", "->"}, {"≤", "<="}, {"…", "..."}, {"×", "x"}, {"█", "#"}}};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = sequence_bytes(static_cast<unsigned char>(text[i]));
    const std::string_view one = text.substr(i, bytes);
    i += bytes;
    if (bytes == 1) {
      out.push_back(one[0]);
      continue;
    }
    std::string_view plain = "?";
    for (const auto& [from, to] : words)
      if (one == from) plain = to;
    if (plain != "?") {
      out += plain;
      continue;
    }
    if (one.substr(0, 2) == "\xe2\x96" || one.substr(0, 2) == "\xe2\x94")
      plain = one.substr(0, 2) == "\xe2\x96" ? "#" : "|";
    out += plain;
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint one = first_code_point(text);
    const std::size_t bytes = std::max<std::size_t>(1, one.bytes);
    if (one.bytes == 0 || is_hidden(one.value))
      out += '?';
    else
      out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace ckpt::cli
