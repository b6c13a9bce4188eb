#include "support/memory_tree.hpp"

#include <algorithm>
#include <utility>

namespace ckpt {
namespace {

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") parts.push_back(part);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

/// splitmix64: one well-mixed number per call.
std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The bytes on the disk of a file whose last changes were not synced.
std::string surviving_bytes(const MemoryNode& node, std::uint64_t& coin) {
  constexpr std::size_t kBlock = 4096;
  const bool new_size = (mix(coin) & 1) != 0;
  std::string bytes((new_size ? node.bytes : node.durable_bytes).size(), '\0');
  for (std::size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    const std::string& from = (mix(coin) & 1) != 0 ? node.bytes : node.durable_bytes;
    const std::size_t end = std::min({begin + kBlock, bytes.size(), from.size()});
    if (begin < end) std::copy_n(from.data() + begin, end - begin, bytes.data() + begin);
  }
  return bytes;
}

void make_durable(const NameChange& change) {
  if (change.node) {
    change.directory->durable_entries[change.name] = change.node;
  } else {
    change.directory->durable_entries.erase(change.name);
  }
}

/// Every node below `root`, with its path; by the names of the running system, or by the durable ones.
template <class Visit>
void walk(const MemoryNodePtr& root, bool durable, Visit visit) {
  std::vector<std::pair<std::string, MemoryNodePtr>> pending{{"", root}};
  while (!pending.empty()) {
    const auto [path, node] = std::move(pending.back());
    pending.pop_back();
    for (const auto& [name, child] : durable ? node->durable_entries : node->entries) {
      const std::string below = path + "/" + name;
      visit(below, child);
      if (child->kind == FileInfo::Kind::directory) pending.emplace_back(below, child);
    }
  }
}

}  // namespace

FileInfo memory_info(const MemoryNode& node) {
  return {.kind = node.kind,
          .bytes = node.bytes.size(),
          .mtime_ns = node.mtime_ns,
          .device = 1,
          .inode = node.inode,
          .permissions = 0777};
}

MemoryDisk::State::State(Options chosen) : options(chosen), root(make(FileInfo::Kind::directory)) {}

MemoryNodePtr MemoryDisk::State::make(FileInfo::Kind kind) {
  auto node = std::make_shared<MemoryNode>();
  node->kind = kind;
  node->inode = next_inode++;
  node->mtime_ns = ++clock_ns;
  return node;
}

MemoryNodePtr MemoryDisk::State::find(std::string_view path) const {
  MemoryNodePtr node = root;
  for (const std::string_view part : parts_of(path)) {
    const auto entry = node->entries.find(std::string(part));
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

std::pair<MemoryNodePtr, std::string> MemoryDisk::State::place(std::string_view path) const {
  const std::vector<std::string_view> parts = parts_of(path);
  if (parts.empty()) return {};
  MemoryNodePtr directory = find(parent_path(path));
  if (directory && directory->kind != FileInfo::Kind::directory) directory.reset();
  return {std::move(directory), std::string(parts.back())};
}

void MemoryDisk::State::change(std::vector<NameChange> changes) {
  for (const NameChange& change : changes) {
    if (change.node) {
      change.directory->entries[change.name] = change.node;
    } else {
      change.directory->entries.erase(change.name);
    }
    change.directory->mtime_ns = ++clock_ns;
  }
  unsynced_names.push_back(std::move(changes));
}

void MemoryDisk::State::sync_names(const MemoryNodePtr& directory) {
  directory->durable_entries = directory->entries;
  for (auto& operation : unsynced_names) {
    const bool touched = std::any_of(operation.begin(), operation.end(),
                                     [&](const NameChange& change) { return change.directory == directory; });
    if (options.whole_renames && touched) {
      for (const NameChange& change : operation) {
        if (change.directory != directory) make_durable(change);
      }
      operation.clear();
      continue;
    }
    operation.erase(std::remove_if(operation.begin(), operation.end(),
                                   [&](const NameChange& change) { return change.directory == directory; }),
                    operation.end());
  }
  unsynced_names.erase(
      std::remove_if(unsynced_names.begin(), unsynced_names.end(), [](const auto& changes) { return changes.empty(); }),
      unsynced_names.end());
}

std::uint64_t MemoryDisk::State::names_of(const MemoryNode& node) const {
  std::uint64_t count = 0;
  walk(root, false, [&](const std::string&, const MemoryNodePtr& each) { count += each.get() == &node ? 1U : 0U; });
  return count;
}

std::uint64_t MemoryDisk::State::used_bytes() const {
  std::uint64_t sum = 0;
  walk(root, false, [&](const std::string&, const MemoryNodePtr& node) { sum += node->bytes.size(); });
  return sum;
}

std::uint64_t MemoryDisk::State::free_bytes() const {
  const std::uint64_t used = used_bytes();
  return options.capacity_bytes - std::min(used, options.capacity_bytes);
}

MemoryDisk::MemoryDisk() : MemoryDisk(Options{}) {}
MemoryDisk::MemoryDisk(Options options) : state_(std::make_shared<State>(options)) {}
MemoryDisk::~MemoryDisk() = default;

void MemoryDisk::power_off() {
  power_off(PowerLoss{});
}

void MemoryDisk::power_off(PowerLoss spared) {
  const std::lock_guard held(state_->mutex);
  ++state_->boots;
  const std::size_t kept = std::min(spared.name_operations, state_->unsynced_names.size());
  for (std::size_t i = 0; i < kept; ++i) {
    for (const NameChange& change : state_->unsynced_names[i]) make_durable(change);
  }
  state_->unsynced_names.clear();
  std::uint64_t coin = spared.block_seed;
  const auto restart = [&](MemoryNode& node) {
    // A time that no reader has seen with the lost contents, as when a journal restores an older one.
    if (node.entries != node.durable_entries || node.bytes != node.durable_bytes) node.mtime_ns = ++state_->clock_ns;
    node.entries = node.durable_entries;
    if (node.bytes != node.durable_bytes) {
      node.durable_bytes = spared.block_seed == 0 ? node.durable_bytes : surviving_bytes(node, coin);
      node.bytes = node.durable_bytes;
    }
    node.shared_locks = 0;
    node.exclusive_lock = false;
    node.opens = 0;
  };
  std::vector<MemoryNodePtr> nodes{state_->root};
  walk(state_->root, true, [&](const std::string&, const MemoryNodePtr& node) { nodes.push_back(node); });
  for (const MemoryNodePtr& node : nodes) restart(*node);
}

std::vector<std::string> MemoryDisk::tree() const {
  const std::lock_guard held(state_->mutex);
  std::vector<std::string> paths;
  walk(state_->root, false, [&](const std::string& path, const MemoryNodePtr& node) {
    paths.push_back(node->kind == FileInfo::Kind::directory ? path + "/" : path);
  });
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string MemoryDisk::text(const std::string& path) const {
  const std::lock_guard held(state_->mutex);
  const MemoryNodePtr node = state_->find(path);
  return node && node->kind == FileInfo::Kind::file ? node->bytes : "(none)";
}

void MemoryDisk::link(const std::string& path, const std::string& other) {
  const std::lock_guard held(state_->mutex);
  const auto [directory, name] = state_->place(other);
  directory->entries[name] = directory->durable_entries[name] = state_->find(path);
}

void MemoryDisk::make_unlike_new(const std::string& path) {
  const std::lock_guard held(state_->mutex);
  state_->find(path)->unlike_new = true;
}

std::uint64_t MemoryDisk::inode(const std::string& path) const {
  const std::lock_guard held(state_->mutex);
  const MemoryNodePtr node = state_->find(path);
  return node ? node->inode : 0;
}

void MemoryDisk::at_once(const std::function<void()>& change) {
  const std::lock_guard held(state_->mutex);
  change();
}

void MemoryDisk::put(const std::string& path, std::string bytes) {
  const std::lock_guard held(state_->mutex);
  MemoryNodePtr directory = state_->root;
  const std::vector<std::string_view> parts = parts_of(path);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name(parts[i]);
    const bool last = i + 1 == parts.size();
    MemoryNodePtr& entry = directory->entries[name];
    if (!entry) entry = state_->make(last ? FileInfo::Kind::file : FileInfo::Kind::directory);
    directory->durable_entries[name] = entry;
    directory = entry;
  }
  directory->bytes = bytes;
  directory->mtime_ns = ++state_->clock_ns;
  directory->durable_bytes = std::move(bytes);
}

}  // namespace ckpt
