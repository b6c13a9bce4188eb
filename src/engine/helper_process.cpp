#include "engine/helper_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/installed.hpp"

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
          .message = program + ": start: " + reason,
          .hint = "install the package that holds " + program + ", or build with HDF5"};
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

/// Feeds and drains the helper's pipes until it has closed both of its ends; false when the time is over.
bool exchange(Pipe& in, Pipe& out, Pipe& err, std::string_view input, std::string& output, std::string& errors,
              std::chrono::steady_clock::time_point deadline) {
  std::size_t sent = 0;
  if (input.empty()) in.write.reset();
  while (out.read.get() >= 0 || err.read.get() >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    std::array<pollfd, 3> polled{
        {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    if (polled[0].revents != 0) {
      const ssize_t count = ::write(in.write.get(), input.data() + sent, input.size() - sent);
      if (count > 0) sent += static_cast<std::size_t>(count);
      if (sent == input.size() || (count < 0 && errno != EINTR && errno != EAGAIN)) in.write.reset();
    }
    std::array<char, 65536> block;
    const auto drain = [&](pollfd& p, Descriptor& from, std::string& into) {
      if (p.revents == 0) return;
      const ssize_t count = ::read(from.get(), block.data(), block.size());
      if (count > 0) into.append(block.data(), static_cast<std::size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR)) from.reset();
    };
    drain(polled[1], out.read, output);
    drain(polled[2], err.read, errors);
  }
  return true;
}

/// The statuses that a helper ends with: helper/h5_file.hpp, Verdict.
Errc code_of(int status) {
  switch (WIFEXITED(status) ? WEXITSTATUS(status) : 0) {
    case 3:
      return Errc::refused;
    case 4:
      return Errc::unsupported;
    case 5:
      return Errc::no_space;
    default:
      return Errc::corrupt;
  }
}

}  // namespace

Result<ScratchFile> ScratchFile::open() {
  return open_in("/tmp");
}

Result<ScratchFile> ScratchFile::open_large() {
  auto file = open_in("/var/tmp");
  return file ? std::move(file) : open_in("/tmp");
}

Result<ScratchFile> ScratchFile::open_in(const std::string& directory) {
  std::string name = directory + "/ckpt-scratch-XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) return fail(Errc::io, name + ": create: " + std::strerror(errno));
  return ScratchFile(descriptor, std::move(name));
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::exchange(other.name_, {})) {}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(name_, other.name_);
  return *this;
}

std::string ScratchFile::path_for_helper() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

void ScratchFile::unlink() {
  if (!name_.empty()) ::unlink(name_.c_str());
  name_.clear();
}

ScratchFile::~ScratchFile() {
  unlink();
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> run_helper(const std::string& program, const std::vector<std::string>& arguments,
                               std::string_view input, std::chrono::seconds limit) {
  const auto path = find_installed(program, {"", "../libexec/ckpt", "../../libexec/ckpt"});
  if (!path) return fail(not_started(program, "it is not installed beside ckpt"));
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
  std::string output;
  std::string errors;
  const bool in_time = exchange(in, out, err, input, output, errors, std::chrono::steady_clock::now() + limit);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  timespec none{};
  while (sigtimedwait(&pipe_signal, nullptr, &none) == SIGPIPE) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (!in_time) return fail(Errc::io, program + ": ran past " + std::to_string(limit.count()) + " s and was stopped");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  const std::string said = last_line(std::move(errors));
  const std::string how = WIFSIGNALED(status) ? "died of signal " + std::to_string(WTERMSIG(status)) +
                                                    (WTERMSIG(status) == SIGXCPU ? ": it worked for too long" : "")
                                              : "refused";
  return fail(code_of(status), program + ": " + (said.empty() ? how : said));
}

}  // namespace ckpt
