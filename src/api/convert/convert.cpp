#include "api/convert/conversion.hpp"
#include "api/convert/target.hpp"
#include "api/verbs.hpp"

namespace ckpt {

Result<ConvertReport> convert(Session& session, const ConvertRequest& request) {
  CKPT_TRY(const Format* const target, choose_target(request));
  return Conversion(session, request, {.target = target}).run();
}

}  // namespace ckpt
