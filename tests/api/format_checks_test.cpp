// The checks of FORMAT.md section 10: the text and the code list the same ones, and a checkpoint that violates one of
// them gets the outcome that the list names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "format/files/safetensors.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/index_file.hpp"
#include "format/universal/objects.hpp"
#include "format/universal/seal.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/mesh_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using namespace universal;

constexpr const char* kShard = "shards/weights/00001-00000.safetensors";  // of writer 1, whose first entry is c.copies
constexpr const char* kOther = "shards/weights/00002-00000.safetensors";  // of writer 2, likewise
constexpr const char* kIndexOne = "index/00001.bin";
constexpr const char* kIndexTwo = "index/00002.bin";
constexpr const char* kObjects = "blobs/objects.json";
constexpr std::size_t kHeader = 64;  // of sums.bin and index files; a record is as long

/// Something of every kind that there is a check for.
test::MeshCheckpoint sample() {
  std::mt19937_64 random(1);
  test::MeshCheckpoint out;
  Manifest& manifest = out.manifest;
  manifest.id = hash128("checks");
  manifest.created = utc_text(0);
  manifest.meta.step = 5;
  manifest.findings = {{.severity = Severity::warning, .text = "something"}};
  manifest.aliases = {{.name = "z", .target = "a.whole"}};
  Layout rows{.kind = Layout::Kind::mesh, .mesh = {{{"tp", 3}}}};
  rows.cuts = {{.dim = 0, .axes = {0}}};
  manifest.layouts = {Layout{}, {.kind = Layout::Kind::irregular}, rows};
  out.add({.name = "a.whole", .path = {std::string("a.whole")}, .dtype = Dtype::f32, .shape = {4}}, 0, 0, random);
  out.add({.name = "b.blob", .dtype = Dtype::u8, .shape = {3}, .role = Role::blob}, 0, 0, random);
  out.add({.name = "c.copies", .dtype = Dtype::f32, .shape = {4, 4}}, 1, 0, random);
  out.add({.name = "d.packed", .dtype = Dtype::f4, .shape = {4, 4}}, 1, 0, random);
  out.add({.name = "e.rows", .dtype = Dtype::f32, .shape = {4, 3}}, 2, 0, random);
  out.add({.name = "f.slot", .dtype = Dtype::f32, .shape = {4}, .role = Role::slot}, 0, 0, random);
  const Chunk upper{.box = {{0, 0}, {2, 4}}};
  const Chunk lower{.box = {{2, 0}, {2, 4}}};
  out.irregular[1] = {{2, {upper, lower}}, {3, {{.box = {{0, 0}, {4, 2}}}}}};
  out.irregular[2] = {{2, {upper}}, {3, {{.box = {{0, 2}, {4, 2}}}}}};
  const std::vector<NamedObject> objects{{"lr", {}, {0.5}}, {"n", {}, {List{.items = {}}}}};
  out.objects = build_objects(manifest.id, objects).value();
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == text.npos) ADD_FAILURE() << "nothing to change: " << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

std::string number_bytes(std::uint64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

/// The sample on disk. Each change keeps every hash right, but those of `raw`.
class Tree {
 public:
  Tree() { test::write_mesh_checkpoint(sample(), root()); }

  std::string root() const { return dir_.path() + "/x"; }
  std::string at(const std::string& path) const { return root() + "/" + path; }
  std::string bytes(const std::string& path) const { return test::read_file(at(path)); }

  void raw(const std::string& path, const std::string& now) const { test::write_file(at(path), now); }
  void flip(const std::string& path, std::size_t offset) const {
    std::string now = bytes(path);
    now[offset] = static_cast<char>(now[offset] ^ 1);
    raw(path, now);
  }
  void remove(const std::string& path) const { fs::remove(at(path)); }

  void manifest(const std::string& from, const std::string& to) const {
    put_manifest(replaced(bytes("manifest.json"), from, to));
  }
  /// A member before the last one.
  void member(const std::string& text) const { manifest(",\n\"xxh3\"", ",\n" + text + ",\n\"xxh3\""); }
  void sums(std::size_t offset, const std::string& now) const {
    put_sums(bytes("sums.bin").replace(offset, now.size(), now));
  }
  void file(const std::string& path, const std::string& now) const {
    raw(path, now);
    std::string table = bytes("sums.bin");
    const Sums parsed = parse_sums(std::as_bytes(std::span(table))).value();
    for (std::size_t i = 0; i < parsed.files.size(); ++i) {
      const FileRecord& record = parsed.files[i];
      if (record.key.path() != path) continue;
      const Hash128 leaf = hash128(now);
      const Hash128 root = root_hash(parsed.id, path, now.size(), {&leaf, 1});
      const std::size_t at = kHeader * (1 + i);
      table.replace(at + 16, 8, number_bytes(now.size(), 8));
      table.replace(at + 48, 16, reinterpret_cast<const char*>(root.bytes.data()), 16);
      table.replace(kHeader * (1 + parsed.files.size()) + 16 * record.first_leaf, 16,
                    reinterpret_cast<const char*>(leaf.bytes.data()), 16);
    }
    put_sums(table);
  }
  void file(const std::string& path, const std::string& from, const std::string& to) const {
    file(path, replaced(bytes(path), from, to));
  }
  void file(const std::string& path, std::size_t offset, const std::string& now) const {
    file(path, bytes(path).replace(offset, now.size(), now));
  }
  /// A chunk of an index file, by its number there.
  void chunk(const std::string& path, std::size_t number, const Box& box) const {
    const std::string now = bytes(path);
    std::vector<Shape> shapes;
    for (const TensorRow& row : sample().manifest.tensors) shapes.push_back(row.tensor.shape);
    IndexFile index = parse_index_file(std::as_bytes(std::span(now)), shapes).value();
    index.chunks[number].chunk = {.box = box};
    file(path, build_index_file(index, shapes).value());
  }

 private:
  void put_manifest(const std::string& text) const {
    const std::string open = text.substr(0, text.size() - 35);  // digits, a quote, a brace, a newline
    const std::string sealed = open + hash128(open).hex() + "\"}\n";
    raw("manifest.json", sealed);
    raw("index/manifest.json", sealed);
  }
  void put_sums(const std::string& table) const {
    raw("sums.bin", table);
    std::string text = bytes("manifest.json");
    const std::size_t begin = text.find("\"sums\":{");
    const std::size_t end = text.find('}', begin);
    put_manifest(text.replace(
        begin, end - begin,
        "\"sums\":{\"bytes\":" + std::to_string(table.size()) + ",\"xxh3\":\"" + hash128(table).hex() + "\""));
  }

  TempDir dir_{memory_temp_dir()};
};

/// How a check is violated, and what messages say where they come from code that other formats share.
struct Violation {
  Check check = Check::committed;
  std::function<void(const Tree&)> make{};
  std::string says{};
};

std::string deep(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

const std::string kSlices = R"(\"e.rows\":{\"saved_offsets\":[2,0]})";
const std::string kDroppedWeights = R"("revision":1,"dropped":["weights"])";

std::size_t data_begin(const Tree& t, const char* path) {
  const std::string bytes = t.bytes(path);
  return static_cast<std::size_t>(safetensors::header_bytes(std::as_bytes(std::span(bytes)), bytes.size()).value());
}

std::vector<Violation> of_the_manifest() {
  const auto manifest = [](Check check, std::string from, std::string to) {
    return Violation{check, [from = std::move(from), to = std::move(to)](const Tree& t) { t.manifest(from, to); }};
  };
  return {
      {Check::committed, [](const Tree& t) { t.remove("manifest.json"); }},
      {Check::manifest_ends, [](const Tree& t) { t.raw("manifest.json", t.bytes("manifest.json").substr(0, 300)); }},
      {Check::manifest_hash, [](const Tree& t) { t.flip("manifest.json", 200); }},
      manifest(Check::manifest_json, R"("digests":{})", R"("digests":{},"digests":{})"),
      manifest(Check::version, R"("version":"1.0")", R"("version":"2.0")"),
      manifest(Check::version, R"("version":"1.0")", R"("version":"1.01")"),
      manifest(Check::required_features, R"("required":[])", R"("required":["zstd"])"),
      manifest(Check::layout_kind, R"("kind":"irregular")", R"("kind":"sparse")"),
      manifest(Check::layout_kind, R"("rule":"ceil")", R"("rule":"odd")"),
      {Check::dropped_class, [](const Tree& t) { t.member(kDroppedWeights); }},
      manifest(Check::members, R"("mesh":{})", R"("mesh":[])"),
      manifest(Check::integers, R"("step":5)", R"("step":5.0)"),
      manifest(Check::integers, R"("step":5)", R"("step":"5")"),
      manifest(Check::integers, R"("step":5)", R"("step":9007199254740992)"),
      manifest(Check::digits, R"("digests":{})", R"("digests":{"sha256":"AB"})"),
      manifest(Check::created, R"("created":"1970-)", R"("created":"1970/)"),
      {Check::revision, [](const Tree& t) { t.member(R"("dropped":["optim"])"); }},
      {Check::revision, [](const Tree& t) { t.member(R"("revision":1,"dropped":["optim","optim"])"); }},
      manifest(Check::severity, R"("severity":"warning")", R"("severity":"fatal")"),
      manifest(Check::aliases, R"("target":"a.whole")", R"("target":"nothing")"),
      manifest(Check::tensor_names, R"({"name":"a.whole")", R"({"name":"x.whole")"),
      manifest(Check::tensor_names, R"({"name":"a.whole")", R"({"name":"__metadata__")"),
      manifest(Check::dtype, R"("dtype":"F4")", R"("dtype":"F3")"),
      manifest(Check::role, R"("role":"blob")", R"("role":"ghost")"),
      manifest(Check::shape, R"("shape":[3])", R"("shape":[9007199254740991,9007199254740991])"),
      manifest(Check::shape, R"("dtype":"F4","shape":[4,4])", R"("dtype":"F4","shape":[3,3])"),
      manifest(Check::blob, R"("shape":[3])", R"("shape":[3,1])"),
      manifest(Check::path, R"("path":["a.whole"])", R"("path":[1.5])"),
      manifest(Check::row_layout, R"("layout":2)", R"("layout":9)"),
      manifest(Check::row_layout, R"("layout":2)", R"("layout":2,"volume":1)"),
      manifest(Check::layout, R"("size":3)", R"("size":0)"),
      manifest(Check::layout_fits, R"("dim":0)", R"("dim":7)"),
      manifest(Check::layout_fits, R"("layout":2)", R"("layout":2,"begin":1)"),
  };
}

std::vector<Violation> of_the_table() {
  return {
      {Check::sums_present, [](const Tree& t) { t.remove("sums.bin"); }},
      {Check::sums_hash, [](const Tree& t) { t.flip("sums.bin", 100); }},
      {Check::sums_version, [](const Tree& t) { t.sums(8, number_bytes(2, 2)); }},
      {Check::sums_version, [](const Tree& t) { t.sums(12, number_bytes(23, 4)); }},
      {Check::sums_form, [](const Tree& t) { t.sums(0, "X"); }},
      {Check::sums_form, [](const Tree& t) { t.sums(48, "X"); }},
      {Check::sums_id, [](const Tree& t) { t.sums(16, "XX"); }},
      {Check::sums_id, [](const Tree& t) { t.sums(8, number_bytes(9 << 16, 4)); }},  // 0.9 beside 1.0
      {Check::record_class, [](const Tree& t) { t.sums(kHeader, number_bytes(9, 4)); }},
      {Check::record, [](const Tree& t) { t.sums(kHeader + 12, "X"); }},
      {Check::record_leaves, [](const Tree& t) { t.sums(kHeader + 32, "X"); }},
      {Check::files_present, [](const Tree& t) { t.remove(kShard); }},
      {Check::file_size, [](const Tree& t) { t.raw(kShard, t.bytes(kShard) + "X"); }},
      {Check::places, [](const Tree& t) { t.manifest(R"("shape":[4,3])", R"("shape":[4,2])"); }},
      {Check::index_hash, [](const Tree& t) { t.flip(kIndexOne, 70); }},
      {Check::index_version, [](const Tree& t) { t.file(kIndexOne, 8, number_bytes(2, 2)); }},
      {Check::index_form, [](const Tree& t) { t.file(kIndexOne, 48, "X"); }},
      {Check::index_id, [](const Tree& t) { t.file(kIndexOne, 12, number_bytes(7, 4)); }},
      {Check::index_records, [](const Tree& t) { t.file(kIndexOne, kHeader + 24, "X"); }},
      {Check::index_chunks,
       [](const Tree& t) { t.file(kIndexTwo, kHeader * 3 + 16, "X"); }},  // two records, then words
      {Check::index_places, [](const Tree& t) { t.file(kIndexOne, kHeader + 32, number_bytes(1 << 20, 8)); }},
      {Check::whole_bytes,
       [](const Tree& t) {
         t.chunk(kIndexTwo, 1, {{0, 1}, {4, 2}});
       }},
      {Check::covered,
       [](const Tree& t) {
         t.chunk(kIndexTwo, 1, {{0, 0}, {4, 2}});
       },
       "are in no file"},
      {Check::overlap,
       [](const Tree& t) {
         t.chunk(kIndexTwo, 0, {{1, 0}, {2, 4}});
       },
       "in two files"},
  };
}

std::vector<Violation> of_objects() {
  const auto objects = [](Check check, std::string from, std::string to) {
    return Violation{check,
                     [from = std::move(from), to = std::move(to)](const Tree& t) { t.file(kObjects, from, to); }};
  };
  return {
      {Check::objects_hash, [](const Tree& t) { t.flip(kObjects, 10); }},
      objects(Check::objects_version, R"("version":"1.0")", R"("version":"2.0")"),
      objects(Check::objects_form, R"("objects":[)", R"("objekts":[)"),
      objects(Check::objects_form, R"("name":"lr")", R"("name":"lr","name":"lr")"),
      objects(Check::objects_id, R"("id":")" + hash128("checks").hex(), R"("id":")" + hash128("others").hex()),
      objects(Check::objects_id, R"("version":"1.0")", R"("version":"0.9")"),
      objects(Check::value_kind, R"({"float":)", R"({"range":)"),
      objects(Check::value_form, R"({"float":"3)", R"({"float":"X)"),
      objects(Check::value_form, R"({"float":)", R"({"text":"61","float":)"),
      objects(Check::value_limits, R"("value":[])", R"("value":)" + deep(65)),
      objects(Check::value_limits, R"("value":[])", R"("value":)" + deep(5000)),
  };
}

std::vector<Violation> of_verifying() {
  return {
      {Check::roots, [](const Tree& t) { t.sums(kHeader + 48, "X"); }},
      {Check::header_form, [](const Tree& t) { t.file(kShard, 0, number_bytes(16, 2)); }},
      {Check::header_entries, [](const Tree& t) { t.file(kShard, R"("e.rows":{"d)", R"("x.rows":{"d)"); }},
      {Check::header_series, [](const Tree& t) { t.file(kShard, R"(\"writer\":1)", R"(\"writer\":3)"); }},
      {Check::header_slices, [](const Tree& t) { t.file(kShard, kSlices, replaced(kSlices, "2,0", "1,0")); }},
      {Check::index_offsets,
       [](const Tree& t) { t.file(kIndexOne, kHeader + 32, number_bytes(data_begin(t, kShard) + 4, 8)); }},
      {Check::second_manifest, [](const Tree& t) { t.remove("index/manifest.json"); }},
      {Check::second_manifest, [](const Tree& t) { t.flip("index/manifest.json", 100); }},
      {Check::leaves, [](const Tree& t) { t.flip(kShard, t.bytes(kShard).size() - 1); }, "xxh3 of bytes"},
      {Check::copies, [](const Tree& t) { t.file(kOther, data_begin(t, kOther), "X"); }, "this copy differs from"},
      {Check::strays, [](const Tree& t) { t.raw("shards/weights/00099-00000.safetensors", "X"); }},
      {Check::strays, [](const Tree& t) { t.raw("index/00042.bin", "X"); }},
  };
}

/// Another checkpoint in place of the sample: a virtual one with one tensor, in the file `data` beside its manifest.
void make_virtual(const Tree& t, const std::function<void(Manifest&)>& change) {
  fs::remove_all(t.root());
  fs::create_directories(t.at("index"));
  const std::string data = "0123456789abcdef";
  t.raw("data", data);
  const FileInfo info = open_io(IoKind::threads, 1).value()->stat(t.at("data")).value();
  Manifest manifest;
  manifest.id = hash128("virtual");
  manifest.created = utc_text(0);
  manifest.layouts = {Layout{}, {.kind = Layout::Kind::referenced}};
  manifest.references = {
      {.path = ".",
       .files = {{.path = "data", .bytes = data.size(), .mtime_ns = info.mtime_ns, .head = hash128(data)}}}};
  manifest.tensors = {{.tensor = {.name = "a", .dtype = Dtype::f32, .shape = {4}},
                       .layout = 1,
                       .chunks = {{.chunk = {.box = Box::whole({4})}, .where = {.dtype = Dtype::f32}}}}};
  change(manifest);
  const Seal sealed = seal(manifest, {}, {}).value();
  t.raw("sums.bin", sealed.sums);
  t.raw("manifest.json", sealed.manifest);
  t.raw("index/manifest.json", sealed.manifest);
}

std::vector<Violation> of_references() {
  const auto changed = [](Check check, std::function<void(Manifest&)> change) {
    return Violation{check, [change = std::move(change)](const Tree& t) { make_virtual(t, change); }};
  };
  const auto where = [](Manifest& m) -> Locator& { return m.tensors[0].chunks[0].where; };
  const auto file = [](Manifest& m) -> ReferencedFile& { return m.references[0].files[0]; };
  return {
      changed(Check::references, [](Manifest& m) { m.references.clear(); }),
      changed(Check::references, [=](Manifest& m) { file(m).path = "../x/data"; }),
      changed(Check::references, [=](Manifest& m) { file(m).path = "/etc/passwd"; }),
      changed(Check::references, [](Manifest& m) { m.tensors[0].layout = 0; }),
      changed(Check::referenced_chunks, [=](Manifest& m) { where(m).offset = 4; }),
      changed(Check::referenced_chunks, [=](Manifest& m) { where(m).offset = UINT64_MAX - 3; }),
      changed(Check::referenced_chunks, [=](Manifest& m) { where(m).strides = {std::int64_t{1} << 61}; }),
      changed(Check::referenced_chunks, [=](Manifest& m) { where(m).crc = Crc{.begin = 8, .end = 16}; }),
      changed(Check::referenced_chunks, [=](Manifest& m) { where(m).file = 1; }),
      changed(Check::referenced_chunks, [](Manifest& m) { m.tensors[0].chunks[0].chunk.box.size = {5}; }),
      changed(Check::referenced_present, [=](Manifest& m) { file(m).path = "gone"; }),
      changed(Check::referenced_same, [=](Manifest& m) { file(m).path = ""; }),  // a directory
      changed(Check::referenced_same, [=](Manifest& m) { file(m).mtime_ns += 1; }),
      changed(Check::referenced_same, [=](Manifest& m) { file(m).bytes += 1; }),
      changed(Check::referenced_same, [=](Manifest& m) { file(m).head = hash128("other"); }),
  };
}

std::vector<Violation> all_violations() {
  std::vector<Violation> out = of_the_manifest();
  for (const auto& part : {of_the_table(), of_objects(), of_verifying(), of_references()})
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

/// What somebody is told, and with which exit code.
struct ReportedFlag {
  int code = 0;
  std::string text{};
};

class FormatChecks : public testing::Test {
 protected:
  /// Of a reader: everything that comes before the bytes of tensors.
  ReportedFlag read(const std::string& root) {
    const auto source = open_source(*io_, root, "", {});
    if (!source) return {exit_code(source.error()), source.error().message};
    for (const Finding& finding : source->map.findings) {
      if (finding.severity == Severity::incomplete) return {exit_code(Errc::incomplete), finding.text};
    }
    std::vector<std::uint32_t> all(source->map.tensors.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    const auto covered = check_coverage(source->map, all);
    return covered ? ReportedFlag{} : ReportedFlag{exit_code(covered.error()), covered.error().message};
  }
  ReportedFlag verify_at(const std::string& root) {
    Session session{.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30, .threads = 2};
    const auto report = verify(session, {.path = root});
    if (!report) return {exit_code(report.error()), report.error().message};
    ReportedFlag told{report->ok ? 0 : 1};
    for (const Finding& finding : report->damage) told.text += finding.text + "\n";
    return told;
  }

  /// A tensor's bytes in the safetensors file that the checkpoint is converted to.
  std::string converted(const Tree& tree, const std::string& tensor) {
    const std::string target = tree.root() + ".safetensors";
    Session session{.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30, .threads = 2};
    const auto done = convert(session, {.source = tree.root(), .target = target});
    if (!done) return "error: " + done.error().message;
    const auto source = open_source(*io_, target, "", {});
    if (!source) return "error: " + source.error().message;
    return gather(source->map, target, find_tensor(source->map, tensor)).bytes;
  }

  std::unique_ptr<Io> io_ = open_io(IoKind::threads, 8).value();
  std::unique_ptr<Comm> comm_ = Comm::solo();
};

TEST_F(FormatChecks, TheSampleIsRight) {
  const Tree tree;
  const ReportedFlag told = read(tree.root());
  EXPECT_EQ(told.code, 0) << told.text;
  const ReportedFlag verified = verify_at(tree.root());
  EXPECT_EQ(verified.code, 0) << verified.text;
}

TEST_F(FormatChecks, TheVirtualSampleIsRight) {
  const Tree tree;
  make_virtual(tree, [](Manifest&) {});
  const ReportedFlag told = read(tree.root());
  EXPECT_EQ(told.code, 0) << told.text;
  const ReportedFlag verified = verify_at(tree.root());
  EXPECT_EQ(verified.code, 0) << verified.text;
}

TEST_F(FormatChecks, WhateverViolatesOneGetsItsOutcome) {
  std::set<Check> seen;
  for (const Violation& violation : all_violations()) {
    const auto number = static_cast<std::size_t>(violation.check);
    const CheckRow& row = all_checks()[number - 1];
    seen.insert(violation.check);
    const Tree tree;
    violation.make(tree);
    const std::string says =
        violation.says.empty() ? "(FORMAT.md, check " + std::to_string(number) + ")" : violation.says;
    const int outcome = exit_code(row.outcome);
    const ReportedFlag told = read(tree.root());
    const ReportedFlag verified = verify_at(tree.root());
    SCOPED_TRACE(std::to_string(number) + ": " + std::string(row.words));
    EXPECT_EQ(told.code, row.outcome == Errc::differs ? 0 : outcome) << told.text;
    if (told.code != 0) {
      EXPECT_NE(told.text.find(says), std::string::npos) << told.text;
    }
    EXPECT_EQ(verified.code, outcome == 15 ? 1 : outcome) << verified.text;
    EXPECT_NE(verified.text.find(says), std::string::npos) << verified.text;
  }
  for (const CheckRow& row : all_checks()) EXPECT_TRUE(seen.contains(row.check)) << row.words;
}

TEST_F(FormatChecks, TheTextListsTheSameChecksAndOutcomes) {
  std::string listed;
  for (const CheckRow& row : all_checks()) {
    EXPECT_EQ(&row - all_checks().data() + 1, static_cast<std::ptrdiff_t>(row.check));
    listed += "| " + std::to_string(static_cast<unsigned>(row.check)) + " | " + std::string(row.words) + " | " +
              std::to_string(exit_code(row.outcome)) + " |\n";
  }
  const std::string text = test::read_file(fs::path(CKPT_GOLDEN_DIR) / "../../src/format/FORMAT.md");
  std::istringstream lines(text.substr(text.find("\n## 10."), text.find("\n## 11.") - text.find("\n## 10.")));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 3 && line.starts_with("| ") && line[2] >= '1' && line[2] <= '9') found += line + "\n";
  }
  EXPECT_EQ(found, listed);
}

TEST_F(FormatChecks, ALaterMinorVersionIsReadAndWhatItAddsIsIgnored) {
  const Tree tree;
  tree.file(kObjects, R"("version":"1.0")", R"("version":"1.12","since":1.12)");
  tree.file(kIndexOne, 10, number_bytes(3, 2));
  tree.file(kIndexOne, 48, "later");
  tree.sums(10, number_bytes(3, 2));
  tree.sums(48, "later");
  tree.sums(kHeader + 12, "x");
  tree.manifest(R"("version":"1.0")", R"("version":"1.7")");
  tree.member(R"("later":{"number":1152921504606846976})");
  tree.manifest(R"({"name":"a.whole")", R"({"later":[1e300],"name":"a.whole")");
  tree.manifest(R"({"kind":"irregular")", R"({"kind":"irregular","later":null)");
  const ReportedFlag told = read(tree.root());
  EXPECT_EQ(told.code, 0) << told.text;
  const ReportedFlag verified = verify_at(tree.root());
  EXPECT_EQ(verified.code, 0) << verified.text;
}

TEST_F(FormatChecks, ColumnsOfAPackedTensorAreConverted) {
  const Tree tree;
  EXPECT_EQ(converted(tree, "d.packed"), sample().bytes[3]);
}

TEST_F(FormatChecks, VerifySaysThatItComparedCopies) {
  const Tree tree;
  Session session{.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30, .threads = 2};
  const auto report = verify(session, {.path = tree.root()});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->replicated, 1u);
  EXPECT_NE(report->checked_by.find("all copies of 1 tensor"), std::string::npos) << report->checked_by;
}

TEST_F(FormatChecks, AConversionTakesTheCopyOfTheLowestWriter) {
  const Tree tree;
  std::string other = tree.bytes(kOther);
  other[data_begin(tree, kOther)] ^= 1;  // c.copies is its first entry
  tree.file(kOther, other);
  EXPECT_EQ(verify_at(tree.root()).code, 1);
  EXPECT_EQ(converted(tree, "c.copies"), sample().bytes[2]);
}

TEST_F(FormatChecks, TheTextThatIdentifiesADataFileIsComparedByItsMembers) {
  const Tree tree;
  const std::string bytes = tree.bytes(kShard);
  const std::size_t end = data_begin(tree, kShard);
  const std::string id = sample().manifest.id.hex();
  const std::string before =
      R"("{\"format\":\"1.0\",\"id\":\")" + id + R"(\",\"class\":\"weights\",\"writer\":1,\"volume\":0}")";
  const std::string after = R"("{ \"volume\":0, \"later\":[1], \"writer\":1,\"class\":\"weights\", \"id\":\")" + id +
                            R"(\", \"format\":\"1.0\" }")";
  std::string header = replaced(bytes.substr(0, end), before, after);
  ASSERT_EQ(header.substr(end), std::string(after.size() - before.size(), ' ')) << "padding";
  header.resize(end);
  tree.file(kShard, header + bytes.substr(end));
  const ReportedFlag verified = verify_at(tree.root());
  EXPECT_EQ(verified.code, 0) << verified.text;
}

TEST_F(FormatChecks, AnAliasMayHaveTheNameThatNoTensorMayHave) {
  const Tree tree;
  tree.manifest(R"("name":"z")", R"("name":"__metadata__")");
  const ReportedFlag told = read(tree.root());
  EXPECT_EQ(told.code, 0) << told.text;
  const ReportedFlag verified = verify_at(tree.root());
  EXPECT_EQ(verified.code, 0) << verified.text;
  // In a safetensors file an entry of this name would be the file's metadata.
  EXPECT_EQ(converted(tree, "a.whole"), sample().bytes[0]);
}

}  // namespace
}  // namespace ckpt
