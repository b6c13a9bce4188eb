#include "convert/deepspeed/files/version.hpp"

#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {

bool is_before(std::string_view version, unsigned minor) {
  if (!version.starts_with("0.")) return false;
  version.remove_prefix(2);
  const auto number = parse_number<unsigned>(version.substr(0, version.find('.')));
  return number && *number < minor;
}

}  // namespace ckpt::deepspeed
