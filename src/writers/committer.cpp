#include "writers/committer.hpp"

#include <chrono>

#include "engine/io/exceptions_to_result.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/publish_save.hpp"
#include "writers/save_content.hpp"

namespace ckpt {

Result<> Committer::begin(SaveJob& save) {
  return run([&](Io& io) -> Result<> {
    CKPT_TRY(save.publication, Publication::begin(io,
                                                  {.target = join_path(options_.home, step_text(save.step)),
                                                   .id = save.id().hex(),
                                                   .folders = all_folders(),
                                                   .named_later = true},
                                                  {}));
    save.root = save.publication->root();
    return {};
  });
}

void Committer::publish(const std::shared_ptr<SaveJob>& save, std::vector<std::string> records) {
  thread_->add([this, save, records = std::move(records)](Io& io) {
    const auto start = std::chrono::steady_clock::now();
    auto name = exceptions_to_result([&] { return publish_now(io, *save, records); });
    save->publication.reset();
    save->finish_publishing(name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (options_.published) options_.published(save, name);
  });
}

Result<std::string> Committer::publish_now(Io& io, SaveJob& save, const std::vector<std::string>& records) const {
  CKPT_TRY(SaveToPublish content,
           records.empty() ? sealed_content(save.sealed) : merged_content(std::move(save.manifest), records));
  save.sealed.clear();
  content.run_directory = options_.home;
  content.step = save.step;
  if (options_.least_generation) content.least_generation = options_.least_generation();
  return publish_save(io, *save.publication, std::move(content));
}

void Committer::wait() {
  static_cast<void>(run([](Io&) -> Result<> { return {}; }));
}

void Committer::drop_unused(const std::shared_ptr<SaveJob>& save) {
  if (thread_) thread_->add([save](Io&) { save->publication.reset(); });
}

void Committer::drop(const std::shared_ptr<SaveJob>& save) {
  if (!thread_) return;
  if (save->written()) return drop_unused(save);
  flusher_.after([this, save] { drop_unused(save); });
}

void Committer::take_back(const std::shared_ptr<SaveJob>& save) {
  thread_->add([this, save](Io& io) {
    const auto name = find_committed(io, options_.home, save->step, save->id());
    if (!name || !*name) return;
    static_cast<void>(
        remove_published(io, join_path(options_.home, **name), save->id().hex(), options_.check_removable));
  });
}

Result<std::optional<std::string>> Committer::find(const SaveJob& save) {
  std::optional<std::string> name;
  CKPT_CHECK(flusher_.run([&](Io& io) -> Result<> {
    CKPT_TRY(name, find_committed(io, options_.home, save.step, save.id()));
    return {};
  }));
  return name;
}

}  // namespace ckpt
