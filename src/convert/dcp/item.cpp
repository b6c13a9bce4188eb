#include "convert/dcp/item.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "format/files/zip.hpp"
#include "format/hash.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt::dcp {
namespace {

// Seen in torch 2.13: data.pkl and the storage's local header end before byte 900, the directory takes 561 bytes.
constexpr std::uint64_t kHeadBytes = 1280;
constexpr std::uint64_t kTailBytes = 1024;
constexpr std::uint64_t kAskBytes = 8 << 10;      // the smallest next read if that was not enough
constexpr std::uint64_t kMaxPartBytes = 4 << 20;  // of a directory or a pickle; an item's have a few hundred
constexpr std::size_t kKeptPickles = 256;
constexpr std::uint64_t kBatchBytes = 4 << 20;  // read at once by open_items, before the gaps that are read over

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The part of an item's bytes in memory. Offsets are from the start of the item.
struct ItemBytes {
  const HeldRanges& held;
  std::uint32_t file;
  Extent item;
  std::optional<Extent>& missing;

  /// The caller has checked that the range is inside the item.
  std::optional<std::span<const std::byte>> get(std::uint64_t begin, std::uint64_t count) const {
    if (count == 0) return std::span<const std::byte>{};
    const Extent wanted{item.begin + begin, item.begin + begin + count};
    const auto bytes = held.held(file, wanted);
    if (!bytes.empty()) return bytes;
    missing = Extent{wanted.begin, std::min(item.end, std::max(wanted.end, wanted.begin + kAskBytes))};
    return std::nullopt;
  }

  tl::unexpected<Error> corrupt(std::uint64_t offset, std::string reason, Errc code = Errc::corrupt) const {
    const std::string& path = held.path(file);
    return fail(Error{.code = code,
                      .message = path + ": item at " + std::to_string(item.begin) + ": " + std::move(reason),
                      .file = path,
                      .offset = item.begin + offset});
  }
  tl::unexpected<Error> corrupt(std::uint64_t offset, const Error& cause) const {
    return corrupt(offset + cause.offset.value_or(0), cause.message, cause.code);
  }
};

Result<std::optional<zip::Tail>> read_tail(const ItemBytes& item) {
  const std::uint64_t bytes = item.item.size();
  const std::uint64_t count = std::min(bytes, kTailBytes);  // torch writes no comment behind the end record
  const auto last = item.get(bytes - count, count);
  if (!last) return std::nullopt;
  const auto tail = zip::find_tail(*last, bytes);
  if (!tail) return item.corrupt(0, tail.error());
  return *tail;
}

/// Where an entry's data begins, by its local header.
Result<std::optional<std::uint64_t>> data_begin(const ItemBytes& item, const zip::Entry& entry, const zip::Tail& tail) {
  if (entry.header_offset > tail.directory_offset ||
      tail.directory_offset - entry.header_offset < zip::kLocalHeaderBytes) {
    return item.corrupt(entry.header_offset, entry.name + ": its local header is cut short");
  }
  const auto header = item.get(entry.header_offset, zip::kLocalHeaderBytes);
  if (!header) return std::nullopt;
  const auto offset = zip::data_offset(*header, entry, tail);
  if (!offset) return item.corrupt(entry.header_offset, offset.error());
  return *offset;
}

const zip::Entry* find(const std::vector<zip::Entry>& entries, std::string_view folder, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const zip::Entry& entry) {
    const std::string_view full = entry.name;
    return full.size() == folder.size() + name.size() && full.starts_with(folder) && full.ends_with(name);
  });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

void ItemOpener::add_first_ranges(std::uint32_t file, Extent item, std::vector<Range>& out) {
  const std::uint64_t bytes = item.size();
  out.push_back({file, {item.begin, item.begin + std::min(bytes, kHeadBytes)}});
  out.push_back({file, {item.end - std::min(bytes, kTailBytes), item.end}});
}

Result<ItemOpener::Parsed> ItemOpener::parse(std::span<const std::byte> data) {
  std::string key(as_text(data));
  if (const auto found = parsed_.find(key); found != parsed_.end()) return found->second;
  CKPT_TRY(pickle::Graph graph, pickle::parse(data));
  CKPT_TRY(auto view, torch::as_tensor(graph, graph.root()));
  Parsed parsed{std::move(graph), view ? std::make_shared<const torch::TensorView>(*std::move(view)) : nullptr};
  if (parsed_.size() == kKeptPickles) parsed_.clear();
  if (parsed.view) parsed_.emplace(std::move(key), parsed);  // objects differ from each other
  return parsed;
}

Result<std::optional<OpenedItem>> ItemOpener::open(const HeldRanges& held, std::uint32_t file, Extent bytes,
                                                   std::optional<Extent>& missing) {
  missing.reset();
  const ItemBytes item{held, file, bytes, missing};
  CKPT_TRY(const auto tail, read_tail(item));
  if (!tail) return std::nullopt;
  if (tail->directory_bytes > kMaxPartBytes) return item.corrupt(0, "its zip directory is too large");
  const auto directory = item.get(tail->directory_offset, tail->directory_bytes);
  if (!directory) return std::nullopt;
  const auto entries = zip::parse_directory(*directory, *tail, bytes.size());
  if (!entries) return item.corrupt(tail->directory_offset, entries.error());
  if (entries->empty()) return item.corrupt(0, "an empty zip stream");
  for (const zip::Entry& entry : *entries) {
    const Result<> stored = zip::check_stored(entry);
    if (!stored) return item.corrupt(0, stored.error());
  }
  // torch puts everything into one folder; the first entry has its name.
  const std::string_view folder =
      std::string_view(entries->front().name).substr(0, entries->front().name.find('/') + 1);
  const bool has_crc = !zip::without_crc(*entries);

  const zip::Entry* pickle_entry = find(*entries, folder, "data.pkl");
  if (pickle_entry == nullptr) return item.corrupt(0, "no data.pkl: not a torch.save stream");
  if (pickle_entry->bytes > kMaxPartBytes) return item.corrupt(0, "its data.pkl is too large");
  CKPT_TRY(const auto pickle_begin, data_begin(item, *pickle_entry, *tail));
  if (!pickle_begin) return std::nullopt;
  const auto pickle = item.get(*pickle_begin, pickle_entry->bytes);
  if (!pickle) return std::nullopt;
  if (has_crc && crc32(0, *pickle) != pickle_entry->crc) {
    return item.corrupt(*pickle_begin, "data.pkl: its CRC-32 differs from the zip directory's", Errc::checksum);
  }
  auto parsed = parse(*pickle);
  if (!parsed) return item.corrupt(*pickle_begin, parsed.error());

  OpenedItem out{
      .archive = {.graph = parsed->graph,
                  .has_crc = has_crc,
                  .pickle_bytes = {bytes.begin + *pickle_begin, bytes.begin + *pickle_begin + pickle->size()}},
      .view = parsed->view};
  if (const zip::Entry* order = find(*entries, folder, "byteorder")) {
    if (order->bytes > 16) return item.corrupt(order->header_offset, "byteorder: neither little nor big");
    CKPT_TRY(const auto begin, data_begin(item, *order, *tail));
    if (!begin) return std::nullopt;
    const auto text = item.get(*begin, order->bytes);
    if (!text) return std::nullopt;
    if (as_text(*text) != "little" && as_text(*text) != "big") {
      return item.corrupt(*begin, "byteorder: neither little nor big");
    }
    out.archive.big_endian = as_text(*text) == "big";
  }
  if (out.view) {
    const std::string& key = out.view->storage_key;
    if (const zip::Entry* storage = find(*entries, folder, "data/" + key)) {
      CKPT_TRY(const auto begin, data_begin(item, *storage, *tail));
      if (!begin) return std::nullopt;
      out.archive.storages.emplace(key, StoragePlace{bytes.begin + *begin, storage->bytes, storage->crc});
    }
  }
  return out;
}

namespace {

/// One batch of open_items: rounds of reading and opening, until nothing is missing.
Result<> open_batch(RangeReader& reader, ItemOpener& opener, std::span<const Range> items, std::size_t first,
                    const ItemVisitor& visit) {
  std::vector<Range> wanted;
  for (const Range& item : items) ItemOpener::add_first_ranges(item.file, item.bytes, wanted);
  std::vector<std::size_t> waiting(items.size());
  std::iota(waiting.begin(), waiting.end(), std::size_t{0});
  reader.drop();
  for (int round = 0; !waiting.empty(); ++round) {
    CKPT_CHECK(reader.read(std::exchange(wanted, {})));
    std::vector<std::size_t> incomplete;
    for (const std::size_t at : waiting) {
      const Range& item = items[at];
      std::optional<Extent> missing;
      auto opened = opener.open(reader, item.file, item.bytes, missing);
      if (opened && !*opened && round < ItemOpener::kRounds) {
        incomplete.push_back(at);
        wanted.push_back({item.file, *missing});
      } else if (opened && !*opened) {
        CKPT_CHECK(visit(first + at, fail(Errc::internal, reader.path(item.file) + ": an item was never complete")));
      } else if (opened) {
        CKPT_CHECK(visit(first + at, std::move(**opened)));
      } else {
        CKPT_CHECK(visit(first + at, tl::unexpected<Error>(std::move(opened).error())));
      }
    }
    waiting = std::move(incomplete);
  }
  return {};
}

}  // namespace

Result<> open_items(RangeReader& reader, ItemOpener& opener, std::span<const Range> items, const ItemVisitor& visit) {
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin;
    for (std::uint64_t bytes = 0; end < items.size() && (end == begin || bytes < kBatchBytes); ++end) {
      bytes += std::min(items[end].bytes.size(), kHeadBytes + kTailBytes);
    }
    CKPT_CHECK(open_batch(reader, opener, items.subspan(begin, end - begin), begin, visit));
    begin = end;
  }
  reader.drop();
  return {};
}

}  // namespace ckpt::dcp
