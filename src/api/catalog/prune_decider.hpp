#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"
#include "catalog/scan/own_links.hpp"

namespace ckpt {

/// Decides about the parts of a plan. A part is decided again whenever a checkpoint that justifies its deletions is
/// incomplete, or holds links into what would go.
class PruneDecider {
 public:
  /// `own`: all checkpoints of ours in the store.
  PruneDecider(Session& session, const PruneRequest& request, catalog::Situation situation,
               const std::vector<catalog::OwnPlace>& own)
      : session_(session), request_(request), situation_(std::move(situation)), own_(own) {}

  /// errors  interrupted; those of retain
  Result<> decide(PrunePart& part, std::vector<std::string>& warnings);

 private:
  struct Checks {
    bool any = false;
    bool damaged = false;  ///< a checkpoint that would be kept is incomplete
  };
  Result<> not_stopped() const;
  Result<> decide_until_stable(PrunePart& part, std::vector<std::string>& warnings);
  Result<bool> note_own_links(PrunePart& part, std::vector<std::string>& warnings);
  Result<> find_own_links(std::vector<std::string>& warnings);
  static std::set<std::string> runs_of(const PrunePart& part, const std::vector<std::uint32_t>& indices);
  std::vector<bool> sure_of(const PrunePart& part) const;
  Result<Checks> check(PrunePart& part, const std::vector<std::uint32_t>& indices, const std::set<std::string>& runs,
                       std::vector<std::string>& warnings);

  Session& session_;
  const PruneRequest& request_;
  catalog::Situation situation_;
  const std::vector<catalog::OwnPlace>& own_;
  std::optional<std::vector<catalog::FoundLink>> own_links_{};  // once they were searched
  std::set<const PrunePart*> linked_{};                         // parts that know them
  std::set<std::string> checked_{};                             // paths
  std::set<std::uint32_t> left_{};                              // of the part: unchecked in a plan that is only shown
};

}  // namespace ckpt
