#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "api/verbs.hpp"
#include "cli/process/launch.hpp"

namespace ckpt::cli {

enum class Ink : std::uint8_t { plain, bold, dim, red, yellow, green };

/// The only owner of standard output and standard error. Under an MPI launch no stream counts as a terminal (mpirun
/// gives every rank a terminal as standard output), and only rank 0 may write. Any thread may call.
class Console {
 public:
  struct Options {
    bool speaks = true;     ///< false on ranks other than 0: everything is dropped
    bool answers = true;    ///< the output was requested: closing standard output loses it
    bool launched = false;  ///< under an MPI launch
    std::string color{};    ///< "auto", "never", "always"
    std::string log_file{};
  };
  Console(Options options, const Environment& environment);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// errors   io: the log file cannot be opened, is a symbolic link, or no regular file
  Result<> open_log();

  bool out_is_terminal() const { return out_terminal_; }
  bool err_is_terminal() const { return err_terminal_; }
  /// Columns of the terminal, or 80.
  std::size_t width() const { return width_; }
  bool is_width_known() const { return out_terminal_ || width_given_; }  ///< by a terminal, or COLUMNS
  /// Columns for a table on standard output: those of the terminal; in a pipe nothing is shortened.
  std::size_t table_width() const { return out_terminal_ ? width_ : SIZE_MAX; }
  std::size_t error_width() const { return err_terminal_ ? width_ : SIZE_MAX; }  ///< the same of standard error

  /// Control characters of a text other than line breaks, tabs and the inks below are shown as '?'.
  void out(std::string_view text);     ///< to standard output
  void err(std::string_view line);     ///< one line to standard error; wipes the moving line first
  void moving(std::string_view line);  ///< redraws the moving line of standard error; "" wipes it
  void log(std::string_view line);     ///< to the log file only, with the time

  /// Collects both streams from here on. show_frame() ends that and shows the text on the terminal instead of the frame
  /// before, as many lines as fit; the log gets none of it. False if that cannot be written. drop_frame() ends it
  /// without.
  void begin_frame();
  bool show_frame();
  void drop_frame();

  std::string paint_out(Ink ink, std::string_view text) const { return paint(out_color_, ink, text); }
  std::string paint_err(Ink ink, std::string_view text) const { return paint(err_color_, ink, text); }

  /// Flushes standard output. io or no_space if something could not be written. A reader that has closed the pipe (`|
  /// head`) is not an error.
  Result<> finish();

 private:
  static std::string paint(bool color, Ink ink, std::string_view text);
  void wipe();
  void log_locked(std::string_view line);
  void log_lines_locked(std::string_view text);

  Options options_;
  bool out_terminal_ = false;
  bool err_terminal_ = false;
  bool out_color_ = false;
  bool err_color_ = false;
  bool ascii_ = false;        ///< a terminal whose locale is not UTF-8
  bool width_given_ = false;  ///< by COLUMNS
  std::size_t width_ = 80;
  std::mutex mutex_;
  bool moving_shown_ = false;           // guarded by mutex_
  std::optional<std::string> frame_{};  // guarded by mutex_
  bool frame_shown_ = false;            // guarded by mutex_
  std::FILE* log_ = nullptr;            // guarded by mutex_
  int out_errno_ = 0;                   // guarded by mutex_
};

/// Columns that UTF-8 text takes on a terminal: one per code point, none for combining marks' bytes.
std::size_t text_width(std::string_view text);
/// The same words in ASCII: "->" for an arrow, "-" for a middle dot, "#" for a block.
std::string to_ascii(std::string_view text);
/// Printable form of a text (names come from files): hidden characters (utf8.hpp), which could move the cursor or make
/// a name look like another, and bytes that are not UTF-8 become '?', also tabs and line breaks.
std::string printable(std::string_view text);

}  // namespace ckpt::cli
