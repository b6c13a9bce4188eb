#include "engine/run/worker.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/run/checks.hpp"
#include "engine/run/decompress.hpp"
#include "engine/run/fetch.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/run/leaf_work.hpp"
#include "engine/run/run.hpp"
#include "engine/run/worker_files.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostStagedWrites = 8;                      // leaves that wait for the disk: its queue stays full
constexpr auto kStagingPatience = std::chrono::milliseconds(20);  // how long a stop may go unseen

/// Copies and checks that a leaf still holds.
std::size_t copies_held(const Job& job) {
  std::size_t count = 0;
  for (const Fetch& fetch : job.fetches) count += fetch.uses.size();
  return count;
}

WorkerFiles::Name source_of(const Segment& segment) {
  return {segment.sparse ? WorkerFiles::Kind::sparse : WorkerFiles::Kind::dense, segment.file};
}

/// An event loop over one Io. Leaves are begun in the plan's order; each holds one buffer for its bytes and, one after
/// another, buffers for reads; a leaf is hashed and written as soon as its last read is placed. If leaves share reads,
/// a buffer keeps its bytes until it is needed for others. Every request owns its buffer until it is reaped, also after
/// a failure.
class Worker {
 public:
  Worker(RunShared& shared, Io& io)
      : shared_(shared), io_(io), recorder_(io, shared.record, shared.record_every), files_(shared, io) {}

  /// Runs until no leaf is left, then syncs and closes the target files it wrote.
  Result<WorkerReport> run();

 private:
  /// A request that waits for its turn, and for its file.
  struct Waiting {
    WorkerFiles::Name file;
    Request request;
  };

  Result<> loop();
  Result<bool> begin_jobs();
  Result<bool> begin_staged();
  Result<bool> begin_leaf(Job& job);
  std::optional<BufferPool::Buffer> take_buffer();
  Result<bool> begin_reads();
  Result<> begin_reading(Job& job, BufferPool::Buffer buffer);
  Result<> decompress(Reading& reading);
  Result<Decompressor*> decompressor_at(const Segment& segment);
  Reading* find_reading(const Job& job, const Fetch& fetch);
  Result<> check_sums(Job& job, const Fetch& fetch, const Reading& reading);
  Result<> check_leaves(const Reading& reading);
  Result<> serve(Job& job, const Fetch& fetch, const Reading& reading);
  Result<> check(const Job& job, const Copy& copy, const std::byte* source, std::uint64_t source_begin);
  Result<> found(const Discrepancy& discrepancy) const;
  Result<bool> submit_some();
  Result<> reap(bool wait);
  Result<> check_length(const Segment& segment, std::size_t bytes) const;
  void drain();
  Result<> complete_read(Reading& reading);
  Result<> complete_leaf(Job& job);
  Result<> queue_write(Job& job);
  Result<> complete_write(Job& job);

  RunShared& shared_;
  Io& io_;
  LeafRecorder recorder_;
  WorkerReport report_;
  std::list<Job> jobs_;
  std::list<Reading> readings_;  // in flight, and kept ones
  std::deque<Waiting> queue_;
  std::size_t in_flight_ = 0;
  Extent positions_{};  // taken, not yet begun
  bool exhausted_ = false;
  WorkerFiles files_;
  std::list<Decompressor> decompressors_;  // where the last segments ended, latest first; kDecodeBytes in total
};

Result<WorkerReport> Worker::run() {
  auto outcome = loop();
  if (!outcome) {
    drain();
    static_cast<void>(recorder_.close());  // finished leaves stay finished; the failure is the outcome
    return fail(std::move(outcome).error());
  }
  CKPT_CHECK(recorder_.close());
  CKPT_CHECK(files_.close_all());
  report_.direct = files_.all_direct();
  return report_;
}

Result<> Worker::loop() {
  for (;;) {
    if (shared_.stop.load(std::memory_order_relaxed)) return fail(Errc::interrupted, "stopped");
    CKPT_TRY(const bool began, shared_.staging != nullptr ? begin_staged() : begin_jobs());
    CKPT_TRY(const bool read, begin_reads());
    CKPT_TRY(const bool submitted, submit_some());
    if (in_flight_ > 0) {
      CKPT_CHECK(reap(!began && !read && !submitted));
    } else if (jobs_.empty() && exhausted_) {
      return {};
    } else if (!began && !read && !submitted && shared_.staging == nullptr) {
      return fail(Errc::internal, "a worker has work but no buffer for it");
    }
  }
}

/// Takes leaves: at most half of the buffers hold leaves, the others stay for reading; more, where what is read serves
/// several. Leaves of many tiny tensors are few at a time, for their copies take memory.
Result<bool> Worker::begin_jobs() {
  bool began = false;
  const std::size_t buffers = shared_.buffers_per_worker;
  const std::size_t siblings = shared_.plan.siblings();
  const std::size_t limit = siblings == 1
                                ? std::max<std::size_t>(1, buffers / 2)
                                : std::max({std::size_t{1}, buffers * 3 / 4, std::min(siblings, buffers - 2)});
  while (!exhausted_ && jobs_.size() < shared_.buffers_per_worker) {
    const auto gathering = std::count_if(jobs_.begin(), jobs_.end(), [](const Job& j) { return !j.pass_through; });
    if (static_cast<std::size_t>(gathering) >= limit) break;
    const bool full =
        std::transform_reduce(jobs_.begin(), jobs_.end(), std::size_t{0}, std::plus(), copies_held) >= kCopiesPerWorker;
    if (full) break;
    if (positions_.size() == 0) positions_ = shared_.next_positions();
    if (positions_.size() == 0) {
      exhausted_ = true;
      break;
    }
    const std::size_t together = shared_.plan.together(positions_.begin);
    if (gathering != 0 && static_cast<std::size_t>(gathering) + together > limit) break;
    const std::uint64_t position = positions_.begin++;
    CKPT_TRY(LeafJob leaf, shared_.make_job(position));
    Job& job = jobs_.emplace_back();
    began = true;
    job.position = position;
    job.leaf = std::move(leaf);
    for (const Copy& copy : job.leaf.copies) job.covered += target_volume(copy);
    for (const LeafJob::Literal& literal : job.leaf.literals) job.covered += literal.bytes.size();
    job.fetches = group_fetches(std::move(job.leaf.copies), shared_.pool.buffer_bytes(), job.leaf.follows);
    job.first_check = job.fetches.size();
    std::vector<Fetch> checks = group_fetches(std::move(job.leaf.checks), shared_.pool.buffer_bytes(), false);
    std::move(checks.begin(), checks.end(), std::back_inserter(job.fetches));

    // One dense read of the whole leaf needs no copy: it is hashed and written from its read buffer.
    if (job.fetches.size() == 1 && job.first_check == 1 && job.fetches[0].uses.size() == 1) {
      const Copy& copy = job.fetches[0].uses[0].copy;
      const std::uint64_t delta = copy.source_offset - job.fetches[0].segments[0].begin;
      job.pass_through =
          is_plain_run(copy) && target_volume(copy) == job.leaf.bytes && (shared_.target_root.empty() || delta == 0);
    }
  }
  return began;
}

/// Takes a leaf that other threads filled, one at a time: each is submitted as soon as it is hashed. Waits for one only
/// if there is nothing else to do.
Result<bool> Worker::begin_staged() {
  if (exhausted_ || jobs_.size() >= kMostStagedWrites) return false;
  const bool idle = jobs_.empty() && in_flight_ == 0;
  CKPT_TRY(auto staged, shared_.staging->take(idle ? kStagingPatience : std::chrono::milliseconds(0)));
  if (!staged) {
    exhausted_ = shared_.staging->ended();
    return false;
  }
  Job& job = jobs_.emplace_back();
  job.position = staged->position;
  job.leaf = std::move(staged->job);
  job.buffer = std::move(staged->buffer);
  job.data = job.buffer.data();
  job.hashed = staged->hash.has_value();
  if (job.hashed) job.done.hash = *staged->hash;
  CKPT_CHECK(complete_leaf(job));
  return true;
}

/// Gives a leaf its buffer, with everything in it that needs no read. False: none is free now.
Result<bool> Worker::begin_leaf(Job& job) {
  auto buffer = take_buffer();
  if (!buffer) return false;
  job.buffer = std::move(*buffer);
  job.data = job.buffer.data();
  if (job.covered != job.leaf.bytes) std::memset(job.data, 0, job.leaf.bytes);
  for (const LeafJob::Literal& literal : job.leaf.literals)
    std::memcpy(job.data + literal.target_offset, literal.bytes.data(), literal.bytes.size());
  return true;
}

std::optional<BufferPool::Buffer> Worker::take_buffer() {
  std::size_t held = readings_.size();
  for (const Job& job : jobs_) held += job.buffer ? 1u : 0u;
  if (held >= shared_.buffers_per_worker) {
    const auto kept = std::find_if(readings_.begin(), readings_.end(), [](const Reading& r) { return r.is_done(); });
    if (kept == readings_.end()) return std::nullopt;
    readings_.erase(kept);  // the oldest
  }
  return shared_.pool.try_acquire();
}

/// Starts reads for the oldest leaves first, while there are buffers. Leaves that need the same rows of the source take
/// their own buffers before: what is read goes to all of them, and is let go.
Result<bool> Worker::begin_reads() {
  bool began = false;
  if (shared_.plan.siblings() > 1) {
    for (Job& job : jobs_)
      if (!job.pass_through && !job.buffer && !job.fetches.empty()) CKPT_CHECK(begin_leaf(job));
  }
  bool is_full = false;  // no buffer is left: leaves take part in readings that there are
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = *at++;  // a leaf without reads is completed, and its job removed, right here
    if (!job.pass_through && !job.buffer) {
      CKPT_TRY(const bool ready, begin_leaf(job));
      if (!ready) return began;
      if (job.fetches.empty()) {
        began = true;
        CKPT_CHECK(complete_leaf(job));
        continue;
      }
    }
    while (job.has_fetch()) {
      const Fetch& fetch = job.fetches[job.next_fetch];
      if (Reading* reading = find_reading(job, fetch); reading != nullptr) {
        began = true;
        ++job.next_fetch;
        ++job.open_fetches;
        if (!reading->is_done()) {
          reading->clients.push_back({&job, &fetch});
          continue;
        }
        const bool last = job.open_fetches == 1 && job.next_fetch == job.fetches.size();
        CKPT_CHECK(check_sums(job, fetch, *reading));
        CKPT_CHECK(serve(job, fetch, *reading));
        if (last) break;  // the job may be gone
        continue;
      }
      if (is_full) break;
      if (const Segment& first = fetch.segments.front(); first.compressed) {
        CKPT_TRY(const std::optional<FileHandle> handle, files_.open({WorkerFiles::Kind::sparse, first.file}));
        if (!handle) return began;  // it is read at once: its file must be open first
      }
      auto buffer = take_buffer();
      if (!buffer) {
        if (shared_.plan.siblings() == 1) return began;
        is_full = true;
        break;
      }
      const bool completes =
          fetch.segments.front().compressed && job.open_fetches == 0 && job.next_fetch + 1 == job.fetches.size();
      CKPT_CHECK(begin_reading(job, std::move(*buffer)));
      began = true;
      if (completes) break;  // the job may be gone
    }
  }
  return began;
}

Result<> Worker::begin_reading(Job& job, BufferPool::Buffer buffer) {
  const Fetch& fetch = job.fetches[job.next_fetch++];
  ++job.open_fetches;
  Reading& reading = readings_.emplace_back();
  reading.clients.push_back({&job, &fetch});
  reading.segments = fetch.segments;
  reading.buffer = std::move(buffer);
  reading.open_segments = fetch.segments.size();
  reading.parts.resize(fetch.segments.size());
  if (fetch.segments.front().compressed) return decompress(reading);
  for (std::uint32_t i = 0; i < fetch.segments.size(); ++i) {
    const Segment& segment = fetch.segments[i];
    reading.parts[i] = {&reading, i};
    queue_.push_back({.file = source_of(segment),
                      .request = {.op = Request::Op::read,
                                  .offset = segment.begin,
                                  .data = reading.buffer.data() + segment.buffer_offset,
                                  .bytes = static_cast<std::size_t>(segment.end - segment.begin),
                                  .tag = reinterpret_cast<std::uintptr_t>(&reading.parts[i]) | kReadTag}});
  }
  return {};
}

/// Decodes a reading's one segment, here and now, and completes it.
Result<> Worker::decompress(Reading& reading) {
  const Segment& segment = reading.segments.front();
  CKPT_TRY(const std::optional<FileHandle> handle, files_.open({WorkerFiles::Kind::sparse, segment.file}));
  if (!handle) return fail(Errc::internal, "a compressed file is no longer open");
  CKPT_TRY(Decompressor * decompressor, decompressor_at(segment));
  const std::uint64_t read_before = decompressor->read_bytes();
  const std::span<std::byte> room(reading.buffer.data(), static_cast<std::size_t>(segment.end - segment.begin));
  std::size_t got = 0;
  while (got < room.size()) {
    if (shared_.stop.load(std::memory_order_relaxed)) return fail(Errc::interrupted, "stopped");
    const bool before =
        decompressor->position() < segment.begin;  // before the segment: its skipped bytes go where the segment will be
    const std::uint64_t gap = before ? segment.begin - decompressor->position() : room.size();
    const std::span<std::byte> out = before ? room.first(std::min<std::uint64_t>(gap, room.size())) : room.subspan(got);
    CKPT_TRY(const std::size_t bytes, decompressor->read(io_, *handle, out));
    if (bytes < out.size()) {
      const std::string path = files_.source_path(segment.file);
      return fail(with_file({.code = Errc::corrupt, .message = path + ": compressed data ends inside a tensor"}, path,
                            segment.compressed->stored.begin));
    }
    if (!before) got += bytes;
  }
  report_.read_bytes += decompressor->read_bytes() - read_before;
  reading.open_segments = 0;
  return complete_read(reading);
}

/// The stream positioned at or before a segment, else a new one at its beginning.
Result<Decompressor*> Worker::decompressor_at(const Segment& segment) {
  const std::string path = files_.source_path(segment.file);
  auto found = std::find_if(decompressors_.begin(), decompressors_.end(), [&](const Decompressor& decompressor) {
    return decompressor.compressed() == *segment.compressed && decompressor.path() == path;
  });
  if (found == decompressors_.end()) {
    std::uint64_t held = Decompressor::kMostBytes;
    for (const Decompressor& decompressor : decompressors_) held += decompressor.memory_bytes();
    for (; held > kDecodeBytes && !decompressors_.empty(); decompressors_.pop_back())
      held -= decompressors_.back().memory_bytes();
    CKPT_TRY(Decompressor decompressor, Decompressor::make(*segment.compressed, path));
    decompressors_.push_front(std::move(decompressor));
    return &decompressors_.front();
  }
  decompressors_.splice(decompressors_.begin(), decompressors_, found);
  if (found->position() > segment.begin) found->restart();
  return &*found;
}

Result<bool> Worker::submit_some() {
  bool submitted = false;
  while (!queue_.empty() && in_flight_ < io_.queue_depth()) {
    Waiting& next = queue_.front();
    CKPT_TRY(const std::optional<FileHandle> handle, files_.open(next.file));
    if (!handle) break;  // once one of those in flight has ended
    next.request.file = *handle;
    CKPT_CHECK(io_.submit(next.request));
    files_.begin_request(next.file);
    queue_.pop_front();
    ++in_flight_;
    submitted = true;
  }
  return submitted;
}

/// Takes one completion, if there is one: what it lets begin is submitted before the next is hashed, and the disk does not
/// wait for the processor.
Result<> Worker::reap(bool wait) {
  Completion completion;
  CKPT_TRY(const std::size_t count, io_.reap({&completion, 1}, wait));
  if (count == 0) return {};
  --in_flight_;
  if ((completion.tag & kReadTag) != 0) {
    const auto& part = *reinterpret_cast<Reading::Part*>(completion.tag & ~kReadTag);
    Reading& reading = *part.reading;
    --reading.open_segments;
    files_.end_request(source_of(reading.segments[part.segment]));
    CKPT_TRY(const std::size_t bytes, std::move(completion.bytes));
    report_.read_bytes += bytes;
    CKPT_CHECK(check_length(reading.segments[part.segment], bytes));
    return reading.open_segments == 0 ? complete_read(reading) : Result<>();
  }
  Job& job = *reinterpret_cast<Job*>(completion.tag);
  files_.end_request({WorkerFiles::Kind::target, job.leaf.file});
  CKPT_CHECK(std::move(completion.bytes));
  return complete_write(job);
}

/// A read may end early only past the needed bytes; else the file is shorter than its metadata says.
Result<> Worker::check_length(const Segment& segment, std::size_t bytes) const {
  if (segment.begin + bytes >= segment.needed_end) return {};
  const std::string path = files_.source_path(segment.file);
  return fail(with_file({.code = Errc::corrupt, .message = path + ": the file ends inside a tensor"}, path,
                        segment.begin + bytes));
}

/// After a failure: waits for everything in flight, so that no buffer is freed while the kernel uses it. If that is
/// impossible (a broken ring) these buffers are never reused.
void Worker::drain() {
  std::array<Completion, 16> done;
  while (in_flight_ > 0) {
    const auto count = io_.reap(done, true);
    if (!count || *count == 0) break;
    in_flight_ -= *count;
  }
  if (in_flight_ == 0) return;
  for (Job& job : jobs_) job.buffer.leave_to_kernel();
  for (Reading& reading : readings_) reading.buffer.leave_to_kernel();
}

Result<> Worker::complete_read(Reading& reading) {
  const Reading::Client first = reading.clients.front();
  CKPT_CHECK(check_leaves(reading));
  for (const Reading::Client& client : reading.clients) CKPT_CHECK(check_sums(*client.job, *client.fetch, reading));
  for (std::size_t i = 1; i < reading.clients.size(); ++i)
    CKPT_CHECK(serve(*reading.clients[i].job, *reading.clients[i].fetch, reading));
  reading.clients.clear();
  if (first.job->pass_through) {
    Job& job = *first.job;
    job.buffer = std::move(reading.buffer);
    job.data = job.buffer.data() + (first.fetch->uses[0].copy.source_offset - reading.segments[0].begin);
    readings_.remove_if([&](const Reading& r) { return &r == &reading; });
    --job.open_fetches;
    return complete_leaf(job);
  }
  CKPT_CHECK(serve(*first.job, *first.fetch, reading));
  if (!shared_.plan.shares_reads()) readings_.remove_if([&](const Reading& r) { return &r == &reading; });
  return {};
}

/// A fetch that reuses another's data may need bytes of entries that the other did not.
Result<> Worker::check_sums(Job& job, const Fetch& fetch, const Reading& reading) {
  if (shared_.crcs == nullptr) return {};
  std::vector<Segment> segments;
  for (const Segment& segment : fetch.segments) segments.push_back(*reading.covering(segment));
  return check_crcs(fetch, segments, reading.buffer.data(), *shared_.crcs, job.done.crc_checked,
                    [this](const Discrepancy& wrong) { return found(wrong); });
}

/// All bytes read count, also those that no copy needs.
Result<> Worker::check_leaves(const Reading& reading) {
  if (shared_.leaves == nullptr) return {};
  for (const Segment& segment : reading.segments) {
    if (segment.compressed) continue;
    shared_.leaves->take(segment.file, {segment.begin, segment.end}, reading.buffer.data() + segment.buffer_offset);
  }
  const auto wrong = shared_.leaves->wrong();
  if (!wrong) return {};
  return fail(as_error(*wrong, shared_.plan.source(), shared_.source_root));
}

/// A reading, in flight or kept, that holds all that a fetch wants.
Reading* Worker::find_reading(const Job& job, const Fetch& fetch) {
  if (!shared_.plan.shares_reads() || job.pass_through) return nullptr;
  const auto found =
      std::find_if(readings_.begin(), readings_.end(), [&](const Reading& reading) { return reading.covers(fetch); });
  return found == readings_.end() ? nullptr : &*found;
}

/// Executes a fetch's copies; the last one completes the leaf, and the job may be gone then.
Result<> Worker::serve(Job& job, const Fetch& fetch, const Reading& reading) {
  const bool checks = &fetch >= job.fetches.data() + job.first_check;
  for (const Fetch::Use& use : fetch.uses) {
    const Segment& segment = *reading.covering(fetch.segments[use.segment]);
    if (checks) {
      CKPT_CHECK(check(job, use.copy, reading.buffer.data() + segment.buffer_offset, segment.begin));
      continue;
    }
    carry_out(use.copy, reading.buffer.data() + segment.buffer_offset, segment.begin, job.data, job.done.casts);
  }
  --job.open_fetches;
  if (job.open_fetches == 0 && job.next_fetch == job.fetches.size()) return complete_leaf(job);
  return {};
}

/// Compares the bytes that a check reads with the leaf.
Result<> Worker::check(const Job& job, const Copy& copy, const std::byte* source, std::uint64_t source_begin) {
  const Mismatch mismatch = compare(copy, source, source_begin, job.data);
  report_.compared_bytes += compared_bytes(copy);
  if (mismatch.elements == 0) return {};
  // The weight may have been cast since it was rounded, from a 16-bit type.
  const bool may_be_cast = copy.of_twin && is_castable(copy.held) && is_castable(copy.to);
  for (const Dtype via : {Dtype::bf16, Dtype::f16})
    if (may_be_cast && compare(copy, source, source_begin, job.data, via).elements == 0) return {};
  return found({.kind = Discrepancy::Kind::values,
                .file = copy.source_file,
                .offset = mismatch.source_offset,
                .tensor = copy.tensor,
                .leaf = shared_.plan.first_leaf(job.leaf.file) + job.leaf.leaf,
                .leaf_offset = mismatch.target_offset,
                .elements = mismatch.elements});
}

/// Reports a finding; without a listener it is a failure.
Result<> Worker::found(const Discrepancy& discrepancy) const {
  if (shared_.found) return shared_.found(discrepancy);
  return fail(as_error(discrepancy, shared_.plan.source(), shared_.source_root));
}

Result<> Worker::complete_leaf(Job& job) {
  const std::span<std::byte> bytes(job.data, static_cast<std::size_t>(job.leaf.bytes));
  if (shared_.late != nullptr) shared_.late->take(job.leaf.file, job.leaf.leaf, bytes);
  if (!job.hashed) job.done.hash = hash128(bytes);
  CKPT_CHECK(shared_.finished(job.position, job.done.hash, bytes));
  if (shared_.target_root.empty()) return complete_write(job);
  if (shared_.late != nullptr) shared_.late->fill(job.leaf.file, job.leaf.leaf, bytes);
  return queue_write(job);
}

Result<> Worker::queue_write(Job& job) {
  const std::uint64_t padded = round_up(job.leaf.bytes, kAlignment);
  std::memset(job.data + job.leaf.bytes, 0, static_cast<std::size_t>(padded - job.leaf.bytes));
  // Writes go before the reads that wait: they free a buffer.
  queue_.push_front({.file = {WorkerFiles::Kind::target, job.leaf.file},
                     .request = {.op = Request::Op::write,
                                 .offset = job.leaf.leaf * kLeafBytes,
                                 .data = job.data,
                                 .bytes = static_cast<std::size_t>(padded),
                                 .tag = reinterpret_cast<std::uintptr_t>(&job)}});
  return {};
}

/// The leaf's bytes are in the file (or only hashed): lets its buffer go.
Result<> Worker::complete_write(Job& job) {
  if (!shared_.target_root.empty()) {
    report_.written_bytes += job.leaf.bytes;
    if (job.leaf.leaf + 1 == shared_.plan.targets()[job.leaf.file].leaf_count()) files_.take_tail(job.leaf.file);
    job.done.reader = shared_.reader;
    CKPT_CHECK(recorder_.finished(shared_.plan.first_leaf(job.leaf.file) + job.leaf.leaf, job.done));
  }
  report_.casts += job.done.casts;
  report_.crc_checked += job.done.crc_checked;
  shared_.done_bytes.fetch_add(job.leaf.bytes, std::memory_order_relaxed);
  jobs_.remove_if([&](const Job& j) { return &j == &job; });
  return {};
}

}  // namespace

Result<WorkerReport> work_leaves(RunShared& shared, Io& io) {
  return Worker(shared, io).run();
}

}  // namespace ckpt
