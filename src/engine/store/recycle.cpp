#include "engine/store/recycle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "engine/io/stat_if_present.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/checked.hpp"
#include "format/hash.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kRecycleDirectory = "recycle";
constexpr std::string_view kDataSuffix = ".safetensors";
constexpr std::size_t kMostTaken = 1U << 16;     // files that one save checks
constexpr std::uint64_t kMostTimesTooLarge = 2;  // truncating a file takes as long as unlinking that part

bool by_size(const RecycledFile& a, const RecycledFile& b) {
  return std::tuple(a.space(), a.set, a.inode) < std::tuple(b.space(), b.set, b.inode);
}

}  // namespace

std::string recycle_path(std::string_view store) {
  return join_path(join_path(store, kStoreDirectory), kRecycleDirectory);
}

Result<std::optional<std::string>> recycle_above(Io& io, const std::string& run_directory) {
  CKPT_TRY(const std::string store, store_above(io, run_directory));
  return store.empty() ? std::optional<std::string>() : std::optional(recycle_path(store));
}

std::uint64_t RecycledFile::space() const {
  return round_up(std::min(bytes, UINT64_MAX - kAlignment), kAlignment);
}

std::string RecycledFile::name() const {
  return fmt::format("{:013}-{:016x}-{}.{}", set.retired_ms, set.order, inode, bytes);
}

std::optional<RecycledFile> RecycledFile::parse(std::string_view name) {
  std::array<std::string_view, 4> parts{};
  std::string_view rest = name;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 == parts.size() ? rest.size() : rest.find(i + 2 == parts.size() ? '.' : '-');
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  const auto retired = parse_number<std::uint64_t>(parts[0]);
  const auto order = parse_number<std::uint64_t>(parts[1], 16);
  const auto inode = parse_number<std::uint64_t>(parts[2]);
  const auto bytes = parse_number<std::uint64_t>(parts[3]);
  if (!retired || !order || !inode || !bytes) return std::nullopt;
  RecycledFile out{.set = {.retired_ms = *retired, .order = *order}, .inode = *inode, .bytes = *bytes};
  if (out.name() != name) return std::nullopt;
  return out;
}

Result<std::vector<RecycledFile>> list_recycled(Io& io, const std::string& directory) {
  std::vector<RecycledFile> out;
  const auto entries = io.list(directory);
  if (!entries && entries.error().code == Errc::not_found) return out;
  CKPT_CHECK(entries);
  for (const DirEntry& entry : *entries) {
    if (entry.is_link || entry.kind != FileInfo::Kind::file) continue;
    if (auto file = RecycledFile::parse(entry.name)) out.push_back(*std::move(file));
  }
  return out;
}

Result<std::uint64_t> retire_files(Io& io, const std::string& store, const RecycledSet& set,
                                   const std::vector<std::string>& folders) {
  const std::string directory = recycle_path(store);
  CKPT_CHECK(make_directory(io, directory));
  std::uint64_t moved = 0;
  for (const std::string& folder : folders) {
    const auto entries = io.list(folder);
    if (!entries && entries.error().code == Errc::not_found) continue;
    CKPT_CHECK(entries);
    for (const DirEntry& entry : *entries) {
      if (entry.is_link || entry.kind != FileInfo::Kind::file || !entry.name.ends_with(kDataSuffix)) continue;
      const std::string from = join_path(folder, entry.name);
      CKPT_TRY(const FileInfo info, io.stat(from));
      if (info.bytes == 0) continue;
      const RecycledFile file{.set = set, .inode = info.inode, .bytes = info.bytes};
      CKPT_CHECK(io.rename(from, join_path(directory, file.name()), RenameMode::no_replace));
      moved += info.bytes;
    }
    // The new names first: a file with both names after a crash is moved again; one without a name would be lost
    // space.
    CKPT_CHECK(io.sync_dir(directory));
    CKPT_CHECK(io.sync_dir(folder));
  }
  return moved;
}

RecycledFiles RecycledFiles::above(Io& io, const std::string& run_directory) {
  RecycledFiles out(io);
  const auto directory = recycle_above(io, run_directory);
  if (!directory || !*directory) return out;
  auto files = list_recycled(io, **directory);
  if (!files || files->empty() || !io.recycles(**directory)) return out;
  if (files->size() > kMostTaken) files->resize(kMostTaken);
  std::ranges::sort(*files, by_size);
  out.directory_ = **directory;
  out.files_ = *std::move(files);
  return out;
}

std::vector<RecycledFile>::iterator RecycledFiles::choose(const std::string& path, std::uint64_t bytes) {
  const auto large = std::ranges::lower_bound(files_, bytes, {}, &RecycledFile::space);
  auto chosen = large;
  if (large == files_.end() || large->space() / kMostTimesTooLarge > bytes) {
    if (large == files_.begin()) return files_.end();
    chosen = large - 1;
  }
  // Of equal ones any: ranks that take at the same time begin with different ones.
  const auto first = std::ranges::lower_bound(files_, chosen->space(), {}, &RecycledFile::space);
  const auto last = std::ranges::upper_bound(files_, chosen->space(), {}, &RecycledFile::space);
  return first + static_cast<std::ptrdiff_t>(hash64(path) % static_cast<std::uint64_t>(last - first));
}

bool RecycledFiles::take(const std::string& path, std::uint64_t bytes) {
  if (bytes == 0) return false;
  const std::string unchecked = path + std::string(kUncheckedSuffix);
  for (;;) {
    const auto chosen = choose(path, bytes);
    if (chosen == files_.end()) return false;
    const std::string from = join_path(directory_, chosen->name());
    files_.erase(chosen);
    auto taken = io_->rename(from, unchecked, RenameMode::no_replace);
    const bool lost = !taken && taken.error().code == Errc::not_found;  // to another rank, or a prune
    if (taken) taken = prepare(unchecked, path, bytes);
    if (taken) return true;
    static_cast<void>(io_->unlink(unchecked));
    if (!lost) return false;
  }
}

Result<> RecycledFiles::prepare(const std::string& unchecked, const std::string& path, std::uint64_t bytes) {
  CKPT_TRY(const FileHandle file, io_->open(unchecked, {.mode = OpenOptions::Mode::write_recycled}));
  const auto fit = [&]() -> Result<> {
    CKPT_TRY(const FileInfo info, io_->info(file));
    if (info.bytes > bytes) CKPT_CHECK(io_->truncate(file, bytes));
    return io_->allocate(file, bytes);
  };
  auto fitted = fit();
  auto closed = io_->close(file);
  CKPT_CHECK(std::move(fitted));
  CKPT_CHECK(std::move(closed));
  return io_->rename(unchecked, path, RenameMode::no_replace);
}

bool RecycledFiles::give_up() {
  bool any = false;
  for (const RecycledFile& file : files_) any = io_->unlink(join_path(directory_, file.name())).has_value() || any;
  files_.clear();
  return any;
}

std::uint64_t RecycledFiles::bytes() const {
  std::uint64_t sum = 0;
  for (const RecycledFile& file : files_) sum += std::min(file.bytes, UINT64_MAX - sum);
  return sum;
}

Result<> sync_recycling(Io& io, const std::string& run_directory) {
  CKPT_TRY(const auto directory, recycle_above(io, run_directory));
  if (!directory) return {};
  CKPT_TRY(const auto there, stat_if_present(io, *directory));
  return there ? io.sync_dir(*directory) : Result<>();
}

}  // namespace ckpt
