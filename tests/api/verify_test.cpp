// verify of checkpoints that other tools wrote: genuine ones are clean, with figures of what was compared; each kind of
// damage that no checksum shows is found by what the values say about each other, and names its file and place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/convert/source_check.hpp"
#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "convert/torch_patch.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class Verify : public testing::Test {
 protected:
  Verify() {
    auto opened = open_io(IoKind::threads, 8);
    EXPECT_TRUE(opened);
    io_ = std::move(*opened);
  }

  /// A copy of a genuine case, to be damaged.
  std::string copy_of(const std::string& name) {
    const std::string root = directory_.path() + "/" + std::to_string(copies_++);
    fs::copy(golden_root(name), root, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
    }
    return root;
  }
  Session session() { return {.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30, .threads = 2}; }

  VerifyReport verify_with(const VerifyRequest& request) {
    Session open = session();
    auto report = verify(open, request);
    EXPECT_TRUE(report) << (report ? "" : report.error().message);
    return report ? *std::move(report) : VerifyReport{};
  }
  VerifyReport verify_at(const std::string& root) { return verify_with({.path = root}); }
  Result<ConvertReport> convert_at(const std::string& root, VerifyLevel level) {
    Session open = session();
    return convert(open,
                   {.source = root, .target = directory_.path() + "/out" + std::to_string(copies_++), .verify = level});
  }

  /// Where an element of a tensor stands in the files: the n-th holder.
  struct Place {
    std::string file;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Place> places_of(const std::string& root, const std::string& tensor) {
    const auto source = open_source(*io_, root, "", {});
    EXPECT_TRUE(source);
    std::vector<Place> out;
    if (!source) return out;
    const std::size_t index = find_tensor(source->map, tensor);
    const auto visited =
        source->map.index->chunks(index, {0, volume(source->map.tensors[index].shape)}, [&](const PlacedChunk& placed) {
          out.push_back({source->root + "/" + source->map.files[placed.where.file].path, placed.where.offset,
                         placed.chunk.volume() * unit_bytes(placed.where.dtype)});
          return Result<>();
        });
    EXPECT_TRUE(visited);
    return out;
  }
  static void flip(const Place& place, std::uint64_t byte, unsigned bits) {
    std::string bytes = test::read_file(place.file);
    bytes[place.offset + byte] = static_cast<char>(static_cast<unsigned char>(bytes[place.offset + byte]) ^ bits);
    test::write_file(place.file, bytes);
  }
  static bool names(const std::vector<Finding>& damage, const std::string& text, const std::string& file,
                    const std::string& tensor) {
    return std::any_of(damage.begin(), damage.end(), [&](const Finding& finding) {
      return finding.severity == Severity::damage && finding.text.find(text) != std::string::npos &&
             finding.file == file && finding.tensor == tensor && finding.offset.has_value();
    });
  }

  TempDir directory_{memory_temp_dir()};
  std::unique_ptr<Io> io_;
  std::unique_ptr<Comm> comm_ = Comm::solo();
  unsigned copies_ = 0;
};

constexpr const char* kZero2 = "deepspeed/zero2_bf16_dp4";

/// A genuine case, and what there is to compare in it.
struct Clean {
  const char* name;
  std::uint64_t checksums;
  std::uint64_t masters;
  std::uint64_t with_copies;
};

class VerifyClean : public Verify, public testing::WithParamInterface<Clean> {};

TEST_P(VerifyClean, AGenuineCheckpointIsCleanAndAllOfItIsCompared) {
  const VerifyReport report = verify_at(golden_root(GetParam().name));
  EXPECT_TRUE(report.ok);
  for (const Finding& finding : report.damage) ADD_FAILURE() << finding.text << " " << finding.file;
  EXPECT_EQ(report.crc_checked, GetParam().checksums);
  EXPECT_EQ(report.crc_unread, 0u);
  EXPECT_EQ(report.masters, GetParam().masters);
  EXPECT_EQ(report.replicated, GetParam().with_copies);
  const auto converted = convert_at(golden_root(GetParam().name), VerifyLevel::full);
  if (std::string_view(GetParam().name).ends_with("no_tensors")) {
    ASSERT_FALSE(converted) << "there is nothing to convert";
    EXPECT_EQ(converted.error().code, Errc::unsupported);
  } else {
    EXPECT_TRUE(converted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, VerifyClean,
    testing::Values(
        Clean{"deepspeed/bf16opt_dp2", 14, 10, 0}, Clean{"deepspeed/moe_ep1_dp2_zero2_fp32", 29, 17, 0},
        Clean{"deepspeed/moe_ep2_dp2_bf16opt", 25, 13, 0}, Clean{"deepspeed/moe_ep2_dp2_zero0_bf16", 125, 21, 20},
        Clean{"deepspeed/moe_ep2_dp2_zero0_fp32", 99, 21, 15},
        Clean{"deepspeed/moe_ep2_dp4_zero1_fp32_data_first", 72, 48, 0},
        Clean{"deepspeed/moe_ep2_dp4_zero2_bf16", 45, 21, 0}, Clean{"deepspeed/moe_mixed_dp4_zero2_bf16", 76, 40, 0},
        Clean{"deepspeed/moe_ep2_tp2_dp4_zero2_bf16_slices", 130, 20, 20},
        Clean{"deepspeed/moe_ep4_tp2_dp4_zero1_fp32", 122, 24, 20},
        Clean{"deepspeed/moe_ep2_tp2_dp2_zero0_fp32", 128, 24, 28},
        Clean{"deepspeed/moe_ep2_pp2_dp2_zero1_fp32", 94, 45, 4}, Clean{"deepspeed/pp2_dp2_zero1_fp32", 19, 7, 3},
        Clean{"deepspeed/tp2_dp2_zero1_fp32", 14, 8, 16}, Clean{"deepspeed/universal_from_zero2_bf16_dp4", 33, 10, 0},
        Clean{"deepspeed/universal_from_zero3_bf16_dp4", 30, 0, 0},
        Clean{"deepspeed/zero0_bf16_dp1_groups_frozen", 48, 9, 0}, Clean{"deepspeed/zero0_bf16_dp2", 50, 10, 0},
        Clean{"deepspeed/zero0_fp32_dp1_groups_tied", 44, 11, 0}, Clean{"deepspeed/zero0_fp32_dp2", 40, 10, 0},
        Clean{"deepspeed/zero1_bf16_dp3_aligned", 23, 9, 0}, Clean{"deepspeed/zero1_fp16_dp2", 7, 10, 0},
        Clean{"deepspeed/zero2_bf16_dp2_offload_cpu", 7, 10, 0}, Clean{"deepspeed/zero2_bf16_dp4", 26, 10, 0},
        Clean{"deepspeed/zero2_fp32_dp2_legacy_pt", 0, 10, 0}, Clean{"deepspeed/zero2_fp32_dp3_elastic", 23, 9, 0},
        Clean{"deepspeed/zero2_fp32_dp3_frozen", 26, 6, 0}, Clean{"deepspeed/zero2_fp32_dp3_round_robin", 10, 10, 0},
        Clean{"deepspeed/zero3_bf16_dp1_nvme", 3, 0, 0}, Clean{"deepspeed/zero3_bf16_dp3_frozen", 36, 0, 0},
        Clean{"deepspeed/zero3_bf16_dp4", 36, 0, 0}, Clean{"deepspeed/zero3_fp32_dp3_tied_tiny", 13, 0, 0},
        Clean{"torch/dcp_2d_s0_s1", 73, 0, 0}, Clean{"torch/dcp_all_dtypes", 63, 0, 0},
        Clean{"torch/dcp_async", 40, 0, 0}, Clean{"torch/dcp_file_per_item", 67, 0, 0},
        Clean{"torch/dcp_hsdp", 40, 0, 0}, Clean{"torch/dcp_no_collectives", 44, 0, 4},
        Clean{"torch/dcp_plain", 67, 0, 0}, Clean{"torch/dcp_safetensors", 0, 0, 0},
        Clean{"torch/dcp_shard1", 64, 0, 0}, Clean{"torch/dcp_threads2", 67, 0, 0}, Clean{"torch/fsdp1_full", 32, 0, 0},
        Clean{"torch/fsdp1_sharded", 56, 0, 0}, Clean{"torch/fsdp2_flat_optim", 81, 0, 0},
        Clean{"torch/fsdp2_hsdp_bf16", 57, 0, 0}, Clean{"torch/fsdp2_nested_optim", 105, 0, 0},
        Clean{"torch/hf_consolidated", 0, 0, 0}, Clean{"torch/hf_sharded", 0, 0, 0}, Clean{"torch/pt_align4k", 2, 0, 0},
        Clean{"torch/pt_dtypes", 21, 0, 0}, Clean{"torch/pt_legacy", 0, 0, 0}, Clean{"torch/pt_mixed", 8, 0, 0},
        Clean{"torch/pt_nocrc", 0, 0, 0}, Clean{"folders/hf_trainer", 64, 0, 0}, Clean{"torch/pt_trainer", 64, 0, 0},
        Clean{"torch/rank_files_dtensor", 25, 0, 1}, Clean{"torch/rank_files_placements", 28, 0, 2},
        Clean{"torch/tc_plain", 9, 0, 0}, Clean{"torch/tc_shard0_w3", 27, 0, 3},
        Clean{"torch/tp2_fsdp2_strided", 61, 0, 0}, Clean{"safetensors/dtypes", 0, 0, 0},
        Clean{"safetensors/empty_and_scalar", 0, 0, 0}, Clean{"safetensors/gpt2_single_file", 0, 0, 0},
        Clean{"safetensors/gpt2_tied", 0, 0, 0}, Clean{"safetensors/llama_sharded", 0, 0, 0},
        Clean{"safetensors/llama_tied_sharded", 0, 0, 0}, Clean{"safetensors/mixtral_sharded", 0, 0, 0},
        Clean{"safetensors/no_tensors", 0, 0, 0}, Clean{"safetensors/single", 0, 0, 0}),
    [](const auto& param) {
      std::string name = param.param.name;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '/' || c == '-' || c == '.'; }, '_');
      return name;
    });

const std::string kRank = "/global_step3/bf16_zero_pp_rank_";
const std::string kRankEnd = "_mp_rank_00_optim_states.pt";

TEST_F(Verify, AFlippedBitInAWeightIsFoundByItsChecksumAndByItsMaster) {
  const std::string root = copy_of(kZero2);
  const Place place = places_of(root, "wte.weight").front();
  flip(place, 10, 1);
  const VerifyReport report = verify_at(root);
  EXPECT_FALSE(report.ok);
  EXPECT_TRUE(names(report.damage, "CRC-32", place.file, "wte.weight"));
  EXPECT_TRUE(names(report.damage, "does not round to the stored weight: 1 of", place.file, "wte.weight"));
  const auto converted = convert_at(root, VerifyLevel::read);
  ASSERT_FALSE(converted);
  EXPECT_EQ(converted.error().code, Errc::checksum);
}

TEST_F(Verify, AMastersExponentThatChangedIsFoundInAFormThatHasNoChecksums) {
  const std::string root = copy_of("deepspeed/zero2_fp32_dp2_legacy_pt");
  const auto source = open_source(*io_, root, "", {});
  ASSERT_TRUE(source);
  const Map& map = source->map;
  const auto master =
      std::find_if(map.tensors.begin(), map.tensors.end(), [](const Tensor& t) { return t.slot == "master"; });
  ASSERT_NE(master, map.tensors.end());
  const Place place = places_of(root, master->name).front();
  flip(place, 3, 0x10);
  const VerifyReport report = verify_at(root);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.crc_checked, 0u);
  ASSERT_EQ(report.damage.size(), 1u);
  EXPECT_EQ(report.damage[0].tensor, master->parameter);
  EXPECT_NE(report.damage[0].text.find(place.file + " at " + std::to_string(place.offset)), std::string::npos)
      << report.damage[0].text;
  EXPECT_NE(report.damage[0].text.find("1 of "), std::string::npos);
  // A conversion that only reads cannot see it; one that was asked to compare does.
  EXPECT_TRUE(convert_at(root, VerifyLevel::read));
  const auto converted = convert_at(root, VerifyLevel::full);
  ASSERT_FALSE(converted);
  EXPECT_EQ(converted.error().code, Errc::corrupt);
  EXPECT_EQ(converted.error().tensor, master->parameter);
  EXPECT_TRUE(converted.error().offset);
}

TEST_F(Verify, RankFilesThatChangedPlacesAreFound) {
  for (const char* name : {"deepspeed/zero2_fp32_dp2_legacy_pt", "deepspeed/zero1_fp16_dp2"}) {
    SCOPED_TRACE(name);
    const std::string root = copy_of(name);
    std::vector<std::string> ranks;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().string().ends_with("optim_states.pt")) ranks.push_back(entry.path());
    }
    ASSERT_EQ(ranks.size(), 2u);
    fs::rename(ranks[0], root + "/other");
    fs::rename(ranks[1], ranks[0]);
    fs::rename(root + "/other", ranks[1]);
    const VerifyReport report = verify_at(root);
    EXPECT_FALSE(report.ok);
    ASSERT_FALSE(report.damage.empty());
    EXPECT_NE((report.damage[0].file + report.damage[0].text).find("optim_states.pt"), std::string::npos);
    EXPECT_FALSE(convert_at(root, VerifyLevel::full));
  }
}

TEST_F(Verify, ARanksFileCopiedOverAnothersIsFound) {
  const std::string root = copy_of(kZero2);
  fs::copy_file(root + kRank + "0" + kRankEnd, root + kRank + "2" + kRankEnd, fs::copy_options::overwrite_existing);
  const VerifyReport report = verify_at(root);
  EXPECT_FALSE(report.ok);
  ASSERT_FALSE(report.damage.empty());
  EXPECT_NE(report.damage[0].file.find("rank_2"), std::string::npos) << report.damage[0].file;
}

/// No file has the 16-bit weights of ZeRO-3, with which masters could be compared: the name under which each file was
/// saved, which its zip directory keeps, finds the copy when the directory is opened.
TEST_F(Verify, ARanksFileCopiedOverAnothersOfZero3IsRefusedByTheNameItWasSavedUnder) {
  const std::string root = copy_of("deepspeed/zero3_bf16_dp4");
  const std::string copied = root + kRank + "2" + kRankEnd;
  for (const char* from : {"0", "1", "3"}) {
    SCOPED_TRACE(from);
    fs::copy_file(root + kRank + from + kRankEnd, copied, fs::copy_options::overwrite_existing);
    const VerifyReport report = verify_at(root);
    EXPECT_FALSE(report.ok);
    ASSERT_EQ(report.damage.size(), 1u);
    EXPECT_EQ(report.damage[0].file, copied) << report.damage[0].text;
    EXPECT_NE(report.damage[0].text.find("was saved as"), std::string::npos) << report.damage[0].text;
    EXPECT_FALSE(convert_at(root, VerifyLevel::none));
  }
}

TEST_F(Verify, AFileOfAnotherStepIsRefusedWithItsNameAndBothSteps) {
  const std::string root = copy_of("deepspeed/zero3_fp32_dp3_tied_tiny");
  const std::string model = root + "/global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt";
  test::TorchPatch(model).replace({"global_steps"}, "K\x03", "K\x04").write();
  const VerifyReport report = verify_at(root);
  EXPECT_FALSE(report.ok);
  ASSERT_EQ(report.damage.size(), 1u);
  EXPECT_EQ(report.damage[0].file, model);
  EXPECT_NE(report.damage[0].text.find("global_steps is 4, that of rank 0 is 3"), std::string::npos)
      << report.damage[0].text;
}

/// Files of DCP that are laid out alike say neither their rank nor their tensors: each CRC-32 is right, and the values
/// are other ones. Another copy tells.
TEST_F(Verify, ExchangedFilesOfDcpThatAreLaidOutAlikeAreFoundAgainstACopyOnly) {
  const std::string root = copy_of("torch/dcp_all_dtypes");
  Session open = session();
  const std::string copy = directory_.path() + "/universal";
  ASSERT_TRUE(convert(open, {.source = root, .target = copy, .to = "ckpt"}));
  ASSERT_TRUE(verify_with({.path = root, .against = copy}).ok);
  fs::rename(root + "/__0_0.distcp", root + "/other");
  fs::rename(root + "/__1_0.distcp", root + "/__0_0.distcp");
  fs::rename(root + "/other", root + "/__1_0.distcp");
  EXPECT_TRUE(verify_at(root).ok) << "something tells: say so in docs/formats.md";
  EXPECT_FALSE(verify_with({.path = root, .against = copy}).ok);
}

TEST_F(Verify, AFlippedBitInPaddingThatNoTensorNeedsIsFoundByItsChecksum) {
  const std::string root = copy_of("deepspeed/zero2_fp32_dp3_frozen");
  const auto source = open_source(*io_, root, "", {});
  ASSERT_TRUE(source);
  // The end of a storage that is longer than what the tensors take of it.
  std::optional<Crc> crc;
  std::uint32_t file = 0;
  std::uint64_t used = 0;
  for (std::size_t t = 0; t < source->map.tensors.size(); ++t) {
    const auto visited =
        source->map.index->chunks(t, {0, volume(source->map.tensors[t].shape)}, [&](const PlacedChunk& placed) {
          const std::uint64_t end = placed.where.offset + placed.chunk.volume() * unit_bytes(placed.where.dtype);
          if (!placed.where.crc) return Result<>();
          if (crc && (placed.where.file != file || placed.where.crc->begin != crc->begin)) {
            if (used < crc->end) return Result<>();
            used = 0;
          }
          crc = placed.where.crc;
          file = placed.where.file;
          used = std::max(used, end);
          return Result<>();
        });
    ASSERT_TRUE(visited);
  }
  if (!crc || used >= crc->end) GTEST_SKIP() << "this case pads nothing";
  flip({source->root + "/" + source->map.files[file].path, used, 1}, 0, 1);
  EXPECT_FALSE(verify_at(root).ok);
}

TEST_F(Verify, ACopyThatDiffersIsFoundWithItsFileAndOffset) {
  const std::string root = copy_of("deepspeed/tp2_dp2_zero1_fp32");
  const auto source = open_source(*io_, root, "", {});
  ASSERT_TRUE(source);
  for (const Tensor& tensor : source->map.tensors) {
    const std::vector<Place> places = places_of(root, tensor.name);
    if (tensor.role != Role::param || places.size() != 2 || places[0].file == places[1].file ||
        places[1].bytes != volume(tensor.shape) * unit_bytes(tensor.dtype)) {
      continue;
    }
    flip(places[1], 0, 1);
    const VerifyReport report = verify_at(root);
    EXPECT_FALSE(report.ok);
    for (const Finding& finding : report.damage) {
      if (finding.tensor != tensor.name || finding.text.find("CRC") != std::string::npos) continue;
      EXPECT_EQ(finding.file, places[1].file);
      EXPECT_EQ(finding.offset, places[1].offset);
      EXPECT_NE(finding.text.find("1 of "), std::string::npos) << finding.text;
      return;
    }
    FAIL() << "no finding names the copy of " << tensor.name;
  }
  FAIL() << "no parameter is held twice";
}

TEST_F(Verify, FiniteNamesEveryTensorThatHoldsANaNOrAnInfinity) {
  const std::string root = copy_of("deepspeed/zero2_fp32_dp2_legacy_pt");
  EXPECT_TRUE(verify_with({.path = root, .finite = true}).finite_checked);
  const std::string slot = "optimizer.state.wte.weight.exp_avg";
  const Place place = places_of(root, slot).front();
  std::string bytes = test::read_file(place.file);
  const float values[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};
  std::memcpy(bytes.data() + place.offset, values, sizeof values);
  test::write_file(place.file, bytes);
  EXPECT_TRUE(verify_at(root).ok) << "nobody asked";
  const VerifyReport report = verify_with({.path = root, .finite = true});
  EXPECT_FALSE(report.ok);
  EXPECT_TRUE(report.damage.empty());
  ASSERT_EQ(report.not_finite.size(), 1u);
  EXPECT_EQ(report.not_finite[0].name, slot);
  EXPECT_EQ(report.not_finite[0].nan, 1u);
  EXPECT_EQ(report.not_finite[0].infinite, 2u);
  // The universal form that was made from it says the same.
  Session open = session();
  const std::string target = directory_.path() + "/universal";
  ASSERT_TRUE(convert(open, {.source = root, .target = target, .to = "ckpt"}));
  const VerifyReport universal = verify_with({.path = target, .finite = true});
  EXPECT_FALSE(universal.ok);
  ASSERT_EQ(universal.not_finite.size(), 1u);
  EXPECT_EQ(universal.not_finite[0].infinite, 2u);
}

TEST_F(Verify, ASampleLooksAtItsShareAndSaysSo) {
  // 24 MiB of one tensor: six leaves beside that of the small ones.
  const std::string root = copy_of("safetensors/single");
  std::string header = R"({"a":{"dtype":"U8","shape":[25165824],"data_offsets":[0,25165824]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  const std::string file = root + "/big.safetensors";
  test::write_file(file, bytes + header + std::string(25165824, 'x'));
  const VerifyReport whole = verify_with({.path = file});
  EXPECT_EQ(whole.bytes, 25165824u);
  for (const std::uint64_t seed : {0u, 1u, 2u}) {
    const VerifyReport some = verify_with({.path = file, .sample = Sample{.share = 0.5, .seed = seed}});
    EXPECT_TRUE(some.ok);
    EXPECT_GT(some.bytes, 0u);
    EXPECT_LT(some.bytes, whole.bytes);
    EXPECT_EQ(some.bytes, verify_with({.path = file, .sample = Sample{.share = 0.5, .seed = seed}}).bytes);
    EXPECT_NE(some.checked_by.find(" of 6 leaves"), std::string::npos) << some.checked_by;
  }
  Session open = session();
  const std::string target = directory_.path() + "/universal";
  ASSERT_TRUE(convert(open, {.source = file, .target = target, .to = "ckpt"}));
  const VerifyReport hashed = verify_with({.path = target, .sample = Sample{.share = 0.3, .seed = 5}});
  EXPECT_TRUE(hashed.ok);
  EXPECT_GT(hashed.leaf_count, 0u);
  EXPECT_LT(hashed.leaf_count, verify_with({.path = target}).leaf_count);
}

TEST(Sample, IsTheSameForTheSameSeedNeverEmptyAndAboutItsShare) {
  const auto count = [](const std::vector<bool>& chosen) { return std::count(chosen.begin(), chosen.end(), true); };
  const Sample tenth{.share = 0.1, .seed = 3};
  EXPECT_EQ(choose_sample(tenth, 10000), choose_sample(tenth, 10000));
  EXPECT_NE(choose_sample(tenth, 10000), choose_sample({.share = 0.1, .seed = 4}, 10000));
  EXPECT_NEAR(static_cast<double>(count(choose_sample(tenth, 10000))), 1000.0, 120.0);
  EXPECT_EQ(count(choose_sample({.share = 1e-12}, 100)), 1);
  EXPECT_EQ(count(choose_sample({.share = 1}, 100)), 100);
  EXPECT_TRUE(choose_sample(tenth, 0).empty());
}

}  // namespace
}  // namespace ckpt
