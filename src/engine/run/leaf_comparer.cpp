#include "engine/run/leaf_comparer.hpp"

#include <algorithm>
#include <span>

#include "engine/run/checks.hpp"
#include "engine/run/plan.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostOpenLeaves = 4096;  // of which some bytes were read and others not

}  // namespace

/// A leaf that is read in pieces. Its mutex is taken before the comparer's.
struct LeafComparer::Open {
  Open(std::uint64_t leaf_number, Extent leaf_bytes, std::uint64_t ticket)
      : number(leaf_number), end(leaf_bytes.end), opened(ticket), next(leaf_bytes.begin) {}

  const std::uint64_t number;
  const std::uint64_t end;
  const std::uint64_t opened;
  std::mutex mutex;
  Hasher hasher;              // guarded by mutex; of the bytes before `next`
  std::uint64_t next;         // guarded by mutex
  Pieces kept;                // guarded by the comparer's mutex
  std::uint64_t holding = 0;  // guarded by the comparer's mutex; the ticket, if it keeps pieces
  bool closed = false;        // guarded by the comparer's mutex; settled or dropped: no pieces are kept
};

LeafComparer::LeafComparer(const Map& map, std::uint64_t most_kept_bytes)
    : map_(map),
      most_kept_bytes_(most_kept_bytes),
      compared_(map.hashes.leaves.size()),
      given_up_(map.hashes.leaves.size()) {}

LeafComparer::~LeafComparer() = default;

void LeafComparer::take(std::uint32_t file, Extent bytes, const std::byte* data) {
  const auto stored = map_.hashes.of(file);
  if (stored.empty()) return;
  const std::uint64_t file_bytes = map_.files[file].bytes;
  const std::uint64_t end = std::min(bytes.end, file_bytes);
  for (std::uint64_t at = bytes.begin; at < end;) {
    const std::uint64_t leaf = at / kLeafBytes;
    if (leaf >= stored.size()) return;
    const Extent whole{leaf * kLeafBytes, std::min(file_bytes, (leaf + 1) * kLeafBytes)};
    const Extent part{at, std::min(end, whole.end)};
    take_part(file, leaf, whole, part, data + (at - bytes.begin));
    at = part.end;
  }
}

void LeafComparer::take_part(std::uint32_t file, std::uint64_t leaf, Extent leaf_bytes, Extent part,
                             const std::byte* data) {
  const std::uint64_t number = map_.hashes.files[file].begin + leaf;
  if (is_compared(number)) return;
  const std::span<const std::byte> bytes(data, static_cast<std::size_t>(part.size()));
  if (part == leaf_bytes) return add(file, leaf, hash128(bytes));
  const Slot slot = slot_of(number, leaf_bytes);
  if (!slot) return;
  std::optional<Hash128> computed;
  {
    const std::lock_guard lock(slot->mutex);
    if (part.end <= slot->next) return;
    if (part.begin > slot->next) return keep(*slot, {part.begin, {bytes.begin(), bytes.end()}});
    const auto update = [&](std::uint64_t begin, std::span<const std::byte> piece) {
      if (begin + piece.size() <= slot->next) return;
      slot->hasher.update(piece.subspan(static_cast<std::size_t>(slot->next - begin)));
      slot->next = begin + piece.size();
    };
    update(part.begin, bytes);
    while (const auto kept = next_kept(*slot)) update(kept->first, kept->second);
    if (slot->next == slot->end) computed = slot->hasher.digest();
  }
  if (computed) add(file, leaf, *computed);
}

/// The leaf's record; null if dropped. If there are too many, the oldest is dropped: most likely the rest of it is not
/// read.
LeafComparer::Slot LeafComparer::slot_of(std::uint64_t number, Extent leaf_bytes) {
  Pieces dropped;  // freed when no thread waits
  const std::lock_guard lock(mutex_);
  if (const auto at = open_.find(number); at != open_.end()) return at->second;
  const auto index = static_cast<std::size_t>(number);
  if (given_up_[index] || compared_[index]) return nullptr;
  if (open_.size() >= kMostOpenLeaves) dropped = give_up(opened_.begin()->second);
  Slot slot = std::make_shared<Open>(number, leaf_bytes, ++tickets_);
  opened_.emplace(slot->opened, number);
  open_.emplace(number, slot);
  return slot;
}

/// If there is no room, the leaves that have kept pieces longest are dropped.
void LeafComparer::keep(Open& open, Piece piece) {
  const std::uint64_t bytes = piece.second.size();
  std::vector<Pieces> dropped;  // freed when no thread waits
  const std::lock_guard lock(mutex_);
  if (open.closed || bytes > most_kept_bytes_ || open.kept.contains(piece.first)) return;
  while (kept_bytes_ + bytes > most_kept_bytes_ && !holding_.empty())
    dropped.push_back(give_up(holding_.begin()->second));
  if (open.closed) return;
  if (open.kept.empty()) {
    open.holding = ++tickets_;
    holding_.emplace(open.holding, open.number);
  }
  kept_bytes_ += bytes;
  open.kept.insert(std::move(piece));
}

/// A kept piece that can be hashed now, or is no longer needed.
std::optional<LeafComparer::Piece> LeafComparer::next_kept(Open& open) {
  const std::lock_guard lock(mutex_);
  if (open.kept.empty() || open.kept.begin()->first > open.next) return std::nullopt;
  auto node = open.kept.extract(open.kept.begin());
  kept_bytes_ -= node.mapped().size();
  if (open.kept.empty()) holding_.erase(open.holding);
  return Piece{node.key(), std::move(node.mapped())};
}

/// This leaf is no longer open. Returns its kept pieces. With the mutex held, as give_up.
LeafComparer::Pieces LeafComparer::forget(std::uint64_t number) {
  const auto at = open_.find(number);
  if (at == open_.end()) return {};
  Open& open = *at->second;
  for (const auto& [begin, data] : open.kept) kept_bytes_ -= data.size();
  if (!open.kept.empty()) holding_.erase(open.holding);
  opened_.erase(open.opened);
  open.closed = true;
  Pieces kept = std::exchange(open.kept, {});
  open_.erase(at);
  return kept;
}

LeafComparer::Pieces LeafComparer::give_up(std::uint64_t number) {
  given_up_[static_cast<std::size_t>(number)] = true;
  return forget(number);
}

void LeafComparer::add(std::uint32_t file, std::uint64_t leaf, const Hash128& computed) {
  const std::uint64_t number = map_.hashes.files[file].begin + leaf;
  Pieces dropped;  // freed when no thread waits
  const std::lock_guard lock(mutex_);
  dropped = forget(number);
  if (computed == map_.hashes.leaves[static_cast<std::size_t>(number)]) {
    compared_[static_cast<std::size_t>(number)] = true;
  } else if (!wrong_) {
    wrong_ = Wrong{.file = file, .leaf = leaf, .computed = computed};
  }
}

bool LeafComparer::is_compared(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return compared_[static_cast<std::size_t>(number)];
}

std::optional<LeafComparer::Wrong> LeafComparer::wrong() const {
  const std::lock_guard lock(mutex_);
  return wrong_;
}

std::vector<bool> LeafComparer::compared() const {
  const std::lock_guard lock(mutex_);
  return compared_;
}

Error as_error(const LeafComparer::Wrong& wrong, const Map& map, const std::string& source_root) {
  const std::string path = path_of(map, wrong.file, source_root);
  const std::uint64_t begin = wrong.leaf * kLeafBytes;
  const std::uint64_t end = std::min(map.files[wrong.file].bytes, begin + kLeafBytes);
  return {.code = Errc::checksum,
          .message = path + ": xxh3 of bytes " + std::to_string(begin) + ".." + std::to_string(end - 1) +
                     ": expected " + map.hashes.of(wrong.file)[static_cast<std::size_t>(wrong.leaf)].hex() + ", got " +
                     wrong.computed.hex(),
          .file = path,
          .offset = begin};
}

}  // namespace ckpt
