#include "engine/run/crc_joiner.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "format/hash.hpp"

namespace ckpt {

std::size_t CrcJoiner::KeyHash::operator()(const Key& key) const noexcept {
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;
  std::uint64_t h = key.begin * kMix ^ key.file;
  h = (h ^ (h >> 29)) * kMix ^ key.end;
  if (key.stream) h = (h ^ (h >> 31)) * kMix ^ *key.stream;
  return static_cast<std::size_t>(h ^ (h >> 32));
}

bool CrcJoiner::Followed::is_done() const {
  return pieces.size() == 1 && pieces[0].settled && pieces[0].begin == entry.crc.begin &&
         pieces[0].end == entry.crc.end;
}

std::uint64_t CrcJoiner::Open::missing_bytes() const {
  std::uint64_t bytes = 0;
  for (const Extent part : missing) bytes += part.size();
  return bytes;
}

/// Whether one more entry may be tracked. Finished ones are kept only so that bytes read twice count once.
bool CrcJoiner::make_room() {
  if (entries_.size() < kMostEntries && pieces_ < kMostPieces) return true;
  pieces_ -= std::erase_if(entries_, [](const auto& item) { return item.second.is_done(); });
  return entries_.size() < kMostEntries && pieces_ < kMostPieces;
}

std::vector<Extent> CrcJoiner::take(const Entry& entry, Extent bytes) {
  const std::lock_guard lock(mutex_);
  auto at = entries_.find(key_of(entry));
  if (at == entries_.end()) {
    const bool whole = bytes.begin == entry.crc.begin && bytes.end == entry.crc.end;
    if (!make_room()) {
      if (whole) return {bytes};  // needs no following
      ++not_followed_;
      return {};
    }
    at = entries_.emplace(key_of(entry), Followed{.entry = entry}).first;
  }
  std::vector<Extent> out;
  std::vector<Piece> merged;
  std::uint64_t next = bytes.begin;  // everything before it is taken
  const auto take_until = [&](std::uint64_t end) {
    if (next >= end) return;
    out.push_back({next, end});
    merged.push_back({.begin = next, .end = end});
  };
  for (const Piece& piece : at->second.pieces) {
    if (piece.begin >= next) take_until(std::min(piece.begin, bytes.end));
    merged.push_back(piece);
    next = std::max(next, piece.end);
  }
  take_until(bytes.end);
  pieces_ += out.size();
  at->second.pieces = std::move(merged);
  return out;
}

std::optional<CrcJoiner::Verdict> CrcJoiner::add(const Entry& entry, Extent bytes, std::uint32_t value) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(key_of(entry));
  if (at == entries_.end()) return Verdict{value == entry.crc.value, value};  // read completely, and not tracked
  std::vector<Piece>& pieces = at->second.pieces;
  auto piece =
      std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.begin < bytes.begin; });
  piece->value = value;
  piece->settled = true;
  const auto join = [&](std::vector<Piece>::iterator first) {
    const auto second = first + 1;
    first->value = crc32_combine(first->value, second->value, second->end - second->begin);
    first->end = second->end;
    pieces.erase(second);
    --pieces_;
  };
  if (piece + 1 != pieces.end() && (piece + 1)->settled && (piece + 1)->begin == piece->end) join(piece);
  if (piece != pieces.begin() && (piece - 1)->settled && (piece - 1)->end == piece->begin) join(piece - 1);
  if (!at->second.is_done()) return std::nullopt;
  return Verdict{pieces.front().value == entry.crc.value, pieces.front().value};
}

void CrcJoiner::skip(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (entries_.contains(key_of(entry)) || !make_room()) return;
  const Piece whole{.begin = entry.crc.begin, .end = entry.crc.end, .value = entry.crc.value, .settled = true};
  entries_.emplace(key_of(entry), Followed{.entry = entry, .pieces = {whole}});
  ++pieces_;
}

std::vector<CrcJoiner::Open> CrcJoiner::open() const {
  const std::lock_guard lock(mutex_);
  std::vector<Open> out;
  for (const auto& [key, followed] : entries_) {
    if (followed.is_done()) continue;
    Open& open = out.emplace_back(Open{.entry = followed.entry});
    std::uint64_t next = key.begin;
    for (const Piece& piece : followed.pieces) {
      if (piece.begin > next) open.missing.push_back({next, piece.begin});
      next = piece.end;
    }
    if (next < key.end) open.missing.push_back({next, key.end});
  }
  std::sort(out.begin(), out.end(), [](const Open& a, const Open& b) {
    return std::tuple(a.entry.file, a.entry.stream, a.entry.crc.begin, a.entry.crc.end) <
           std::tuple(b.entry.file, b.entry.stream, b.entry.crc.begin, b.entry.crc.end);
  });
  return out;
}

std::uint64_t CrcJoiner::unread() const {
  const std::lock_guard lock(mutex_);
  const auto open =
      std::count_if(entries_.begin(), entries_.end(), [](const auto& item) { return !item.second.is_done(); });
  return static_cast<std::uint64_t>(open) + not_followed_;
}

std::string CrcJoiner::unfinished() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> words{not_followed_};
  for (const auto& [key, followed] : entries_) {
    if (followed.is_done()) continue;
    const Entry& entry = followed.entry;
    words.insert(words.end(), {entry.file, entry.crc.begin, entry.crc.end, entry.crc.value, entry.tensor,
                               entry.stream ? *entry.stream + 1 : 0, std::uint64_t{followed.pieces.size()}});
    for (const Piece& piece : followed.pieces) words.insert(words.end(), {piece.begin, piece.end, piece.value});
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint64_t)};
}

void CrcJoiner::absorb(std::string_view unfinished, const std::function<void(const Entry&, const Verdict&)>& complete) {
  std::vector<std::uint64_t> words(unfinished.size() / sizeof(std::uint64_t));
  if (words.empty()) return;
  std::memcpy(words.data(), unfinished.data(), words.size() * sizeof(std::uint64_t));
  {
    const std::lock_guard lock(mutex_);
    not_followed_ += words[0];
  }
  constexpr std::size_t kEntryWords = 7;
  constexpr std::size_t kPieceWords = 3;
  for (std::size_t at = 1; at + kEntryWords <= words.size();) {
    const std::uint64_t* head = &words[at];
    Entry entry{.file = static_cast<std::uint32_t>(head[0]),
                .crc = {.begin = head[1], .end = head[2], .value = static_cast<std::uint32_t>(head[3])},
                .tensor = static_cast<std::uint32_t>(head[4])};
    if (head[5] != 0) entry.stream = head[5] - 1;
    at += kEntryWords;
    for (std::uint64_t left = head[6]; left > 0 && at + kPieceWords <= words.size(); --left, at += kPieceWords) {
      const Extent piece{words[at], words[at + 1]};
      const std::vector<Extent> parts = take(entry, piece);
      // A partial overlap cannot be separated: the entry stays open, and counts as unread.
      if (parts.size() != 1 || !(parts[0] == piece)) continue;
      if (const auto verdict = add(entry, piece, static_cast<std::uint32_t>(words[at + 2]))) complete(entry, *verdict);
    }
  }
}

}  // namespace ckpt
