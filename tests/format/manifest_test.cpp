#include "format/universal/manifest.hpp"

#include <gtest/gtest.h>

#include <string>

#include "format/universal/sums.hpp"

namespace ckpt::universal {
namespace {

TensorRow row(std::string name, Dtype dtype, Shape shape, Role role = Role::param, std::uint32_t volume = 0) {
  TensorRow out;
  out.tensor.name = std::move(name);
  out.tensor.dtype = dtype;
  out.tensor.shape = std::move(shape);
  out.tensor.role = role;
  out.volume = volume;
  return out;
}

/// Something in every member.
Manifest sample() {
  Manifest manifest;
  manifest.id = hash128("id");
  manifest.created = utc_text(1'767'323'045'000'000'006);
  manifest.generator = "ckpt 0.1.0";
  manifest.source = {"deepspeed", hash128("source"), "tag global_step3 from 'latest'"};
  manifest.meta = {.step = 3,
                   .world_size = (std::uint64_t{1} << 53),
                   .mesh = {{"dp", 4}, {"zero", 2}},
                   .framework = "deepspeed",
                   .framework_version = "0.16.4",
                   .user = {{"note", "a \"quoted\" \n line"}}};
  manifest.nested = true;
  manifest.run = {"big run", 2, 40, 1, 7, std::string(32, 'a')};
  manifest.layouts.push_back(
      {.kind = Layout::Kind::mesh,
       .mesh = {{{"pp", 2}, {"tp", 2}, {"dp", 4}, {"cp", 1}, {"ep", 2}}},
       .at = {{.axis = 0, .indices = {0, 1}}},
       .cuts = {{.dim = 0, .axes = {1}, .rule = Layout::Cut::Rule::even, .segments = {2, 1}},
                {.dim = 1, .axes = {4, 3}, .rule = Layout::Cut::Rule::points, .points = {0, 4, 5}}},
       .flat = Layout::Flat{.axes = {2}, .part = (std::uint64_t{1} << 53)}});
  manifest.layouts.push_back({.kind = Layout::Kind::irregular});
  manifest.optional_features = {"sparkle"};
  manifest.sums_bytes = 192;
  manifest.sums_hash = hash128("sums");
  manifest.digests = {{"sha256", "00ff"}};
  manifest.findings = {{Severity::warning, "a trap", "rank_3.bin", "w"}, {Severity::incomplete, "rank 4 is missing"}};
  manifest.aliases = {{"tied", "w"}, {"tied.too", "w", {"tied.too"}}};
  manifest.tensors = {row("blob", Dtype::u8, {5}, Role::blob), row("empty", Dtype::f4, {0, 3}, Role::buffer),
                      row("scalar", Dtype::i64, {}), row("w", Dtype::bf16, {3, 5}),
                      row("w.m", Dtype::f32, {3, 5}, Role::slot, 4'294'967'295)};
  Tensor& slot = manifest.tensors[4].tensor;
  slot.parameter = "w";
  slot.slot = "exp_avg";
  slot.path = {std::string("w.m"), std::int64_t{0}, std::string("\xff")};
  manifest.tensors[2].layout = 2;
  manifest.tensors[3].layout = 1;
  manifest.tensors[3].begin = (std::uint64_t{1} << 53) + 1;
  manifest.tensors[1].tensor.true_dtype = "float4_e2m1fn_x2";
  return manifest;
}

std::string built(const Manifest& manifest = sample()) {
  Result<std::string> text = build_manifest(manifest);
  EXPECT_TRUE(text) << text.error().message;
  return text.value_or("");
}

/// Seals a document that was changed: replaces its last member.
std::string sealed(std::string text) {
  text.resize(text.size() - 35);
  text += hash128(text).hex();
  return text + "\"}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : sealed(text.replace(at, from.size(), to));
}

void expect_fails(const std::string& text, Errc code) {
  const Result<Manifest> manifest = parse_manifest(text);
  ASSERT_FALSE(manifest) << text;
  EXPECT_EQ(manifest.error().code, code) << manifest.error().message;
}

TEST(Manifest, ReadsBackAsItWasBuilt) {
  const Manifest in = sample();
  const Result<Manifest> out = parse_manifest(built(in));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->id, in.id);
  EXPECT_EQ(out->created, "2026-01-02T03:04:05.000000006Z");
  EXPECT_EQ(out->generator, in.generator);
  ASSERT_TRUE(out->source);
  EXPECT_EQ(out->source->format, in.source->format);
  EXPECT_EQ(out->source->fingerprint, in.source->fingerprint);
  EXPECT_EQ(out->source->chosen, in.source->chosen);
  EXPECT_EQ(out->meta.step, in.meta.step);
  EXPECT_EQ(out->meta.world_size, in.meta.world_size);
  EXPECT_EQ(out->meta.mesh, in.meta.mesh);
  EXPECT_EQ(out->meta.framework, in.meta.framework);
  EXPECT_EQ(out->meta.framework_version, in.meta.framework_version);
  EXPECT_EQ(out->meta.user, in.meta.user);
  EXPECT_TRUE(out->nested);
  EXPECT_EQ(out->version, "1.0");
  EXPECT_EQ(out->run, in.run);
  EXPECT_EQ(out->layouts, in.layouts);
  EXPECT_EQ(out->optional_features, in.optional_features);
  EXPECT_EQ(out->sums_bytes, in.sums_bytes);
  EXPECT_EQ(out->sums_hash, in.sums_hash);
  EXPECT_EQ(out->digests, in.digests);
  ASSERT_EQ(out->findings.size(), 2u);
  EXPECT_EQ(out->findings[0].severity, Severity::warning);
  EXPECT_EQ(out->findings[0].text, "a trap");
  EXPECT_EQ(out->findings[0].file, "rank_3.bin");
  EXPECT_EQ(out->findings[0].tensor, "w");
  EXPECT_EQ(out->findings[1].severity, Severity::incomplete);
  ASSERT_EQ(out->aliases.size(), 2u);
  EXPECT_EQ(out->aliases[0].name, "tied");
  EXPECT_EQ(out->aliases[0].target, "w");
  EXPECT_TRUE(out->aliases[0].path.empty());
  EXPECT_EQ(out->aliases[1].path, Path{"tied.too"});
  ASSERT_EQ(out->tensors.size(), in.tensors.size());
  for (std::size_t i = 0; i < in.tensors.size(); ++i) {
    const Tensor& a = out->tensors[i].tensor;
    const Tensor& b = in.tensors[i].tensor;
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.true_dtype, b.true_dtype);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.role, b.role);
    EXPECT_EQ(a.parameter, b.parameter);
    EXPECT_EQ(a.slot, b.slot);
    EXPECT_EQ(out->tensors[i].file(), in.tensors[i].file());
    EXPECT_EQ(out->tensors[i].layout, in.tensors[i].layout);
    EXPECT_EQ(out->tensors[i].begin, in.tensors[i].begin);
  }
  EXPECT_EQ(out->tensors[4].file(), (FileKey{FileClass::optim, 0, 4'294'967'295}));
  EXPECT_EQ(out->tensors[0].file(), (FileKey{FileClass::blobs, 0, 0}));
  EXPECT_EQ(out->tensors[1].file(), (FileKey{FileClass::weights, 0, 0}));
}

TEST(Manifest, TheSameValueGivesTheSameBytes) {
  const Result<Manifest> again = parse_manifest(built());
  ASSERT_TRUE(again);
  EXPECT_EQ(built(*again), built());
}

TEST(Manifest, EverySingleBitFlipIsFound) {
  const std::string text = built();
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      const Result<Manifest> manifest = parse_manifest(flipped);
      ASSERT_FALSE(manifest) << "byte " << byte << " bit " << bit;
      ASSERT_EQ(exit_code(manifest.error().code), 15) << manifest.error().message;
    }
  }
}

TEST(Manifest, EveryTruncationIsCorrupt) {
  const std::string text = built();
  for (std::size_t size = 0; size < text.size(); ++size) expect_fails(text.substr(0, size), Errc::corrupt);
  expect_fails(text + "\n", Errc::corrupt);
}

TEST(Manifest, AChangedByteIsAWrongChecksum) {
  std::string text = built();
  text[text.find("deepspeed")] = 'D';
  expect_fails(text, Errc::checksum);
}

TEST(Manifest, TheHashMustBeAMemberAndTheLast) {
  // The key is "xxh3 with an escaped quotation mark in front: the bytes at the end look the same.
  expect_fails(replaced(built(), ",\n\"xxh3\":", R"(,"\"xxh3":)"), Errc::corrupt);
}

TEST(Manifest, NewerThingsAreNamedBeforeAnythingElse) {
  const std::string text = replaced(built(), R"("dtype":"BF16")", R"("dtype":7)");
  expect_fails(text, Errc::corrupt);
  expect_fails(replaced(text, R"("version":"1.0")", R"("version":"2.0")"), Errc::newer);
  expect_fails(replaced(text, R"("version":"1.0")", R"("version":"1.")"), Errc::newer);
  expect_fails(replaced(text, R"("version":"1.0")", R"("version":"1.00")"), Errc::newer);
  expect_fails(replaced(text, R"("required":[])", R"("required":["zstd"])"), Errc::newer);
  expect_fails(replaced(text, R"("kind":"whole")", R"("kind":"spiral")"), Errc::newer);
  expect_fails(replaced(text, R"("rule":"even")", R"("rule":"odd")"), Errc::newer);
  expect_fails(replaced(text, R"("version":"1.0")", R"("version":"0.9")"), Errc::newer);  // which has layout whole only
  expect_fails(replaced(text, R"("digests")", R"("dropped":["blobs"],"digests")"), Errc::newer);
}

TEST(Manifest, ALaterMinorVersionIsReadAndWordsThatNobodyKnowsAreNewer) {
  const std::string text = replaced(built(), R"("version":"1.0")", R"("version":"1.12")");
  EXPECT_TRUE(parse_manifest(text));
  expect_fails(replaced(text, R"("dtype":"BF16")", R"("dtype":"bf16")"), Errc::newer);
  expect_fails(replaced(text, R"("role":"buffer")", R"("role":"thing")"), Errc::newer);
  expect_fails(replaced(text, R"("severity":"warning")", R"("severity":"terrible")"), Errc::newer);
}

TEST(Manifest, ARevisionChangesNothingButWhatWasDropped) {
  const std::string text = built();
  const auto demoted = revise_manifest(text, {FileClass::optim});
  ASSERT_TRUE(demoted) << demoted.error().message;
  const auto manifest = parse_manifest(*demoted);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->revision, 1u);
  EXPECT_TRUE(manifest->is_dropped(FileClass::optim));
  EXPECT_FALSE(manifest->is_dropped(FileClass::weights));
  EXPECT_EQ(manifest->tensors.size(), 5u);
  const std::string kept = text.substr(0, text.rfind("\"xxh3\""));
  EXPECT_TRUE(demoted->starts_with(kept)) << "every byte of what there was stays";
  const auto back = revise_manifest(*demoted, {});
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(parse_manifest(*back)->revision, 2u);
  EXPECT_TRUE(parse_manifest(*back)->dropped.empty());
  EXPECT_EQ(back->size(), demoted->size() - std::string(R"("optim")").size());
}

TEST(Manifest, ARevisionThatStandsElsewhereIsLeftAlone) {
  const std::string text = replaced(built(), R"("digests")", R"("revision":4,"dropped":["optim"],"digests")");
  ASSERT_TRUE(parse_manifest(text));
  const auto revised = revise_manifest(text, {});
  ASSERT_FALSE(revised);
  EXPECT_EQ(revised.error().code, Errc::unsupported);
}

TEST(Manifest, AnOptimizerThatHoldsTheOnlyValueOfAParameterIsNeeded) {
  Manifest manifest;
  manifest.tensors.push_back({.tensor = {.name = "m", .role = Role::slot, .parameter = "w", .slot = "master"}});
  EXPECT_EQ(check_weights_alone(manifest).error().code, Errc::unsupported) << "nothing else is left";
  manifest.tensors.push_back({.tensor = {.name = "v"}});
  EXPECT_EQ(check_weights_alone(manifest).error().tensor, "m");
  manifest.tensors.push_back({.tensor = {.name = "w"}});
  EXPECT_TRUE(check_weights_alone(manifest));
  manifest.aliases.push_back({.name = "also", .target = "m"});
  EXPECT_EQ(check_weights_alone(manifest).error().tensor, "also");
}

TEST(Manifest, UnknownMembersAreIgnored) {
  const std::string text =
      replaced(replaced(built(), R"("digests")", R"("revision":0,"dropped":[],"x":{"y":[1,null]},"digests")"),
               R"("role":"slot")", R"("role":"slot","note":[{}])");
  const Result<Manifest> manifest = parse_manifest(text);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->tensors.size(), 5u);
}

TEST(Manifest, EveryBrokenRuleIsCorrupt) {
  struct Case {
    std::string from, to;
  };
  for (const auto& [from, to] :
       std::vector<Case>{{R"("id":")", R"("id":"0)"},
                         {R"("created":"2026-)", R"("created":"26-)"},
                         {R"("generator":"ckpt 0.1.0")", R"("generator":null)"},
                         {R"("fingerprint":")", R"("fingerprint":"x)"},
                         {R"("step":3)", R"("step":-3)"},
                         {R"("step":3)", R"("step":3.0)"},
                         {R"("step":3)", R"("step":"3")"},
                         {R"("world_size":"9007199254740992")", R"("world_size":9007199254740992)"},
                         {R"("world_size":"9007199254740992")", R"("world_size":"18446744073709551616")"},
                         {R"("mesh":{)", R"("mesh":{"x":"y",)"},
                         {R"("framework":{"name":"deepspeed")", R"("framework":{"label":"deepspeed")"},
                         {R"("nested":true)", R"("nested":1)"},
                         {R"("optional":["sparkle"])", R"("optional":[1])"},
                         {R"("required":[])", R"("required":{})"},
                         {R"("features":{)", R"("feature":{)"},
                         {R"("series":2)", R"("series":null)"},
                         {R"("series_from":40)", R"("series_from":-1)"},
                         {R"("series_after":1)", R"("series_after":"1")"},
                         {R"("generation":7)", R"("generations":7)"},
                         {R"("parent":"a)", R"("parent":"A)"},
                         {R"("run":"big run")", R"("run":7)"},
                         {R"("layouts":[{"kind":"whole"})", R"("layouts":[{})"},
                         {R"("layouts":[{"kind":"whole"})", R"("layouts":[7)"},
                         {R"("layouts":[)", R"("layout":[)"},
                         {R"("name":"pp")", R"("name":"tp")"},
                         {R"("name":"pp")", R"("name":"")"},
                         {R"("name":"pp")", R"("nick":"pp")"},
                         {R"("size":4)", R"("size":0)"},
                         {R"("size":4)", R"("size":"1152921504606846976")"},
                         {R"("size":4)", R"("size":[4])"},
                         {R"("axes":[{)", R"("axes":[7,{)"},
                         {R"("indices":[0,1])", R"("indices":[1,0])"},
                         {R"("indices":[0,1])", R"("indices":[])"},
                         {R"("indices":[0,1])", R"("indices":[0,2])"},
                         {R"("at":[{"axis":0)", R"("at":[{"axis":1)"},
                         {R"("at":[{"axis":0)", R"("at":[{"axis":5)"},
                         {R"("dim":0)", R"("dim":2)"},
                         {R"("dim":0)", R"("dim":4294967296)"},
                         {R"("dim":1,)", R"("dim":0,)"},
                         {R"("dim":0,"axes":[1])", R"("dim":0,"axes":[])"},
                         {R"("dim":0,"axes":[1])", R"("dim":0,"axes":[9])"},
                         {R"("points":[0,4,5])", R"("points":[0,4,6])"},
                         {R"("points":[0,4,5])", R"("points":[0,5])"},
                         {R"("points":[0,4,5])", R"("points":[1,4,5])"},
                         {R"("points":[0,4,5])", R"("points":[0,6,5])"},
                         {R"("rule":"points")", R"("rule":"ceil")"},
                         {R"("segments":[2,1])", R"("segments":[2,2])"},
                         {R"("segments":[2,1])", R"("segments":[2,"18446744073709551615"])"},
                         {R"("flat":{"axes":[2])", R"("flat":{"axes":[])"},
                         {R"("flat":{"axes":[2])", R"("flat":{"axes":[4])"},
                         {R"("part":"9007199254740992")", R"("part":0)"},
                         {R"("part":"9007199254740992")", R"("part":"9223372036854775808")"},
                         {R"("begin":"9007199254740993")", R"("begin":"18446744073709551615")"},
                         {R"("layout":2)", R"("layout":2,"begin":1)"},
                         {R"("layout":2)", R"("layout":2,"volume":1)"},
                         {R"("layout":2)", R"("layout":3)"},
                         {R"("sums":{"bytes":192)", R"("sums":{"bytes":null)"},
                         {R"("digests":{)", R"("digests":{"a":1,)"},
                         {R"("digests":{)", R"("digests":{"a":"0G",)"},
                         {R"("user":{)", R"("user":{"note":"twice",)"},
                         {R"("user":{)", R"("user":{"n":[],)"},
                         {R"("severity":"warning")", R"("severity":2)"},
                         {R"("target":"w")", R"("target":"nobody")"},
                         {R"({"name":"tied")", R"({"name":"scalar")"},
                         {R"("aliases":[)", R"("aliases":[{"name":"tied","target":"w"},)"},
                         {R"("tensors":[)", R"("tensors":[1,)"},
                         {R"("tensors":[)", R"("rows":[)"},
                         {R"({"name":"blob")", R"({"name":"zz")"},
                         {R"({"name":"blob")", R"({"name":"empty")"},
                         {R"({"name":"blob")", R"({"name":"__metadata__")"},
                         {R"({"name":"blob",)", R"({)"},
                         {R"("dtype":"BF16")", R"("dtype":16)"},
                         {R"("digests")", R"("dropped":["optim"],"digests")"},
                         {R"("digests")", R"("revision":1,"dropped":["optim","optim"],"digests")"},
                         {R"("shape":[3,5])", R"("shape":[3,-5])"},
                         {R"("shape":[3,5])", R"("shape":"3")"},
                         {R"("shape":[3,5])", R"("shape":[4611686018427387904])"},
                         {R"("shape":[3,5])", R"("shape":["4611686018427387904"])"},
                         {R"("shape":[3,5])", R"("shape":["4611686018427387904",16])"},
                         {R"("shape":[0,3])", R"("shape":[1,3])"},
                         {R"("shape":[5],"role":"blob")", R"("shape":[5,1],"role":"blob")"},
                         {R"("role":"buffer")", R"("role":null)"},
                         {R"("volume":4294967295)", R"("volume":4294967296)"},
                         {R"("volume":4294967295)", R"("volume":4294967295,"layout":4294967296)"},
                         {R"("path":["w.m",0)", R"("path":["w.m",null)"},
                         {R"("slot":"exp_avg")", R"("slot":7)"},
                         {R"("parameter":"w")", R"("parameter":{})"}}) {
    SCOPED_TRACE(to);
    expect_fails(replaced(built(), from, to), Errc::corrupt);
  }
}

TEST(Manifest, AnErrorInARowNamesTheTensor) {
  const Result<Manifest> manifest = parse_manifest(
      replaced(built(), R"("shape":[3,5],"role":"param")", R"("shape":["9007199254740992",2048],"role":"param")"));
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().tensor, "w") << manifest.error().message;
}

TEST(Manifest, RefusesToBuildWhatCouldNotBeRead) {
  Manifest unsorted = sample();
  std::swap(unsorted.tensors[0], unsorted.tensors[1]);
  EXPECT_FALSE(build_manifest(unsorted));
  Manifest twice = sample();
  twice.aliases.push_back(twice.aliases[0]);
  EXPECT_FALSE(build_manifest(twice));
  Manifest binary = sample();
  binary.tensors.back().tensor.name = "w\xff";
  EXPECT_FALSE(build_manifest(binary));
}

// What people and paths bring along need not be UTF-8, nor unique.
TEST(Manifest, TextThatIsNotUtf8IsStillReadable) {
  Manifest manifest = sample();
  manifest.meta.user = {{"k\xff", "v\xfe"}, {"k%ff", "second"}};
  manifest.meta.mesh = {{"dp", 1}, {"dp", 2}};
  manifest.findings[0].file = "rank\xff";
  const Result<Manifest> out = parse_manifest(built(manifest));
  ASSERT_TRUE(out) << out.error().message;
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(out->meta.user, (Pairs{{"k%ff", "v%fe"}}));
  EXPECT_EQ(out->meta.mesh.size(), 1u);
  EXPECT_EQ(out->findings[0].file, "rank%ff");
}

TEST(Manifest, TimesAreUtcToTheNanosecond) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00.000000000Z");
  EXPECT_EQ(utc_text(-1), "1969-12-31T23:59:59.999999999Z");
  EXPECT_EQ(utc_text(951'782'400'123'456'789), "2000-02-29T00:00:00.123456789Z");
}

TEST(Manifest, AnEmptyCheckpointIsOne) {
  Manifest manifest;
  manifest.created = utc_text(0);
  const Result<Manifest> out = parse_manifest(built(manifest));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_TRUE(out->tensors.empty());
  EXPECT_FALSE(out->source);
}

}  // namespace
}  // namespace ckpt::universal
