// When a virtual checkpoint that left a mark is gone, and when that is not proven.
#include "catalog/scan/reference_marks.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "catalog/store_builder.hpp"

namespace ckpt::catalog {
namespace {

namespace fs = std::filesystem;

class ReferenceMarks : public testing::Test {
 protected:
  ReferenceMarks() : source_(store_.put("r", 1, 1)), root_(fs::canonical(away_.path())) {
    fs::create_directories(root_ + "/a/b");
    put_virtual(path_, "v", source_);
    mark_ = reference_mark(store_.io(), path_, id_).value();
  }

  /// A manifest at `path` that refers to the manifest of a checkpoint, or of an ordinary one ("").
  void put_virtual(const std::string& path, const std::string& id, const std::string& to) {
    universal::Manifest manifest;
    manifest.id = hash128(id);
    manifest.created = universal::utc_text(0);
    manifest.layouts = {universal::Layout{}};
    if (!to.empty()) manifest.references = {{.path = to, .files = {{.path = "manifest.json"}}}};
    fs::create_directories(path);
    test::write_file(path + "/manifest.json", universal::seal(manifest, {}, {}).value().manifest);
  }
  bool is_gone() { return is_owner_gone(store_.io(), source_, mark_); }

  test::StoreBuilder store_;
  const TempDir away_;
  const std::string source_;
  const std::string root_;
  const std::string path_ = root_ + "/a/b/v";
  const std::string id_ = hash128("v").hex();
  Mark mark_{};
};

TEST_F(ReferenceMarks, OneThatIsThereIsNotGone) {
  EXPECT_FALSE(is_gone());
  put_virtual(path_, "w", source_);  // replaced by one that refers to the same
  EXPECT_FALSE(is_gone());
  test::write_file(path_ + "/manifest.json", "{ torn");
  EXPECT_FALSE(is_gone());
  fs::remove(path_ + "/manifest.json");
  EXPECT_FALSE(is_gone());
}

TEST_F(ReferenceMarks, OneThatWasReplacedIsGone) {
  put_virtual(path_, "real", "");
  EXPECT_TRUE(is_gone());
  put_virtual(path_, "w", store_.put("r", 2, 2));
  EXPECT_TRUE(is_gone());
  put_virtual(path_, "x", source_ + "/../" + fs::path(source_).filename().string());
  EXPECT_FALSE(is_gone()) << "by another path";
}

TEST_F(ReferenceMarks, OneThatWasDeletedIsGoneAlsoWithDirectoriesAboveIt) {
  for (const char* below : {"/a/b/v", "/a/b", "/a"}) {
    fs::remove_all(root_ + below);
    EXPECT_TRUE(is_gone()) << below;
  }
}

TEST_F(ReferenceMarks, AnotherDirectoryAboveItProvesNothing) {
  for (const char* below : {"/a/b", "/a"}) {
    fs::rename(root_ + below, root_ + "/kept");
    fs::create_directories(root_ + "/a/b");
    EXPECT_FALSE(is_gone()) << below;
    fs::remove_all(root_ + below);
    fs::create_directories(fs::path(root_ + below).parent_path());
    fs::rename(root_ + "/kept", root_ + below);
    EXPECT_FALSE(is_gone()) << below;
  }
}

TEST_F(ReferenceMarks, WhatAnotherHostHasOnItsOwnDisksProvesNothing) {
  fs::remove_all(path_);
  ASSERT_TRUE(is_gone());
  const std::string host = " " + store_.io().host().self().host;
  ASSERT_TRUE(mark_.text.ends_with(host)) << "a local file system";
  mark_.text += "x";
  EXPECT_FALSE(is_gone());
  mark_.text.resize(mark_.text.size() - host.size() - 1);
  EXPECT_FALSE(is_gone()) << "it was on a file system of all hosts";
}

TEST_F(ReferenceMarks, ALinkThatLeadsNowhereProvesNothing) {
  fs::remove_all(path_);
  fs::create_symlink("nowhere", path_);
  EXPECT_FALSE(is_gone());
}

TEST_F(ReferenceMarks, AnIdOrATextThatIsNotUnderstoodProvesNothing) {
  fs::remove_all(path_);
  ASSERT_TRUE(is_gone());
  for (const std::string& text : {std::string(), id_, id_ + " 1/x h", id_ + " 1/2/3 h"}) {
    Mark changed = mark_;
    changed.text = text;
    EXPECT_FALSE(is_owner_gone(store_.io(), source_, changed)) << text;
  }
  mark_.name = id_;
  EXPECT_FALSE(is_gone());
}

TEST_F(ReferenceMarks, AMarkIsRemovedOnlyOnceItsOwnerIsGoneAndNobodyReads) {
  ASSERT_TRUE(write_mark(store_.io(), source_ + "/marks", mark_));
  EXPECT_EQ(find_referrer(store_.io(), source_), path_);
  EXPECT_FALSE(remove_ownerless(store_.io(), source_, path_).value());
  fs::remove_all(path_);
  {
    const auto reader = store_.io().lock(source_, LockMode::shared);
    ASSERT_TRUE(reader);
    EXPECT_FALSE(remove_ownerless(store_.io(), source_, path_).value()) << "it may be converted again now";
  }
  EXPECT_TRUE(remove_ownerless(store_.io(), source_, path_).value());
  EXPECT_TRUE(read_marks(store_.io(), source_ + "/marks").marks.empty());
}

}  // namespace
}  // namespace ckpt::catalog
