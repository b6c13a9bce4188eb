#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/io/host.hpp"

namespace ckpt {

/// The name of a claim file: KEY-HOST-BOOT-PIDNS-PID-START.N. Directory entries are hostile input: a name is a claim
/// only if `text` writes it the same way.
struct ClaimName {
  std::string key{};  ///< 32 hexadecimal digits: of a checkpoint its id
  ProcessId maker{};  ///< its host's name at most 64 bytes, other ones than letters, digits, '.', '_', '-' as '_'
  std::uint32_t number = 0;  ///< of several of one process

  std::string text() const;
  std::string who() const;  ///< "host n17 pid 4211"
  /// Nothing for any other name.
  static std::optional<ClaimName> parse(std::string_view text);
  bool operator==(const ClaimName&) const = default;
};

/// A host's name as in claims.
std::string claim_host(std::string_view host);

}  // namespace ckpt
