#pragma once

#include <optional>
#include <string>

#include "api/doctor/disk_speed.hpp"
#include "api/run/save_plan.hpp"
#include "cli/report/say.hpp"

/// What `ckpt plan` shows to people.
namespace ckpt::cli {

/// A price in the words of the user: "$2.50", "2.50 EUR".
struct Price {
  std::string before{};
  double amount = 0;
  std::string after{};
};
/// errors  usage: there is no number, or it is not above 0
Result<Price> parse_price(std::string_view text);
/// Another amount in the same currency.
std::string price_text(const Price& price, double amount);

struct PlanInputs {
  SavePlanRequest request{};
  std::optional<std::uint64_t> nodes{};
  std::optional<Price> gpu_hour{};
  std::optional<DiskSpeed> speed{};  ///< of --bench
};

/// The recommendation and its cost; the choices; what changes if the inputs differ; storage and memory.
void print_plan(Context& context, const SavePlan& plan, const PlanInputs& inputs);

/// The lost time by interval, as a picture.
void print_curve(Context& context, const SaveChoice& choice);

}  // namespace ckpt::cli
