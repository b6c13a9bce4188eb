#include "writers/background.hpp"

#include <future>
#include <utility>

#include "engine/io/exceptions_to_result.hpp"

namespace ckpt {

Background::Background(std::unique_ptr<Io> io) : io_(std::move(io)), thread_([this] { work(); }) {}

Background::~Background() {
  {
    const std::lock_guard held(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

void Background::add(Task task) {
  {
    const std::lock_guard held(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

Result<> Background::run(const std::function<Result<>(Io&)>& task) {
  std::promise<Result<>> done;
  auto result = done.get_future();
  add([&](Io& io) { done.set_value(exceptions_to_result([&] { return task(io); })); });
  return result.get();
}

void Background::work() {
  for (;;) {
    Task task;
    {
      std::unique_lock held(mutex_);
      changed_.wait(held, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(*io_);
  }
}

}  // namespace ckpt
