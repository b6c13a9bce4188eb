#include "engine/store/inbox.hpp"

#include <span>
#include <utility>

#include "engine/store/held_store.hpp"
#include "engine/store/holds_store.hpp"
#include "format/hash.hpp"
#include "format/model/scalar_json.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostBytes = 64 << 10;
constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kTemporary = ".tmp";
constexpr unsigned kDeepestRun = 4;  // depth of a run below its store, in directories

std::string inbox_of(std::string_view store) {
  return join_path(join_path(store, kStoreDirectory), kInboxDirectory);
}

Result<> write_note(Io& io, const std::string& path, std::string_view text) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new}));
  auto written = io.write_at(file, 0, std::as_bytes(std::span(text)));
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

/// Under a temporary name first, so that half a note is never read. A leftover is replaced; a reader of the inbox may
/// remove a file before it has its name.
Result<> put_note(Io& io, const std::string& path, std::string_view text) {
  const std::string temporary = path + std::string(kTemporary);
  auto written = write_note(io, temporary, text);
  if (!written && written.error().code == Errc::target_exists && io.unlink(temporary))
    written = write_note(io, temporary, text);
  CKPT_CHECK(std::move(written));
  auto named = io.rename(temporary, path, RenameMode::replace);
  if (named || named.error().code != Errc::not_found) return named;
  CKPT_CHECK(write_note(io, temporary, text));
  return io.rename(temporary, path, RenameMode::replace);
}

/// Names are bytes: in hexadecimal digits they are safe in any JSON.
std::string bytes_of(const json::Value& root, std::string_view key) {
  const json::Value* value = root.find(key);
  if (value == nullptr || value->text() == nullptr) return {};
  return universal::read_hex(*value->text()).value_or(std::string());
}

/// A relative path that stays below its start; "." if allowed.
bool is_below(std::string_view path, bool allow_dot) {
  if (path == ".") return allow_dot;
  for (;;) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string note_text(std::string_view run, std::string_view name) {
  std::string text;
  json::Writer(text)
      .begin_object()
      .member("schema", "ckpt.inbox/1")
      .member("run", universal::hex_of(run))
      .member("name", universal::hex_of(name))
      .end_object();
  return text + '\n';
}

}  // namespace

void drop_note(Io& io, std::string_view run_directory, std::string_view name, std::string_view word) {
  std::string store = join_path(run_directory, "");
  std::string run = ".";
  for (unsigned depth = 0; depth <= kDeepestRun && is_below(run, true); ++depth) {
    const std::string inbox = inbox_of(store);
    Hasher hasher;
    for (const std::string_view part : {std::string_view(run), name, word}) {
      hasher.update_u64(part.size());
      hasher.update(part);
    }
    const std::string path = join_path(inbox, hasher.digest().hex() + std::string(kSuffix));
    const auto there = holds_store(io, store);
    if (!there) return;
    if (*there) {
      const auto held = hold_store(io, store);
      if (!held) return;
      auto done = put_note(io, path, note_text(run, name));
      if (!done && done.error().code == Errc::not_found && io.make_dir(inbox))
        done = put_note(io, path, note_text(run, name));
      if (done || done.error().code != Errc::not_found) return;
    }
    run = run == "." ? base_name(store) : join_path(base_name(store), run);
    store = parent_path(store);
  }
}

std::vector<InboxNote> read_inbox(Io& io, std::string_view store) {
  std::vector<InboxNote> notes;
  const std::string inbox = inbox_of(store);
  const auto entries = io.list(inbox);
  if (!entries) return notes;
  for (const DirEntry& entry : *entries) {
    const std::string_view named(entry.name.data(),
                                 entry.name.size() - (entry.name.ends_with(kTemporary) ? kTemporary.size() : 0));
    if (!named.ends_with(kSuffix)) continue;
    InboxNote note{.file = join_path(inbox, entry.name)};
    const auto text = read_small_file(io, note.file, kMostBytes);
    if (!text) continue;
    const auto root = json::parse(*text);
    if (root) {
      note.run = bytes_of(*root, "run");
      note.name = bytes_of(*root, "name");
    }
    const bool plain = note.name.find('/') == std::string::npos;
    if (!is_below(note.run, true) || !is_below(note.name, false) || !plain) note.run = note.name = std::string();
    notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace ckpt
