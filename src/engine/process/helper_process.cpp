#include "engine/process/helper_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "engine/process/installed.hpp"

extern char** environ;

namespace ckpt {
namespace {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return value_; }
  void reset() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_ = -1;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(Errc::io, std::string("pipe: ") + std::strerror(errno));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

Error not_started(const std::string& program, const std::string& reason) {
  return {.code = Errc::unsupported,
          .message = program + ": " + reason,
          .hint = "install the package that holds " + program + ", or build with HDF5"};
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

constexpr std::size_t kMostErrorBytes = 64u << 10;  // limit of a helper's standard error
constexpr std::chrono::milliseconds kPatience(50);  // how long a stop or an end may go unseen

enum class Ended : std::uint8_t { itself, unseen, late, talkative, stopped };

/// A running helper: sends input and collects output until it ends or exceeds a limit.
class Conversation {
 public:
  Conversation(Pipe& in, Pipe& out, Pipe& err, std::string_view input, const HelperLimits& limits)
      : in_(std::move(in.write)),
        out_(std::move(out.read)),
        err_(std::move(err.read)),
        input_(input),
        limits_(limits),
        deadline_(std::chrono::steady_clock::now() + limits.time) {
    if (input_.empty()) in_.reset();
  }

  /// The helper is reaped only if it ended itself; if its status was lost, another thread reaped it.
  Ended run(pid_t child, int& status) {
    while (out_.get() >= 0 || err_.get() >= 0) {
      if (const auto over = limit_reached()) return *over;
      std::array<pollfd, 3> polled{{{in_.get(), POLLOUT, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
      if (::poll(polled.data(), polled.size(), static_cast<int>(kPatience.count())) <= 0) continue;
      if (polled[0].revents != 0) feed();
      if (polled[1].revents != 0 && !drain(out_, output_, limits_.output_bytes)) return Ended::talkative;
      if (polled[2].revents != 0 && !drain(err_, errors_, kMostErrorBytes)) return Ended::talkative;
    }
    // One that closed its ends may live on.
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, kPatience)) {
      const pid_t reaped = ::waitpid(child, &status, WNOHANG);
      if (reaped == child) return Ended::itself;
      if (reaped < 0 && errno != EINTR) return Ended::unseen;
      if (const auto over = limit_reached()) return *over;
      std::this_thread::sleep_for(pause);
    }
  }
  std::string& output() { return output_; }
  std::string& errors() { return errors_; }

 private:
  std::optional<Ended> limit_reached() const {
    if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed)) return Ended::stopped;
    if (std::chrono::steady_clock::now() >= deadline_) return Ended::late;
    return std::nullopt;
  }
  void feed() {
    const ssize_t count = ::write(in_.get(), input_.data(), input_.size());
    if (count > 0) input_.remove_prefix(static_cast<std::size_t>(count));
    if (input_.empty() || (count < 0 && errno != EINTR && errno != EAGAIN)) in_.reset();
  }
  /// False if there is more than `most`.
  static bool drain(Descriptor& from, std::string& into, std::uint64_t most) {
    std::array<char, 65536> block;
    const ssize_t count = ::read(from.get(), block.data(), block.size());
    if (count == 0 || (count < 0 && errno != EINTR)) from.reset();
    if (count <= 0) return true;
    if (static_cast<std::uint64_t>(count) > most - into.size()) return false;
    into.append(block.data(), static_cast<std::size_t>(count));
    return true;
  }

  Descriptor in_;
  Descriptor out_;
  Descriptor err_;
  std::string_view input_;  // remaining input
  const HelperLimits& limits_;
  std::chrono::steady_clock::time_point deadline_;
  std::string output_;
  std::string errors_;
};

/// Exit statuses of helpers: helper/h5_file.hpp, Verdict. A signal sent by a limit or a person says nothing about the
/// file.
Errc code_of(int status) {
  if (WIFSIGNALED(status)) {
    constexpr std::array kFromOutside{SIGXCPU, SIGXFSZ, SIGKILL, SIGTERM, SIGINT, SIGHUP};
    const bool crashed = std::find(kFromOutside.begin(), kFromOutside.end(), WTERMSIG(status)) == kFromOutside.end();
    return crashed ? Errc::corrupt : Errc::io;
  }
  switch (WEXITSTATUS(status)) {
    case 3:
      return Errc::refused;
    case 4:
      return Errc::unsupported;
    case 5:
      return Errc::no_space;
    case 6:
      return Errc::memory;
    case 7:
      return Errc::io;
    case 8:
      return Errc::changed;
    default:
      return Errc::corrupt;
  }
}

std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return "refused";
  const int number = WTERMSIG(status);
  if (number == SIGXCPU) return "exceeded its CPU time and was stopped";
  return "died of signal " + std::to_string(number) + (number == SIGKILL ? "; the system may be out of memory" : "");
}

Error overstepped(const std::string& program, Ended ended, const HelperLimits& limits) {
  switch (ended) {
    case Ended::unseen:
      return {.code = Errc::io,
              .message = program +
                         ": its exit status is unknown: other code in this process reaped it, or "
                         "SIGCHLD is ignored",
              .hint = "set SIGCHLD to its default action while ckpt runs"};
    case Ended::stopped:
      return {.code = Errc::interrupted, .message = program + ": stopped"};
    case Ended::talkative:
      return {
          .code = Errc::memory,
          .message = program + ": its output exceeds the limit of " + std::to_string(limits.output_bytes) + " bytes",
          .hint = "raise --memory if the file has that many names"};
    default:
      return {.code = Errc::io,
              .message = program + ": exceeded the time limit of " + std::to_string(limits.time.count()) +
                         " s and was stopped"};
  }
}

}  // namespace

Result<ScratchFile> ScratchFile::open_small() {
  return open_in("/tmp");
}

Result<ScratchFile> ScratchFile::open_large() {
  auto file = open_in("/var/tmp");
  return file ? std::move(file) : open_in("/tmp");
}

Result<ScratchFile> ScratchFile::open_in(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return ScratchFile(descriptor);
  std::string name = directory + "/ckpt-scratch-XXXXXX";  // of a file system that has no such files
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return fail(Errc::io, name + ": create: " + std::strerror(errno));
  ::unlink(name.c_str());
  return ScratchFile(named);
}

Result<> ScratchFile::write(std::string_view bytes) {
  std::uint64_t at = 0;
  while (at < bytes.size()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(Errc::io, std::string("write a temporary file: ") + std::strerror(errno));
    at += static_cast<std::uint64_t>(written);
  }
  return {};
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string ScratchFile::path_for_helper() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

ScratchFile::~ScratchFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> run_helper(const std::string& program, const std::vector<std::string>& arguments,
                               std::string_view input, const HelperLimits& limits) {
  const auto path = find_installed(program, {"", "../libexec/ckpt", "../../libexec/ckpt", "../bin"});
  if (!path) return fail(not_started(program, "not installed next to ckpt"));
  CKPT_TRY(Pipe in, make_pipe());
  CKPT_TRY(Pipe out, make_pipe());
  CKPT_TRY(Pipe err, make_pipe());
  // A helper that dies early must not kill us with SIGPIPE: the write end reports EPIPE on a socketless pipe only as
  // a signal, so the write is kept non-blocking and the signal blocked on this thread.
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  sigset_t pipe_signal;
  sigset_t before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);

  std::vector<std::string> words{*path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int spawned = ::posix_spawn(&child, path->c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return fail(not_started(program, std::strerror(spawned)));
  }
  in.read.reset();
  out.write.reset();
  err.write.reset();
  Conversation conversation(in, out, err, input, limits);
  int status = 0;
  const Ended ended = conversation.run(child, status);
  if (ended != Ended::itself && ended != Ended::unseen) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  timespec none{};
  while (sigtimedwait(&pipe_signal, nullptr, &none) == SIGPIPE) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (ended != Ended::itself) return fail(overstepped(program, ended, limits));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::move(conversation.output());
  const std::string said = last_line(std::move(conversation.errors()));
  return fail(code_of(status), program + ": " + (said.empty() ? end_text(status) : said));
}

}  // namespace ckpt
