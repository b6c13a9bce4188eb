#include "convert/unlisted.hpp"

#include <fmt/format.h>

namespace ckpt {

void Unlisted::add(std::string_view name, bool elsewhere) {
  Some& some = elsewhere ? superseded_ : unnamed_;
  if (some.count++ == 0) some.first = name;
}

void Unlisted::report(std::vector<Finding>& findings) const {
  const auto text = [](const Some& some, std::string_view why) {
    return some.count == 1 ? fmt::format("{} was left out: {}", some.first, why)
                           : fmt::format("{} tensors were left out, the first {}: {}", some.count, some.first, why);
  };
  if (superseded_.count != 0)
    findings.push_back(
        {.text = text(superseded_, "the index takes it from another file"), .tensor = superseded_.first});
  if (unnamed_.count != 0)
    findings.push_back({.severity = Severity::warning,
                        .text = text(unnamed_, "the index does not list it"),
                        .tensor = unnamed_.first,
                        .skipped = Skipped::data});
}

}  // namespace ckpt
