#include "format/torch/pickle_writer.hpp"

#include <gtest/gtest.h>

#include <span>
#include <unordered_map>

#include "format/files/zip.hpp"
#include "format/torch/archive_layout.hpp"
#include "format/torch/pickle.hpp"
#include "support/file_bytes.hpp"

namespace ckpt {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::MemoIndex;
using pickle::NodeId;

/// Writes a parsed pickle again, node by node.
class Retelling {
 public:
  explicit Retelling(const Graph& graph) : graph_(graph) {}

  std::string write() {
    value(graph_.root());
    return std::move(out_).finish();
  }

 private:
  void value(NodeId node) {
    if (const auto known = memo_.find(node); known != memo_.end()) return out_.get(known->second);
    switch (graph_.kind(node)) {
      case Kind::none:
        return out_.none();
      case Kind::boolean:
        return out_.boolean(graph_.boolean(node));
      case Kind::integer:
        return out_.integer(graph_.integer(node));
      case Kind::big_integer:
        return out_.big_integer(graph_.text(node));
      case Kind::real:
        return out_.real(graph_.real(node));
      case Kind::text:
        out_.text(graph_.text(node));
        return;
      case Kind::global:
        out_.global(graph_.text(node));
        return;
      case Kind::persistent:
        out_.begin_persistent();
        storage(graph_.arguments(node));
        out_.end();
        return;
      case Kind::call:
        return call(node);
      default:
        return container(node);
    }
  }

  void container(NodeId node) {
    const std::span<const NodeId> items = graph_.items(node);
    if (graph_.kind(node) == Kind::tuple)
      out_.begin_tuple(items.size());
    else if (graph_.kind(node) == Kind::list)
      out_.begin_list(items.size());
    else
      out_.begin_dict(items.size() / 2);
    for (const NodeId item : items) value(item);
    const MemoIndex index = out_.end();
    if (graph_.kind(node) != Kind::tuple || !items.empty()) memo_.emplace(node, index);
  }

  /// torch makes the key of a storage anew, so it is not the text that stands elsewhere.
  void storage(NodeId id) {
    out_.begin_tuple(5);
    for (std::size_t i = 0; i < 5; ++i) {
      const NodeId item = graph_.items(id)[i];
      if (i != 2) {
        value(item);
      } else if (const auto known = keys_.find(item); known != keys_.end()) {
        out_.get(known->second);
      } else {
        keys_.emplace(item, out_.own_text(graph_.text(item)));
      }
    }
    out_.end();
  }

  void call(NodeId node) {
    const std::string_view callee = graph_.callee_name(node);
    const NodeId arguments = graph_.arguments(node);
    if (callee == "__builtin__ set" || callee == "__builtin__ frozenset") {
      const std::span<const NodeId> items = graph_.items(graph_.items(arguments)[0]);
      out_.begin_set(items.size(), callee.ends_with("frozenset"));
      for (const NodeId item : items) value(item);
      memo_.emplace(node, out_.end());
      return;
    }
    if (callee == "_codecs encode") {
      std::string bytes;
      const std::string_view text = graph_.text(graph_.items(arguments)[0]);
      for (std::size_t i = 0; i < text.size(); ++i) {
        const auto lead = static_cast<unsigned char>(text[i]);
        bytes.push_back(lead < 0x80
                            ? text[i]
                            : static_cast<char>((lead & 3u) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fu)));
      }
      memo_.emplace(node, out_.bytes(bytes));
      return;
    }
    out_.begin_object();
    value(graph_.callee(node));
    value(arguments);
    memo_.emplace(node, out_.reduce());
    if (const std::span<const NodeId> items = graph_.items(node); !items.empty()) {
      graph_.has_pairs(node) ? out_.begin_pairs(items.size() / 2) : out_.begin_items(items.size());
      for (const NodeId item : items) value(item);
      out_.end();
    }
    if (graph_.state(node) != kNone) {
      value(graph_.state(node));
      out_.build();
    }
    out_.end();
  }

  const Graph& graph_;
  pickle::Writer out_;
  std::unordered_map<NodeId, MemoIndex> memo_;
  std::unordered_map<NodeId, MemoIndex> keys_;
};

struct Genuine {
  std::string file;
  zip::Tail tail;
  std::vector<zip::Entry> entries;

  std::string entry(std::size_t index) const {
    const auto header = std::as_bytes(std::span(file)).subspan(entries[index].header_offset, zip::kLocalHeaderBytes);
    return file.substr(*zip::data_offset(header, entries[index], tail), entries[index].bytes);
  }
};

/// "torch/pt_values/values.pt" -> the file of that case.
std::string golden_file(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return CKPT_GOLDEN_DIR "/" + path.substr(0, slash) + "/ckpt" + path.substr(slash);
}

Genuine genuine(const std::string& path) {
  Genuine out{.file = test::read_file(golden_file(path))};
  const auto bytes = std::as_bytes(std::span(out.file));
  out.tail = *zip::find_tail(bytes, bytes.size());
  out.entries =
      *zip::parse_directory(bytes.subspan(out.tail.directory_offset, out.tail.directory_bytes), out.tail, bytes.size());
  return out;
}

TEST(PickleWriter, WritesGenuinePicklesOfTorchByteForByte) {
  for (const char* path : {"torch/pt_state_dict/model.pt", "torch/pt_values/values.pt"}) {
    const std::string expected = genuine(path).entry(0);
    const auto graph = pickle::parse(std::as_bytes(std::span(expected)));
    ASSERT_TRUE(graph) << path << ": " << graph.error().message;
    const std::string written = Retelling(*graph).write();
    const auto differs = std::mismatch(written.begin(), written.end(), expected.begin(), expected.end());
    EXPECT_TRUE(written == expected) << path << ": " << written.size() << " bytes for " << expected.size()
                                     << ", different from " << differs.first - written.begin() << " on";
  }
}

TEST(PickleWriter, SharedValuesAreWrittenOnce) {
  pickle::Writer writer;
  writer.begin_list(3);
  writer.begin_list(1), writer.integer(7);
  const MemoIndex inner = writer.end();
  writer.get(inner);
  writer.text("x");
  writer.end();
  const std::string bytes = std::move(writer).finish();
  const auto graph = pickle::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(graph);
  const auto items = graph->items(graph->root());
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(graph->text(items[2]), "x");
}

TEST(PickleWriter, MemoIndicesPastAByteAreLong) {
  pickle::Writer writer;
  writer.begin_list(600);
  for (int i = 0; i < 300; ++i) writer.text(std::to_string(i));
  for (int i = 0; i < 300; ++i) writer.text(std::to_string(i));
  writer.end();
  const std::string bytes = std::move(writer).finish();
  const auto graph = pickle::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(graph);
  const auto items = graph->items(graph->root());
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(items[i], items[300 + i]);
}

/// Writes the layout of the genuine file's own entries, its storages in their places and its late fields as they are.
TEST(ArchiveLayout, EqualsGenuineFilesButForTheSerializationId) {
  for (const char* path : {"torch/pt_state_dict/model.pt", "torch/pt_values/values.pt"}) {
    const Genuine file = genuine(path);
    torch::ArchiveRequest request{.root = torch::archive_root(path), .pickle = file.entry(0), .id = "x"};
    std::vector<std::string> storages;
    for (std::size_t i = 4; i + 2 < file.entries.size(); ++i) {
      storages.push_back(file.entry(i));
      request.storage_bytes.push_back(storages.back().size());
    }
    const torch::ArchiveLayout layout = lay_out_archive(request);
    std::string written(layout.bytes, '\0');
    for (const auto& piece : layout.pieces) written.replace(piece.offset, piece.bytes.size(), piece.bytes);
    ASSERT_EQ(layout.storage_offsets.size(), storages.size());
    for (std::size_t k = 0; k < storages.size(); ++k)
      written.replace(layout.storage_offsets[k], storages[k].size(), storages[k]);
    for (const auto& late : layout.late) {
      const auto covered = std::as_bytes(std::span(written)).subspan(late.covers.begin, late.covers.size());
      const std::uint32_t crc = crc32(0, covered);
      EXPECT_EQ(written.substr(late.offset, 4), std::string(4, '\0'));
      for (unsigned i = 0; i < 4; ++i) written[late.offset + i] = static_cast<char>(crc >> (8 * i));
    }
    ASSERT_EQ(written.size(), file.file.size()) << path;
    // The id's own bytes, and its checksum in descriptor and directory.
    const std::string id = file.entry(file.entries.size() - 1);
    const std::size_t at = file.file.find(id);
    std::size_t different = 0;
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (written[i] == file.file[i]) continue;
      ++different;
      const bool is_id = i >= at && i < at + 48;
      EXPECT_TRUE(is_id || i > at + 48) << path << ": byte " << i;
    }
    EXPECT_LE(different, 48u);
    EXPECT_GT(different, 0u);
  }
}

TEST(ArchiveLayout, LargeFilesHaveZip64Fields) {
  constexpr std::uint64_t kFour = std::uint64_t{4} << 30;
  const torch::ArchiveLayout layout =
      torch::lay_out_archive({.pickle = "x", .storage_bytes = {kFour - 2, kFour - 1, 64, 0}, .id = "x"});
  std::string tail;
  const auto& last = layout.pieces.back();
  ASSERT_EQ(last.offset + last.bytes.size(), layout.bytes);
  const auto bytes = std::as_bytes(std::span(last.bytes));
  const auto found = zip::find_tail(bytes, layout.bytes);
  ASSERT_TRUE(found) << found.error().message;
  const auto entries = zip::parse_directory(
      bytes.subspan(found->directory_offset - last.offset, found->directory_bytes), *found, layout.bytes);
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 10u);
  EXPECT_EQ((*entries)[4].bytes, kFour - 2);
  EXPECT_EQ((*entries)[5].bytes, kFour - 1);
  EXPECT_EQ((*entries)[6].bytes, 64u);
  EXPECT_GT((*entries)[6].header_offset, kFour);
  for (const std::uint64_t offset : layout.storage_offsets) EXPECT_EQ(offset % 64, 0u);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(layout.late[k].covers.begin, layout.storage_offsets[k]);
    // Sizes of 4 bytes where neither the size nor the place needs more.
    const std::uint64_t after = layout.late[k].offset - layout.late[k].covers.end;
    EXPECT_EQ(after, 4u);
  }
  EXPECT_EQ(layout.late.size(), 6u);
}

TEST(ArchiveLayout, TheFolderIsTheNameWithoutItsSuffix) {
  EXPECT_EQ(torch::archive_root("/a/b.c/model.final.pt"), "model.final");
  EXPECT_EQ(torch::archive_root("model"), "model");
  EXPECT_EQ(torch::archive_root(".pt"), "archive");
  EXPECT_EQ(torch::archive_root("m\xc3\xb6.pt"), "archive");
}

}  // namespace
}  // namespace ckpt
