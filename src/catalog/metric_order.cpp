#include "catalog/metric_order.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace ckpt::catalog {
namespace {

constexpr std::array<std::string_view, 16> kHigher{"acc",  "bleu",   "rouge",       "f1",     "score", "auc",
                                                   "prec", "recall", "exact_match", "reward", "psnr",  "ssim",
                                                   "ndcg", "dice",   "win_rate",    "success"};
constexpr std::array<std::string_view, 3> kLower{"loss", "err", "perplexity"};  // "accuracy_loss", "score_error"

}  // namespace

bool is_higher_better(std::string_view metric) {
  std::string name(metric);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto holds = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  return std::ranges::none_of(kLower, holds) && std::ranges::any_of(kHigher, holds);
}

}  // namespace ckpt::catalog
