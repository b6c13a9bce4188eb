#include "convert/torch_legacy.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "format/checked.hpp"
#include "format/hash.hpp"
#include "format/little_endian.hpp"
#include "format/text/error_context.hpp"

// Foreign rules: torch/serialization.py (_legacy_save, _legacy_load).

namespace ckpt {
namespace {

// The magic number as pickles of protocol 2 and above hold it, and as protocol 1 writes it in digits.
constexpr std::string_view kMagic{"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12};
constexpr std::string_view kMagicInDigits = "L119547037146038801333356L\n.";
constexpr std::size_t kProtocolBytes = 2;
constexpr std::size_t kFrameBytes = 9;  // from protocol 4 on
constexpr std::int64_t kProtocol = 1001;
constexpr std::uint64_t kFirstWindowBytes = 64 << 10;
constexpr std::uint64_t kWindowGrowth = 8;  // a window that was too short is read again, so few and fast-growing ones
constexpr std::uint64_t kCountBytes = 8;

class LegacyOpener {
 public:
  LegacyOpener(StreamReader& stream, const pickle::Budget& budget) : stream_(stream), budget_(budget) {}

  Result<TorchArchive> open() {
    CKPT_CHECK(pickle("magic number"));
    CKPT_TRY(const pickle::Graph protocol, pickle("protocol version"));
    if (protocol.kind(protocol.root()) != pickle::Kind::integer || protocol.integer(protocol.root()) != kProtocol) {
      return failed(Errc::unsupported, "a legacy torch file of another protocol than 1001", 0);
    }
    CKPT_CHECK(pickle("system information"));
    const std::uint64_t begin = at_;
    CKPT_TRY(pickle::Graph graph, pickle("object"));
    TorchArchive archive{
        .graph = std::move(graph), .has_crc = false, .pickle_bytes = {stream_.in_file(begin), stream_.in_file(at_)}};
    CKPT_TRY(const pickle::Graph keys, pickle("storage keys"));
    CKPT_CHECK(place_storages(keys, archive));
    archive.metadata_hash = hasher_.digest();
    return archive;
  }

 private:
  tl::unexpected<Error> failed(Errc code, std::string why, std::uint64_t offset) const {
    return fail(stream_.at({.code = code, .message = std::move(why)}, offset));
  }

  /// The next pickle; its length is known only when it has been read.
  Result<pickle::Graph> pickle(std::string_view what) {
    const std::uint64_t left = stream_.size() - at_;
    for (std::uint64_t window = kFirstWindowBytes;; window *= kWindowGrowth) {
      const std::uint64_t bytes = std::min({window, left, budget_.max_bytes});
      CKPT_TRY(const auto data, stream_.read(at_, bytes));
      std::size_t used = 0;
      auto graph = pickle::parse(data, budget_, &used);
      if (graph) {
        hasher_.update(data.first(used));
        at_ += used;
        return graph;
      }
      if (used == 0 || bytes == left) return fail(stream_.at(with_context(std::move(graph).error(), what), at_));
      if (bytes == budget_.max_bytes) {
        return failed(Errc::refused, std::string(what) + ": over the limit of " + std::to_string(bytes) + " bytes",
                      at_);
      }
    }
  }

  Result<> place_storages(const pickle::Graph& keys, TorchArchive& archive) {
    const pickle::Graph& graph = archive.graph;
    std::unordered_map<std::string, torch::Storage> described;
    for (pickle::NodeId node = 0; node < graph.node_count(); ++node) {
      if (graph.kind(node) != pickle::Kind::persistent) continue;
      auto storage = torch::as_storage(graph, node);
      if (!storage)
        return fail(stream_.at(std::move(storage).error(), archive.pickle_bytes.begin - stream_.in_file(0)));
      const auto known = described.emplace(storage->key, *storage).first;
      if (known->second.bytes == storage->bytes) continue;
      return failed(Errc::corrupt, "storage " + storage->key + ": described with two lengths", at_);
    }

    std::vector<std::uint64_t> begins;
    std::vector<const torch::Storage*> order;
    if (keys.kind(keys.root()) != pickle::Kind::list) return failed(Errc::corrupt, "storage keys: not a list", at_);
    for (const pickle::NodeId item : keys.items(keys.root())) {
      const std::string key(keys.text(item));
      const auto storage = described.find(key);
      if (storage == described.end()) return failed(Errc::corrupt, "storage " + key + ": no tensor names it", at_);
      begins.push_back(at_);
      order.push_back(&storage->second);
      const StoragePlace place{.offset = stream_.in_file(at_ + kCountBytes), .bytes = storage->second.bytes};
      if (!archive.storages.emplace(key, place).second) {
        return failed(Errc::corrupt, "storage " + key + ": listed twice", at_);
      }
      CKPT_TRY(const std::uint64_t bytes, checked_add(kCountBytes, storage->second.bytes));
      CKPT_TRY(at_, checked_add(at_, bytes));
      if (at_ > stream_.size()) {
        return failed(Errc::corrupt, "storage " + key + ": runs past the end of the file", begins.back());
      }
    }
    return stream_.read_each(begins, kCountBytes, [&](std::size_t index, auto bytes) -> Result<> {
      const std::uint64_t count = read_little_endian(bytes, 0, kCountBytes);
      const torch::Storage& storage = *order[index];
      if (count == storage.bytes / storage.element_bytes) return {};
      return failed(Errc::corrupt,
                    "storage " + storage.key + ": holds " + std::to_string(count) + " elements, but the pickle says " +
                        std::to_string(storage.bytes / storage.element_bytes),
                    begins[index]);
    });
  }

  StreamReader& stream_;
  const pickle::Budget& budget_;
  Hasher hasher_;
  std::uint64_t at_ = 0;
};

}  // namespace

bool is_legacy_torch(std::string_view head) {
  if (head.starts_with(kMagicInDigits)) return true;
  if (!head.starts_with('\x80')) return false;
  head.remove_prefix(std::min(head.size(), kProtocolBytes));
  if (head.starts_with('\x95')) head.remove_prefix(std::min(head.size(), kFrameBytes));
  return head.starts_with(kMagic);
}

Result<TorchArchive> open_legacy_torch(StreamReader& stream, const pickle::Budget& budget) {
  return LegacyOpener(stream, budget).open();
}

}  // namespace ckpt
