// ckpt/dcp.h, as a storage plug-in sees it: a coordinator and the ranks that write, each with calls of C alone.
#include "ckpt/dcp.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ckpt/ckpt.h"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CDcp : public testing::Test {
 protected:
  int write(const char* name) {
    return ckpt_dcp_write(target_.c_str(), name, items_.data(), items_.size(), 1, nullptr, nullptr);
  }
  std::string published(const char* name) const { return text_of(target_ + "/" + name); }

  const TempDir directory_{memory_temp_dir()};
  const std::string target_ = directory_.path() + "/step-300";
  const std::array<float, 6> values_{1, 2, 3, 4, 5, 6};
  const std::array<std::uint64_t, 2> shape_{2, 3};
  std::string object_ = "a pickle";
  std::array<ckpt_dcp_item, 2> items_{ckpt_dcp_item{.size = sizeof(ckpt_dcp_item),
                                                    .dtype = nullptr,
                                                    .shape = nullptr,
                                                    .ndim = 0,
                                                    .data = object_.data(),
                                                    .bytes = object_.size(),
                                                    .offset = 0,
                                                    .length = 0},
                                      ckpt_dcp_item{.size = sizeof(ckpt_dcp_item),
                                                    .dtype = "float32",
                                                    .shape = shape_.data(),
                                                    .ndim = 2,
                                                    .data = values_.data(),
                                                    .bytes = sizeof values_,
                                                    .offset = 0,
                                                    .length = 0}};
};

TEST_F(CDcp, RanksWriteTheCoordinatorPublishesAndItemsLieWhereTheCallSays) {
  ckpt_dcp* save = nullptr;
  ASSERT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_NEW, &save), 0) << ckpt_last_error_json();
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) ASSERT_EQ(write(name), 0) << ckpt_last_error_json();
  EXPECT_FALSE(fs::exists(target_)) << "nothing is there before it is published";
  ASSERT_EQ(ckpt_dcp_publish(save, "meta", 4), 0) << ckpt_last_error_json();
  ckpt_dcp_free(save);
  EXPECT_EQ(published(".metadata"), "meta");
  const std::string file = published("__1_0.distcp");
  EXPECT_EQ(file, published("__0_0.distcp"));
  EXPECT_EQ(file.substr(items_[0].offset, items_[0].length), object_);
  const std::string tensor = file.substr(items_[1].offset, items_[1].length);
  EXPECT_EQ(tensor.substr(0, 4), "PK\x03\x04") << "what torch.save writes";
  EXPECT_NE(tensor.find(std::string(reinterpret_cast<const char*>(values_.data()), sizeof values_)), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1) << "nothing is left beside it";
}

TEST_F(CDcp, AnOldCheckpointIsReplacedOnlyWhereThatWasAsked) {
  for (const char* metadata : {"old", "new"}) {
    ckpt_dcp* save = nullptr;
    ASSERT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_REPLACE, &save), 0) << ckpt_last_error_json();
    ASSERT_EQ(write("__0_0.distcp"), 0) << ckpt_last_error_json();
    ASSERT_EQ(ckpt_dcp_publish(save, metadata, 3), 0) << ckpt_last_error_json();
    EXPECT_NE(ckpt_dcp_publish(save, metadata, 3), 0) << "published twice";
    ckpt_dcp_free(save);
    EXPECT_EQ(published(".metadata"), metadata);
  }
  ckpt_dcp* save = nullptr;
  EXPECT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_NEW, &save), 2);
  std::ofstream(target_ + "/notes.txt") << "mine";
  EXPECT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_REPLACE, &save), 2);
  EXPECT_EQ(published(".metadata"), "new");
  EXPECT_EQ(published("notes.txt"), "mine");
}

TEST_F(CDcp, WrongCallsHaveTheCodesOfTheHeaderAndASaveThatIsGivenUpLeavesNothing) {
  EXPECT_EQ(write("__0_0.distcp"), 10) << "nobody began it";
  ckpt_dcp* save = nullptr;
  EXPECT_EQ(ckpt_dcp_begin(nullptr, CKPT_DCP_NEW, &save), 2);
  EXPECT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_NEW, nullptr), 2);
  EXPECT_EQ(ckpt_dcp_begin(target_.c_str(), 7, &save), 2);
  ASSERT_EQ(ckpt_dcp_begin(target_.c_str(), CKPT_DCP_NEW, &save), 0) << ckpt_last_error_json();
  items_[1].bytes -= 4;
  EXPECT_EQ(write("__0_0.distcp"), 2) << "fewer bytes than the shape";
  items_[1].bytes += 4;
  items_[1].dtype = "float33";
  EXPECT_EQ(write("__0_0.distcp"), 12);
  items_[1].dtype = "float32";
  items_[1].size = 8;
  EXPECT_EQ(write("__0_0.distcp"), 2) << "an item of another size";
  items_[1].size = sizeof(ckpt_dcp_item);
  ckpt_dcp_free(save);
  ckpt_dcp_free(nullptr);
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

}  // namespace
}  // namespace ckpt::test
