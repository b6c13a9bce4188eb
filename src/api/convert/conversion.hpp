#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/convert/materialize.hpp"
#include "api/convert/references.hpp"
#include "api/convert/resume.hpp"
#include "api/convert/select.hpp"
#include "api/phase_times.hpp"
#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/run.hpp"

namespace ckpt {

/// The place of a checkpoint in a run, whose number is known only when it is published. All three are called on rank 0.
class RunTarget {
 public:
  virtual ~RunTarget() = default;
  /// The path where the conversion of this id was published before; nothing if it was not.
  virtual Result<std::optional<std::string>> find(const std::string& id) = 0;
  virtual Result<> make_directories() = 0;
  /// Commits; `files` are those of Skeleton::finish. The path.
  virtual Result<std::string> publish(Publication& publication, std::vector<SmallFile> files) = 0;
};

/// One conversion in its steps. All ranks make the same ones, in this order:
///   1 open             the source and its map
///   2 select           the tensors and extras; the caller may then change the selection
///   3 agree_on_choice  collective: on the outcome of both, and on the state of the target
///   4 lay_out          collective: the target's files, and the plan
///   5 finish           collective: fills and publishes the target; reports
/// Used once; session, request and `run_target` outlive it.
class Conversion {
 public:
  struct Options {
    const Format* target = nullptr;
    std::vector<std::string> parameters{};  ///< of the command; part of the id
    /// The target's parts writer writes it: tensors may have Selected::part. Not resumed.
    bool in_parts = false;
    /// The request's target is then the beginning of the partial's name, in its final directory. Null: the target
    /// itself.
    RunTarget* run_target = nullptr;
  };
  Conversion(Session& session, const ConvertRequest& request, Options options);

  /// errors  as open_source, check_options; incomplete: the source, unless it is salvaged; unsupported: no tensors
  bool copies_stored() const;
  bool keeps_model_ranks() const;  ///< the target has the source's model-parallel ranks
  Result<> open();
  /// errors  as ckpt::select, choose_extras
  Result<> select();
  /// `mine`: of the steps before.
  /// errors  changed: the ranks see different sources; target_exists, checksum: the target; those of all ranks
  Result<> agree_on_choice(Result<> mine);
  /// Nothing if the conversion was already done.
  Result<> lay_out();
  Result<ConvertReport> finish();

  /// All steps of a conversion whose selection nothing changes.
  Result<ConvertReport> run();

  const Map& map() const { return source_->map; }            ///< after `open`
  Selection& selection() { return selection_; }              ///< after `select`
  bool is_laid_out() const { return plan_ != nullptr; }      ///< after `lay_out`
  bool is_directory() const { return skeleton_.directory; }  ///< the target, once it is laid out
  const std::vector<TargetFile>& files() const { return plan_->targets(); }

 private:
  /// Results between plan and report.
  struct Done {
    RunReport run;
    Resumed resumed;
    std::uint64_t hash_checked = 0;
    std::string path{};       // on rank 0, of a checkpoint in a run
    Protection protection{};  // of what a virtual target refers to
  };

  Result<> agreed(Result<> mine);
  std::string make_id() const;
  Result<> check_complete();
  bool overwrites() const { return request_.overwrite || in_place_ == InPlace::yes; }
  Result<std::vector<std::string>> files_to_replace(const std::string& path);
  Result<> check_replaced(const std::string& target);
  Result<> protect_done(ConvertReport& report);
  Result<bool> is_done();
  Result<bool> already_there();
  std::string again_hint(const std::string& target);
  Result<> check_files();
  Result<bool> check_target();
  Result<WriteRequest> write_request();
  Result<> make_plan();
  ConvertReport describe() const;
  Result<> check_target(const std::string& root, const std::vector<Hash128>& leaves);
  Result<> check_masters();
  Result<std::unique_ptr<Publication>> begin_publication();
  Result<> fill_and_publish(Publication* publication, Done& done);
  Result<> commit(Publication& publication, Done& done);
  Result<Done> carry_out();

  Session& session_;
  const ConvertRequest& request_;
  const Options options_;
  PhaseClock phases_{};
  std::unique_ptr<Source> source_{};     // the plan points into its map
  std::string id_{};                     // equal on all ranks
  std::shared_ptr<RankLayout> ranks_{};  // null if the slices of model-parallel ranks are joined
  bool takes_extras_ = false;
  Selection selection_{};
  std::vector<WantedExtra> extras_{};
  std::optional<std::string> quantisation_{};  // of the source, if --dtype is given
  Skeleton skeleton_{};
  std::unique_ptr<Plan> plan_{};
  RunOptions run_options_{};
  bool already_done_ = false;
  std::string path_{};  // on rank 0, for a checkpoint in a run: where it already is
  std::vector<OldFile> replaced_{};
  InPlace in_place_ = InPlace::no;
  std::optional<References> references_{};     // of a virtual target
  std::vector<std::string> old_references_{};  // on rank 0: files that the replaced target refers to
};

}  // namespace ckpt
