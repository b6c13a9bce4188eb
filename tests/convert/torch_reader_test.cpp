#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/pickle_writer.hpp"
#include "support/temp_dir.hpp"
#include "support/zip_writer.hpp"

namespace ckpt {
namespace {

using test::PickleWriter;
using test::torch_file;

const std::string kFour = "0123456789abcdef";  // four floats

// A dict of these entries; each text is the opcodes of a key and its value.
std::string dict(std::initializer_list<std::string> entries) {
  std::string text = "}(";
  for (const std::string& entry : entries) text += entry;
  return text + "u";
}
std::string key(std::string_view name) {
  const std::string text = PickleWriter(0).text(name).stop();
  return text.substr(0, text.size() - 1);
}
std::string tensor(std::string_view storage = "0") {
  const std::string text = PickleWriter(0).tensor(storage, 4, 0, {4}, {1}).stop();
  return text.substr(0, text.size() - 1);
}
std::string pickle(const std::string& value) {
  return "\x80\x02" + value + ".";
}
std::string file_of(const std::string& value) {
  return torch_file(pickle(value), {kFour, kFour, kFour});
}

class TorchReader : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    const auto path = std::filesystem::path(temp_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    test::write_file(path.string(), bytes);
  }
  Result<Map> open(const std::string& name = "") {
    auto io = open_io(IoKind::threads, 4);
    if (!io) return tl::unexpected<Error>(io.error());
    return torch_format().reader->open(**io, name.empty() ? temp_.path() : temp_.path() + "/" + name, {});
  }
  Map opened(const std::string& name = "") {
    auto map = open(name);
    EXPECT_TRUE(map) << (map ? "" : map.error().message);
    return map ? *std::move(map) : Map{};
  }
  Map of(const std::string& value) {
    write("one.pt", file_of(value));
    return opened("one.pt");
  }
  bool is_detected(const std::string& name = "") {
    auto io = open_io(IoKind::threads, 4);
    EXPECT_TRUE(io);
    Place place{.io = **io, .root = name.empty() ? temp_.path() : temp_.path() + "/" + name, .directory = name.empty()};
    if (place.directory) place.entries = *(*io)->list(place.root);
    const auto match = torch_format().detect(place);
    EXPECT_TRUE(match);
    return match && match->has_value();
  }

  TempDir temp_;
};

std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const Tensor& one : map.tensors) names.push_back(one.name);
  return names;
}
using Names = std::vector<std::string>;

const Tensor& named(const Map& map, const std::string& name) {
  return map.tensors[find_tensor(map, name)];
}

TEST_F(TorchReader, NamesAreThePathFromTheRoot) {
  const Map map = of(dict({key("model") + dict({key("w") + tensor("0")}), key("list") + "](" + tensor("1") + "K\5e"}));
  EXPECT_EQ(names_of(map), (Names{"model.w", "list.0"}));
  EXPECT_EQ(named(map, "model.w").path, Path{});
  EXPECT_EQ(named(map, "list.0").path, (Path{"list", 0}));
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(map.objects[0].name, "list.1");
  EXPECT_TRUE(map.nested);
  EXPECT_EQ(map.files.at(0).path, "");
}

TEST_F(TorchReader, ABareTensorHasAName) {
  EXPECT_EQ(names_of(of(tensor())), Names{"tensor"});
}

TEST_F(TorchReader, TheDeviceOfAStorageDoesNotMatter) {
  std::string all = "}(";
  for (const std::string device : {"cpu", "cuda:3", "xla:0", "hpu", "mps", "npu:1", "privateuseone"}) {
    std::string there = tensor();
    std::string stored = "X" + std::string({'\3', '\0', '\0', '\0'}) + "cpu";
    const std::size_t at = there.find(stored);
    ASSERT_NE(at, std::string::npos);
    const std::string other = "X" + std::string({static_cast<char>(device.size()), '\0', '\0', '\0'}) + device;
    there.replace(at, stored.size(), other);
    all += key(device) + there;
  }
  const Map map = of(all + "u");
  // One storage, one view, whatever the device: one tensor with six other names.
  ASSERT_EQ(map.tensors.size(), 1u);
  EXPECT_EQ(map.aliases.size(), 6u);
  EXPECT_EQ(gather(map, temp_.path() + "/one.pt", 0).bytes, kFour);
}

TEST_F(TorchReader, NamesOfOtherScriptsStandAsTheyAre) {
  const std::string name = "\xe5\xb1\xa4.\xce\xb1\xe2\x82\x81";
  EXPECT_EQ(names_of(of(dict({key(name) + tensor()}))), Names{name});
}

TEST_F(TorchReader, NamesThatCollideAreEscapedInAllOfThem) {
  const Map map = of(dict({key("a.b") + tensor("0"), key("a") + dict({key("b") + tensor("1")}),
                           key("a%2Eb") + tensor("2"), key("c.d") + "N"}));
  EXPECT_EQ(names_of(map), (Names{"a%2Eb", "a.b", "a%252Eb"}));
  EXPECT_EQ(named(map, "a%2Eb").path, (Path{"a.b"}));
  EXPECT_EQ(map.objects.at(0).name, "c.d");  // collides with nothing: stands
  EXPECT_TRUE(std::any_of(map.findings.begin(), map.findings.end(),
                          [](const Finding& finding) { return finding.text.find("a%252Eb") != std::string::npos; }));
}

TEST_F(TorchReader, NamesThatAreNotUtf8AreEscaped) {
  const Map map = of(dict({"U\2w\xff" + tensor()}));
  EXPECT_EQ(names_of(map), Names{"w%FF"});
  EXPECT_EQ(named(map, "w%FF").path, (Path{"w\xff"}));
}

TEST_F(TorchReader, AnIndexAndItsTextGetTwoNames) {
  const Map map = of(dict(
      {key("0") + tensor("0"), "K" + std::string(1, '\0') + tensor("1"), key("%30") + tensor("2"), key("1") + "N"}));
  EXPECT_EQ(names_of(map), (Names{"%30", "0", "%2530"}));
  EXPECT_EQ(named(map, "%30").path, (Path{"0"}));
  EXPECT_EQ(map.objects.at(0).name, "1");
}

TEST_F(TorchReader, EqualViewsAreOneTensorAndOthersAreNot) {
  const std::string half = PickleWriter(0).tensor("0", 4, 0, {2}, {1}).stop();
  const Map map = of(dict({key("emb") + tensor("0"), key("head") + tensor("0"), key("copy") + tensor("1"),
                           key("half") + half.substr(0, half.size() - 1)}));
  EXPECT_EQ(names_of(map), (Names{"emb", "copy", "half"}));
  ASSERT_EQ(map.aliases.size(), 1u);
  EXPECT_EQ(map.aliases[0].name, "head");
  EXPECT_EQ(map.aliases[0].target, "emb");
}

TEST_F(TorchReader, AParameterAndAPlainTensorOfTheSameMemoryStayTwo) {
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n" + tensor("0") + "\x88}\x87R";
  const Map map = of(dict({key("plain") + tensor("0"), key("one") + parameter, key("two") + parameter}));
  EXPECT_EQ(names_of(map), (Names{"plain", "one"}));
  ASSERT_EQ(map.aliases.size(), 1u);
  EXPECT_EQ(map.aliases[0].name, "two");
  EXPECT_EQ(map.aliases[0].target, "one");
}

TEST_F(TorchReader, AnOptimizerIsKnownByWhatItHolds) {
  const std::string group = dict({key("params") + "](K\1K\2e", key("param_names") + "](" + key("w") + key("x") + "e"});
  const std::string state =
      dict({"K\1" + dict({key("mu") + tensor("1"), key("deep") + dict({key("nu") + tensor("2")})})});
  const Map map = of(dict({key("model") + dict({key("w") + tensor("0")}),
                           key("adamish") + dict({key("state") + state, key("param_groups") + "](" + group + "e"})}));
  EXPECT_EQ(named(map, "model.w").role, Role::param);
  const Tensor& mu = named(map, "adamish.state.1.mu");
  EXPECT_EQ(mu.role, Role::slot);
  EXPECT_EQ(mu.slot, "mu");
  EXPECT_EQ(mu.parameter, "model.w");
  EXPECT_EQ(named(map, "adamish.state.1.deep.nu").slot, "deep.nu");
}

TEST_F(TorchReader, MembersOfParameterGroupsStayTheNumbersThatTheStateIsKeyedBy) {
  const std::string group = dict({key("params") + "](K\1e", key("param_names") + "](" + key("w") + "e"});
  const std::string optimizer =
      dict({key("state") + dict({"K\1" + dict({key("mu") + tensor("1")})}), key("param_groups") + "](" + group + "e"});
  const Map map = of(dict({key("model") + dict({key("w") + tensor("0")}), key("optimizer") + optimizer}));
  EXPECT_EQ(named(map, "optimizer.state.1.mu").parameter, "model.w");
  const auto params = std::ranges::find(map.objects, "optimizer.param_groups.0.params.0", &NamedObject::name);
  ASSERT_NE(params, map.objects.end());
  EXPECT_EQ(std::get<std::int64_t>(params->value.v), 1);
}

TEST_F(TorchReader, StateByIndexNamesNoParameterWhereTheGroupsDoNot) {
  const std::string group = dict({key("params") + "](K\1e"});
  const std::string state = dict({"K\1" + dict({key("exp_avg") + tensor("1")})});
  const Map map = of(
      dict({key("1") + tensor("0"), key("optimizer_states") + "](" +
                                        dict({key("state") + state, key("param_groups") + "](" + group + "e"}) + "e"}));
  const Tensor& slot = named(map, "optimizer_states.0.state.1.exp_avg");
  EXPECT_EQ(slot.role, Role::slot);
  EXPECT_EQ(slot.slot, "exp_avg");
  EXPECT_EQ(slot.parameter, "");
}

TEST_F(TorchReader, ParametersAreFoundInAnotherFile) {
  write("a_model.pt", file_of(dict({key("layer.w") + tensor("0")})));
  write("b_optim.pt", file_of(dict({key("state") + dict({key("layer.w") + dict({key("exp_avg") + tensor("0")})}),
                                    key("param_groups") + "]"})));
  write("c_other.pt", file_of(dict({key("layer.b") + tensor("0")})));
  const Map map = opened();
  EXPECT_EQ(names_of(map), (Names{"layer.w", "b_optim.pt/state.layer.w.exp_avg", "c_other.pt/layer.b"}));
  EXPECT_EQ(map.tensors[1].parameter, "layer.w");
  EXPECT_EQ(map.tensors[1].path, (Path{"b_optim.pt", "state", "layer.w", "exp_avg"}));
}

TEST_F(TorchReader, LongListsOfPlainValuesStayTogether) {
  const std::string sixteen = "](" + std::string("K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1") + "e";
  const std::string seventeen = "](" + std::string("K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1") + "e";
  EXPECT_EQ(of(dict({key("n") + sixteen})).objects.size(), 16u);
  const Map map = of(dict({key("n") + seventeen}));
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(std::get<List>(map.objects[0].value.v).items.size(), 17u);
}

TEST_F(TorchReader, TensorsInsideObjectsAreFoundAndThePickleIsKept) {
  const std::string object =
      "cmy.module\nNet\n)\x81" + dict({key("weight") + tensor("0"), key("training") + "\x88"}) + "b";
  const Map map = of(dict({key("net") + object}));
  EXPECT_EQ(names_of(map), (Names{"net.weight", "data.pkl", "data/1", "data/2"}));
  EXPECT_EQ(named(map, "data.pkl").role, Role::blob);
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(map.objects[0].name, "net.training");
  EXPECT_TRUE(std::any_of(map.findings.begin(), map.findings.end(), [](const Finding& finding) {
    return finding.text.find("my.module.Net") != std::string::npos && finding.severity == Severity::note;
  }));
}

TEST_F(TorchReader, ObjectsWithoutTensorsAreOneInertValue) {
  const Map map = of(dict({key("net") + "cmy.module\nNet\n)\x81" + dict({key("lr") + "K\1"}) + "b"}));
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(map.objects[0].name, "net");
  EXPECT_EQ(std::get<Opaque>(map.objects[0].value.v).global, "my.module.Net");
}

TEST_F(TorchReader, VersionsOfModulesAreKept) {
  const std::string text = PickleWriter(0).ordered_dict().raw("(").raw(key("w") + tensor() + "u").stop();
  const Map map = of(text.substr(0, text.size() - 1) + dict({key("_metadata") + dict({key("version") + "K\2"})}) + "b");
  EXPECT_EQ(names_of(map), Names{"w"});
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(map.objects[0].name, "_metadata");  // one value, however many modules
}

TEST_F(TorchReader, ADictInsideItselfEnds) {
  const Map map = of("}q\1" + key("me") + "h\1s" + key("w") + tensor() + "s");
  EXPECT_EQ(names_of(map), Names{"w"});
  ASSERT_EQ(map.objects.size(), 1u);
  EXPECT_EQ(map.objects[0].name, "me");
}

TEST_F(TorchReader, TheStepIsAnIntegerOfTheRoot) {
  EXPECT_EQ(of(dict({key("epoch") + "K\1", key("step") + "K\2", key("global_step") + "K\3"})).meta.step, 3u);
  EXPECT_EQ(of(dict({key("step") + "K\2"})).meta.step, 2u);
  EXPECT_EQ(of(dict({key("epoch") + "K\1", key("step") + tensor()})).meta.step, std::nullopt);
}

TEST_F(TorchReader, ASeriesHasNoPrefixesAndTheIndexDecides) {
  write("pytorch_model.bin.index.json", R"({"metadata": {}, "weight_map": {"a": "m-1.bin", "b": "m-2.bin"}})");
  write("m-1.bin", file_of(dict({key("a") + tensor("0"), key("b") + tensor("1")})));  // a stale b
  write("m-2.bin", file_of(dict({key("b") + tensor("0")})));
  write("optimizer.pt", file_of(dict({key("state") + "}", key("param_groups") + "]", key("x") + tensor("0")})));
  const Map map = opened();
  EXPECT_EQ(names_of(map), (Names{"a", "b", "optimizer.x"}));
  Result<> seen = map.index->chunks(1, {0, 4}, [&](const PlacedChunk& placed) -> Result<> {
    EXPECT_EQ(map.files[placed.where.file].path, "m-2.bin");
    return {};
  });
  EXPECT_TRUE(seen);
}

TEST_F(TorchReader, SeriesThatMissSomethingAreIncomplete) {
  write("pytorch_model.bin.index.json", R"({"weight_map": {"a": "m-1.bin", "b": "m-2.bin"}})");
  write("m-1.bin", file_of(dict({key("a") + tensor("0")})));
  auto map = open();
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::incomplete);
  EXPECT_NE(map.error().message.find("m-2.bin"), std::string::npos);
  write("m-2.bin", file_of(dict({key("c") + tensor("0")})));
  map = open();
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::incomplete);
  EXPECT_EQ(map.error().tensor, "b");
}

TEST_F(TorchReader, FilesOfAnEarlierSaveUnderTheNameOfTheIndexAreNotRead) {
  const std::string index = R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin", )"
                            R"("b": "pytorch_model-00002-of-00002.bin"}})";
  write("pytorch_model.bin.index.json", index);
  write("pytorch_model-00001-of-00002.bin", file_of(dict({key("a") + tensor("0")})));
  write("pytorch_model-00002-of-00002.bin", file_of(dict({key("b") + tensor("0")})));
  for (const char* stale :
       {"pytorch_model-00001-of-00003.bin", "pytorch_model-00003-of-00003.bin", "pytorch_model.bin"})
    write(stale, file_of(dict({key("b") + tensor("1")})));
  const Map map = opened();
  EXPECT_EQ(names_of(map), (Names{"a", "b"}));
  EXPECT_EQ(map.files.size(), 2u);
  EXPECT_FALSE(map.collection);
}

TEST_F(TorchReader, AnIndexOfWhichNoFileIsLeftGivesWayToTheOneFile) {
  write("pytorch_model.bin.index.json", R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}})");
  write("pytorch_model.bin", file_of(dict({key("b") + tensor("1")})));
  const Map map = opened();
  EXPECT_EQ(names_of(map), Names{"b"});
  ASSERT_EQ(map.findings.size(), 1u);
  EXPECT_NE(map.findings[0].text.find("left over from an earlier save"), std::string::npos) << map.findings[0].text;
}

TEST_F(TorchReader, AnIndexThatLeavesTheDirectoryIsRefused) {
  write("pytorch_model.bin.index.json", R"({"weight_map": {"a": "../m-1.bin"}})");
  write("m-1.bin", file_of(dict({key("a") + tensor("0")})));
  ASSERT_FALSE(open());
  EXPECT_EQ(open().error().code, Errc::refused);
}

TEST_F(TorchReader, TensorsOfOtherKindsDoNotHideTheOthers) {
  const std::string quantised = "ctorch._utils\n_rebuild_qtensor\n)R";
  const Map map = of(dict({key("w") + tensor("1"), key("q") + quantised}));
  EXPECT_EQ(names_of(map), (Names{"w", "data.pkl", "data/0", "data/2"}));
  ASSERT_FALSE(map.findings.empty());
  EXPECT_EQ(map.findings[0].severity, Severity::warning);
  EXPECT_NE(map.findings[0].text.find("q (quantized tensor)"), std::string::npos);
}

TEST_F(TorchReader, DetectionLooksAtNamesAndFirstBytes) {
  EXPECT_FALSE(is_detected());
  write("notes.bin", "not a torch file");
  EXPECT_FALSE(is_detected());
  EXPECT_FALSE(is_detected("notes.bin"));
  write("weights.xyz", file_of(dict({})));
  EXPECT_TRUE(is_detected("weights.xyz"));  // by its first entry
  write("legacy.xyz", "L119547037146038801333356L\n.");
  EXPECT_TRUE(is_detected("legacy.xyz"));
  EXPECT_FALSE(is_detected());  // in a directory the name must say it
  write("best.pth.tar", file_of(dict({})));
  EXPECT_TRUE(is_detected());
  std::filesystem::remove(temp_.path() + "/best.pth.tar");
  EXPECT_FALSE(is_detected());
  write("model.pt", file_of(dict({})));
  EXPECT_TRUE(is_detected());
  EXPECT_TRUE(is_detected("model.pt"));
  write("arrays.npz", test::ZipWriter().add("x.npy", "").finish());
  EXPECT_FALSE(is_detected("arrays.npz"));
  write("__0_0.distcp", file_of(dict({})));
  EXPECT_FALSE(is_detected());  // parts of a distributed checkpoint
  EXPECT_FALSE(is_detected("__0_0.distcp"));
}

TEST_F(TorchReader, CompanionsOfSafetensorsAreNotACheckpointOfTheirOwn) {
  write("model.safetensors", "");
  write("optimizer.pt", file_of(dict({})));
  write("rng_state_0.pth", file_of(dict({})));
  for (const std::string name : {"optimizer.bin", "optimizer_1.bin", "scheduler.bin", "sampler_0.bin", "scaler.pt",
                                 "dl_state_dict.bin", "training_args.bin"}) {
    write(name, file_of(dict({})));
  }
  EXPECT_FALSE(is_detected());
  write("pytorch_model.bin", file_of(dict({})));
  EXPECT_TRUE(is_detected());
}

TEST_F(TorchReader, ADifferentPickleIsADifferentFingerprint) {
  const std::string first = of(dict({key("step") + "K\1"})).metadata_hash;
  EXPECT_EQ(of(dict({key("step") + "K\1"})).metadata_hash, first);
  EXPECT_NE(of(dict({key("step") + "K\2"})).metadata_hash, first);
  EXPECT_EQ(first.size(), 32u);
}

}  // namespace
}  // namespace ckpt
