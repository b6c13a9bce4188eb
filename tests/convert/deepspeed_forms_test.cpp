// Forms that DeepSpeed writes on GPUs, or with other programs' objects in them: laid out by hand after its sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/pickled.hpp"
#include "support/temp_dir.hpp"
#include "support/zip_writer.hpp"

namespace ckpt {
namespace {

using namespace test::py;

/// Float32 values from `first` on, one apart.
std::string floats(float first, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(first + static_cast<float>(i));
    for (unsigned b = 0; b < 4; ++b) out.push_back(static_cast<char>(bits >> (8 * b) & 0xff));
  }
  return out;
}

/// A directory that is a tag.
class Tag {
 public:
  void write(const std::string& name, const std::string& pickle, std::initializer_list<std::string_view> storages) {
    test::write_file(root() + "/" + name, test::torch_file(pickle, storages));
  }
  Result<Map> open() const {
    auto io = open_io(IoKind::threads, 8);
    EXPECT_TRUE(io.has_value());
    return deepspeed_format().reader->open(**io, root(), {});
  }
  std::string bytes(const Map& map, const std::string& name) const {
    return gather(map, root(), find_tensor(map, name)).bytes;
  }
  const std::string& root() const { return directory_.path(); }

 private:
  TempDir directory_;
};

const NamedObject* find_object(const Map& map, const std::string& name) {
  const auto at = std::find_if(map.objects.begin(), map.objects.end(),
                               [&](const NamedObject& object) { return object.name == name; });
  return at == map.objects.end() ? nullptr : &*at;
}

bool has_tensor(const Map& map, const std::string& name) {
  return std::any_of(map.tensors.begin(), map.tensors.end(), [&](const Tensor& t) { return t.name == name; });
}

constexpr const char* kModel = "mp_rank_00_model_states.pt";

/// Stage 0 with two weights, a [2,3] and b [3], in storages 0 and 1, and this optimizer.
std::string stage_zero(const std::string& optimizer) {
  return pickled(dict({{"module", dict({{"a", tensor("0", 6, 0, {2, 3}, {3, 1})}, {"b", vector("1", 3)}})},
                       {"buffer_names", list({})},
                       {"optimizer", optimizer},
                       {"param_shapes", none()},
                       {"global_steps", integer(8)}}));
}

/// One flat group of both weights: storage 2 holds the masters, 3 and 4 the moments.
std::string flat_stage_zero() {
  return stage_zero(dict(
      {{"cur_scale", integer(1)},
       {"optimizer_state_dict",
        dict({{"state",
               numbered({dict({{"step", integer(4)}, {"exp_avg", vector("3", 9)}, {"exp_avg_sq", vector("4", 9)}})})},
              {"param_groups", list({dict({{"lr", integer(1)}, {"params", list({integer(0)})}})})}})},
       {"fp32_groups_flat", list({vector("2", 9)})}}));
}

TEST(DeepSpeedFlatStageZero, OneTensorAGroupIsCutAtItsParameters) {
  Tag tag;
  tag.write(kModel, flat_stage_zero(),
            {floats(100, 6), floats(106, 3), floats(100, 9), floats(200, 9), floats(300, 9)});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(tag.bytes(*map, "a"), floats(100, 6));
  EXPECT_EQ(tag.bytes(*map, "optimizer.state.a.master"), floats(100, 6));
  EXPECT_EQ(tag.bytes(*map, "optimizer.state.b.master"), floats(106, 3));
  EXPECT_EQ(tag.bytes(*map, "optimizer.state.a.exp_avg"), floats(200, 6));
  EXPECT_EQ(tag.bytes(*map, "optimizer.state.b.exp_avg_sq"), floats(306, 3));
  EXPECT_EQ(map->tensors[find_tensor(*map, "optimizer.state.a.master")].shape, (Shape{2, 3}));
  EXPECT_NE(find_object(*map, "optimizer.group_state"), nullptr);
  EXPECT_TRUE(map->findings.empty());
}

TEST(DeepSpeedFlatStageZero, MastersThatAreNotThoseOfTheWeightsInOrderAreGivenToNone) {
  Tag tag;
  tag.write(kModel, flat_stage_zero(),
            {floats(103, 6), floats(100, 3), floats(100, 9), floats(200, 9), floats(300, 9)});  // b, then a
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_FALSE(has_tensor(*map, "optimizer.state.a.master"));
  EXPECT_FALSE(map->findings.empty());
}

TEST(DeepSpeedFlatStageZero, FlatStateOfAnotherLengthThanTheMasterIsCorrupt) {
  Tag tag;
  tag.write(kModel,
            stage_zero(dict(
                {{"optimizer_state_dict", dict({{"state", numbered({dict({{"exp_avg", vector("3", 8)}})})},
                                                {"param_groups", list({dict({{"params", list({integer(0)})}})})}})},
                 {"fp32_groups_flat", list({vector("2", 9)})}})),
            {floats(100, 6), floats(106, 3), floats(100, 9), floats(200, 8)});
  const auto map = tag.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_NE(map.error().message.find("exp_avg has 8 elements, the master 9"), std::string::npos) << map.error().message;
}

TEST(DeepSpeedStageZero, StateThatCannotBeNamedKeepsItsIndex) {
  Tag tag;
  // Two groups, and no state by which to know the shapes of their members.
  tag.write(
      kModel,
      stage_zero(dict(
          {{"state", numbered({dict({{"row", vector("2", 2)}}), dict({{"row", vector("3", 1)}})})},
           {"param_groups", list({dict({{"params", list({integer(0)})}}), dict({{"params", list({integer(1)})}})})}})),
      {floats(0, 6), floats(10, 3), floats(20, 2), floats(30, 1)});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const Tensor& row = map->tensors[find_tensor(*map, "optimizer.state.0.row")];
  EXPECT_EQ(row.parameter, "");
  EXPECT_EQ(row.slot, "row");
  EXPECT_EQ(tag.bytes(*map, "optimizer.state.1.row"), floats(30, 1));
  EXPECT_FALSE(has_tensor(*map, "optimizer.state.a.master"));
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
  const NamedObject* groups = find_object(*map, "optimizer.param_groups");
  ASSERT_NE(groups, nullptr);
  const auto& second = std::get<Dict>(std::get<List>(groups->value.v).items.at(1)->v);
  EXPECT_EQ(std::get<std::int64_t>(std::get<List>(second.items.back().second->v).items.at(0)->v), 1);
}

TEST(DeepSpeedStageZero, MembersThatNoGroupCountsAreCorrupt) {
  Tag tag;
  tag.write(kModel,
            stage_zero(dict({{"state", numbered({})},
                             {"param_groups", list({dict({{"params", list({integer(1'000'000'000'000)})}})})}})),
            {floats(0, 6), floats(10, 3)});
  const auto map = tag.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
}

TEST(DeepSpeedStageZero, AnOptimizerOfUnknownFormIsKeptAsAnObjectWithItsTensors) {
  Tag tag;
  tag.write(kModel, stage_zero(dict({{"mine", list({vector("2", 4), integer(9)})}})),
            {floats(0, 6), floats(10, 3), floats(20, 4)});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(tag.bytes(*map, "optimizer.mine.0"), floats(20, 4));
  const Tensor& tensor = map->tensors[find_tensor(*map, "optimizer.mine.0")];
  EXPECT_EQ(tensor.role, Role::slot);
  EXPECT_EQ(tensor.path, (Path{"optimizer", "mine", std::int64_t{0}}));
  EXPECT_NE(find_object(*map, "optimizer"), nullptr);
}

TEST(DeepSpeedWithoutOptimizer, WeightsAndBuffersStandAlone) {
  Tag tag;
  tag.write(kModel,
            pickled(dict({{"module", dict({{"a", vector("0", 3)}, {"seen", vector("1", 1)}, {"extra", integer(5)}})},
                          {"buffer_names", list({text("seen")})}})),
            {floats(0, 3), floats(9, 1)});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 2u);
  EXPECT_EQ(map->tensors[0].role, Role::param);
  EXPECT_EQ(map->tensors[1].role, Role::buffer);
  ASSERT_NE(find_object(*map, "extra"), nullptr);  // what a layer keeps in the module beside tensors
  EXPECT_EQ(map->meta.step, std::nullopt);
}

TEST(DeepSpeedTies, EqualViewsAreOneTensorAndOverlappingOnesAreNot) {
  Tag tag;
  tag.write(kModel,
            pickled(dict({{"module", dict({{"a", vector("0", 4)},
                                           {"b", vector("0", 4)},
                                           {"c", tensor("0", 4, 1, {3}, {1})},
                                           {"empty", tensor("1", 0, 0, {0}, {1})},
                                           {"void", tensor("1", 0, 0, {0}, {1})}})}})),
            {floats(0, 4), ""});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->aliases.size(), 1u);
  EXPECT_EQ(map->aliases[0].name, "b");
  EXPECT_EQ(map->aliases[0].target, "a");
  EXPECT_EQ(tag.bytes(*map, "c"), floats(1, 3));
  EXPECT_TRUE(has_tensor(*map, "empty") && has_tensor(*map, "void"));
}

TEST(DeepSpeedClientState, ObjectsOfUnknownClassesKeepTheWholePickleOnce) {
  Tag tag;
  const std::string pickle = pickled(dict({{"module", dict({{"a", vector("0", 3)}})},
                                           {"mine", object("my.code", "Thing", dict({{"x", integer(1)}}))},
                                           {"other", object("my.code", "Thing", dict({{"x", integer(2)}}))}}));
  tag.write(kModel, pickle, {floats(0, 3)});
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors[find_tensor(*map, kModel)].role, Role::blob);
  EXPECT_EQ(tag.bytes(*map, kModel), pickle);
  const NamedObject* mine = find_object(*map, "mine");
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(std::get<Opaque>(mine->value.v).global, "my.code.Thing");
}

TEST(DeepSpeedClientState, RanksOwnTensorsAreKeptARank) {
  Tag tag;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string r = std::to_string(rank);
    // The weight of 3 elements is cut into parts of 2.
    tag.write("zero_pp_rank_" + r + "_mp_rank_00_model_states.pt",
              pickled(dict({{"module", dict({{"a", tensor("0", 0, 0, {0}, {1})}})},
                            {"param_shapes", list({dict({{"a", list({integer(3)})}})})},
                            {"dp_world_size", integer(2)},
                            {"rng_state", list({vector("1", 4)})},
                            {"note", text("same")}})),
              {"", floats(static_cast<float>(50 + rank), 4)});
    tag.write("zero_pp_rank_" + r + "_mp_rank_00_optim_states.pt",
              pickled(dict({{"optimizer_state_dict", dict({{"zero_stage", integer(3)},
                                                           {"partition_count", integer(2)},
                                                           {"fp32_flat_groups", list({vector("0", 2)})}})}})),
              {floats(static_cast<float>(2 * rank), 2)});
  }
  const auto map = tag.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(tag.bytes(*map, "a"), floats(0, 3));
  EXPECT_EQ(tag.bytes(*map, "rng_state.0"), floats(50, 4));
  EXPECT_EQ(tag.bytes(*map, "rng_state.0@1"), floats(51, 4));
  EXPECT_NE(find_object(*map, "rng_state@0"), nullptr);
  EXPECT_NE(find_object(*map, "rng_state@1"), nullptr);
  EXPECT_NE(find_object(*map, "note"), nullptr);
  EXPECT_EQ(find_object(*map, "note@0"), nullptr);
}

TEST(DeepSpeedSlots, StateThatIsNotElementByElementIsUnsupportedNotCorrupt) {
  for (const auto& [slot, code] : {std::pair{"qmap1", Errc::unsupported}, std::pair{"exp_avg", Errc::corrupt}}) {
    Tag tag;
    tag.write(kModel,
              pickled(dict({{"module", dict({{"a", vector("0", 2)}})},
                            {"param_shapes", list({dict({{"a", list({integer(2)})}})})}})),
              {floats(0, 2)});
    tag.write("zero_pp_rank_0_mp_rank_00_optim_states.pt",
              pickled(dict({{"optimizer_state_dict",
                             dict({{"zero_stage", integer(1)},
                                   {"partition_count", list({integer(1)})},
                                   {"single_partition_of_fp32_groups", list({vector("0", 2)})},
                                   {"base_optimizer_state",
                                    dict({{"state", numbered({dict({{slot, vector("1", 7)}})})},
                                          {"param_groups", list({dict({{"params", list({integer(0)})}})})}})}})}})),
              {floats(0, 2), floats(9, 7)});
    const auto map = tag.open();
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, code) << map.error().message;
    EXPECT_NE(map.error().message.find(std::string(slot) + " has 7 elements"), std::string::npos)
        << map.error().message;
  }
}

}  // namespace
}  // namespace ckpt
