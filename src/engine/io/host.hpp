#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ckpt {

/// The host name; empty if unknown.
std::string host_name();

/// Bytes of the file system of a path; 0 if unknown.
std::uint64_t volume_bytes(const std::string& path);

/// The identity of a process, unique over all hosts.
struct ProcessId {
  std::string host{};               ///< its name, to be shown
  std::string boot{};               ///< boot id: 32 hexadecimal digits; empty if unknown
  std::uint64_t pid_namespace = 0;  ///< in which `pid` means something
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  ///< clock ticks after the boot
  bool operator==(const ProcessId&) const = default;
};

/// The machine that a process runs on, as that process sees it.
class Host {
 public:
  virtual ~Host() = default;
  virtual ProcessId self() const = 0;
  /// Whether a process runs; nothing if unknown, because it belongs to another host, boot or namespace.
  virtual std::optional<bool> is_running(const ProcessId& process) const = 0;
  /// Of this boot, stops while the machine sleeps; cannot be set.
  virtual std::chrono::nanoseconds monotonic() const = 0;
  /// Processes with the same one have the same `monotonic`; empty: no other process has.
  virtual std::string clock_id() const = 0;
};

/// The real one: /proc. No state.
class ThisHost final : public Host {
 public:
  ProcessId self() const override;
  std::optional<bool> is_running(const ProcessId& process) const override;
  std::chrono::nanoseconds monotonic() const override;
  std::string clock_id() const override;
};

}  // namespace ckpt
