// What the Python package saves is shown as torch.save would have kept it. Golden: one tree, saved in both ways.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "convert/formats.hpp"
#include "convert/open_source.hpp"
#include "convert/universal/saved_tree.hpp"
#include "format/model/same_value.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kBlob = "python.json";

class SavedTree : public testing::TestWithParam<const char*> {
 protected:
  const std::string root_ = golden_root(std::string("trees/") + GetParam());
  const std::unique_ptr<Io> io_ = open_io(IoKind::threads).value();

  Map opened(const std::string& path, bool saved_trees) const {
    auto source = open_source(*io_, path, "", {.saved_trees = saved_trees});
    EXPECT_TRUE(source.has_value()) << source.error().message;
    return source ? std::move(source->map) : Map{};
  }
};

TEST_P(SavedTree, NamesRolesOrderAndBytesAreThoseOfATorchFile) {
  const Map saved = opened(root_, true);
  const std::string file = std::filesystem::path(root_).parent_path() / "tree.pt";
  const Map torch = opened(file, false);
  ASSERT_EQ(saved.tensors.size(), torch.tensors.size());
  ASSERT_GT(saved.tensors.size(), 30U);
  for (std::size_t i = 0; i < saved.tensors.size(); ++i) {
    const Tensor& one = saved.tensors[i];
    const Tensor& other = torch.tensors[i];
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.path, other.path) << one.name;
    EXPECT_EQ(one.dtype, other.dtype) << one.name;
    EXPECT_EQ(one.shape, other.shape) << one.name;
    EXPECT_EQ(one.role, other.role) << one.name;
    EXPECT_EQ(one.parameter, other.parameter) << one.name;
    EXPECT_EQ(one.slot, other.slot) << one.name;
    const Gathered bytes = gather(saved, root_, i);
    EXPECT_TRUE(bytes.complete && bytes.once) << one.name;
    EXPECT_EQ(bytes.bytes, gather(torch, file, i).bytes) << one.name;
  }
  ASSERT_EQ(saved.aliases.size(), 1U);
  EXPECT_EQ(saved.aliases[0].name, torch.aliases[0].name);
  EXPECT_EQ(saved.aliases[0].target, torch.aliases[0].target);
  EXPECT_TRUE(saved.nested && saved.module_order);
}

TEST_P(SavedTree, PlainValuesAndTheWholeTreeAreThoseOfATorchFile) {
  const Map saved = opened(root_, true);
  const Map torch = opened(std::filesystem::path(root_).parent_path() / "tree.pt", false);
  ASSERT_EQ(saved.objects.size(), torch.objects.size());
  for (std::size_t i = 0; i < saved.objects.size(); ++i) {
    EXPECT_EQ(saved.objects[i].name, torch.objects[i].name);
    EXPECT_EQ(saved.objects[i].path, torch.objects[i].path) << saved.objects[i].name;
    EXPECT_TRUE(same_value(saved.objects[i].value, torch.objects[i].value)) << saved.objects[i].name;
  }
  ASSERT_TRUE(saved.whole && torch.whole);
  const auto whole = saved.whole();
  const auto other = torch.whole();
  ASSERT_TRUE(whole.has_value() && other.has_value());
  EXPECT_TRUE(same_value(*whole->value, *other->value));
}

TEST_P(SavedTree, IsLeftAsItIsStoredUnlessAskedFor) {
  const Map stored = opened(root_, false);
  EXPECT_EQ(stored.tensors[find_tensor(stored, std::string(kBlob))].role, Role::blob);
  find_tensor(stored, "model.body%2E0%2Eweight");
  EXPECT_TRUE(stored.objects.empty());
}

TEST_P(SavedTree, DamageInTheTreeIsFound) {
  const TempDir copy;
  const std::string root = copy.path() + "/ckpt";
  std::filesystem::copy(root_, root, std::filesystem::copy_options::recursive);
  const Map stored = opened(root, false);
  const std::size_t blob = find_tensor(stored, std::string(kBlob));
  ASSERT_TRUE(stored.index->chunks(blob, {0, 1}, [&](const PlacedChunk& placed) -> Result<> {
    const std::string path = root + "/" + stored.files[placed.where.file].path;
    std::FILE* file = std::fopen(path.c_str(), "r+b");
    if (file == nullptr) return fail(Errc::io, path);
    std::fseek(file, static_cast<long>(placed.where.offset + 40), SEEK_SET);
    std::fputc('#', file);
    std::fclose(file);
    return {};
  }));
  const auto damaged = open_source(*io_, root, "", {.saved_trees = true});
  ASSERT_FALSE(damaged.has_value());
  EXPECT_EQ(damaged.error().code, Errc::checksum);
  EXPECT_NE(damaged.error().message.find("blobs/00000-00000.safetensors"), std::string::npos);
  // A salvage takes the tensors by the names that are stored.
  const auto salvaged = open_source(*io_, root, "", {.salvage = true, .saved_trees = true});
  ASSERT_TRUE(salvaged.has_value()) << salvaged.error().message;
  find_tensor(salvaged->map, "model.body%2E0%2Eweight");
}

/// With another blob of the tree's name, through the universal format: as another format's item may have.
TEST_P(SavedTree, AnotherBlobOfThatNameIsABlob) {
  Map map = opened(root_, false);
  const std::size_t blob = find_tensor(map, std::string(kBlob));
  const auto shown = [&](Map changed) {
    EXPECT_TRUE(universal::show_saved_tree(*io_, root_, UINT64_MAX, changed).has_value());
    return changed;
  };
  EXPECT_NE(shown(map).tensors.size(), map.tensors.size());
  Map shorter = map;  // the length of its text is wrong
  shorter.tensors[blob].shape = {map.tensors[blob].shape[0] - 1};
  Map fewer = map;  // it does not name this tensor
  fewer.tensors[find_tensor(map, "a%2Eb")].name = "c";
  for (const Map& each : {shorter, fewer}) {
    const Map seen = shown(each);
    EXPECT_EQ(seen.tensors.size(), map.tensors.size());
    ASSERT_EQ(seen.findings.size(), 1U);
    EXPECT_NE(seen.findings[0].text.find("shown as stored"), std::string::npos) << seen.findings[0].text;
  }
  Map converted = map;
  converted.origin = "dcp";
  EXPECT_EQ(shown(converted).tensors.size(), map.tensors.size());
  EXPECT_TRUE(shown(converted).findings.empty());
}

TEST_P(SavedTree, FilesOfTheModelStayBlobs) {
  Map map = opened(root_, false);
  const std::size_t other = find_tensor(map, "a.b");
  map.tensors[other].role = Role::blob;
  map.tensors[other].name = "extras/config.json";
  map.extras.push_back({"config.json", static_cast<std::uint32_t>(other)});
  const std::size_t tensors = map.tensors.size();
  ASSERT_TRUE(universal::show_saved_tree(*io_, root_, UINT64_MAX, map).has_value());
  ASSERT_EQ(map.tensors.size(), tensors - 1);
  const Tensor& extra = map.tensors[map.extras.at(0).tensor];
  EXPECT_EQ(extra.name, "extras/config.json");
  EXPECT_TRUE(extra.path.empty() && extra.role == Role::blob);
  EXPECT_EQ(gather(map, root_, map.extras[0].tensor).bytes, gather(opened(root_, false), root_, other).bytes);
}

TEST_P(SavedTree, ATreeThatDoesNotFitTheMemoryIsRefused) {
  // That of its text, and that of its leaves too.
  for (const std::uint64_t limit : {200'000U, 300'000U}) {
    const auto source = open_source(*io_, root_, "", {.metadata_limit = limit, .saved_trees = true});
    ASSERT_FALSE(source.has_value()) << limit;
    EXPECT_EQ(source.error().code, Errc::memory) << source.error().message;
    EXPECT_NE(source.error().message.find(kBlob), std::string::npos) << source.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SavedTree, testing::Values("one_process", "two_ranks"));

}  // namespace
}  // namespace ckpt
