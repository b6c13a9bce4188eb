#include "api/convert/only_rule.hpp"

#include <algorithm>

#include "format/text/glob.hpp"

namespace ckpt {

OnlyRule::OnlyRule(const std::vector<std::string>& only) {
  for (const std::string& word : only) {
    if (word == "weights") {
      weights = true;
    } else if (word == "optim" || word == "optimizer") {
      optim = true;
    } else {
      globs.push_back(word);
      if (word.find_first_of("*?[") == std::string::npos)
        names.insert(word);
      else
        wildcards.push_back(word);
    }
  }
}

bool OnlyRule::by_role(Role role) const {
  return (weights && (role == Role::param || role == Role::buffer)) || (optim && role == Role::slot);
}

bool OnlyRule::matches(const std::string& name) const {
  return names.contains(name) ||
         std::ranges::any_of(wildcards, [&](const std::string& glob) { return matches_glob(name, glob); });
}

}  // namespace ckpt
