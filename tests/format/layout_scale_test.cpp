// A 70B model at TP 8 x PP 4 x DP 512: what opening and planning one writer cost, without any data.
#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "format/universal/mesh_search.hpp"
#include "format/universal/placements.hpp"
#include "format/universal/writer_layout.hpp"

namespace ckpt::universal {
namespace {

#if defined(__OPTIMIZE__) && defined(NDEBUG)
constexpr bool kRelease = true;
#else
constexpr bool kRelease = false;
#endif

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// The least of a few runs, so that other load on the machine does not count.
template <class Run>
double least_cpu_ms(const Run& run, int runs = 5) {
  double least = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double begin = cpu_ms();
    run();
    least = std::min(least, cpu_ms() - begin);
  }
  return least;
}

constexpr std::uint64_t kHidden = 8192, kFfn = 28672, kRows = 128'256, kLayers = 80;

/// Weights in bf16, master and moments in f32: 723 parameters, 3 slots each, all but weights divided by ZeRO.
Manifest model() {
  Manifest manifest;
  manifest.created = utc_text(0);
  manifest.generator = "ckpt";
  manifest.layouts.clear();
  const Mesh mesh{{{"pp", 4}, {"dp", 512}, {"tp", 8}}};
  const auto put = [&](const Layout& layout) {
    const auto at = std::find(manifest.layouts.begin(), manifest.layouts.end(), layout);
    if (at == manifest.layouts.end()) manifest.layouts.push_back(layout);
    return static_cast<std::uint32_t>(std::find(manifest.layouts.begin(), manifest.layouts.end(), layout) -
                                      manifest.layouts.begin());
  };
  struct Kind {
    const char* name;
    Shape shape;
    int dim;  // cut by tensor parallelism; -1: replicated
  };
  const auto add = [&](const std::string& name, const Kind& kind, std::uint64_t stage, std::uint64_t& begin) {
    Layout layout = placement::at_stages(placement::replicated(mesh), 0, {stage}).value();
    std::uint64_t elements = volume(kind.shape);
    if (kind.dim >= 0) {
      const auto dim = static_cast<std::uint32_t>(kind.dim);
      layout = placement::tensor_parallel(layout, {.axis = 2, .dim = dim, .length = kind.shape[dim]}).value();
      elements /= 8;
    }
    const std::uint32_t weight = put(layout);
    const std::uint32_t state = put(placement::flat_parts(layout, {1}, 9'000'000).value());
    manifest.tensors.push_back({.tensor = {.name = name, .dtype = Dtype::bf16, .shape = kind.shape}, .layout = weight});
    for (const char* slot : {"exp_avg", "exp_avg_sq"}) {
      Tensor tensor{.name = "optimizer.state." + name + "." + slot, .dtype = Dtype::f32, .shape = kind.shape};
      tensor.role = Role::slot;
      tensor.parameter = name;
      tensor.slot = slot;
      manifest.tensors.push_back({.tensor = std::move(tensor), .layout = state, .begin = begin});
    }
    begin += elements;
  };
  const std::vector<Kind> kinds{
      {"self_attn.q_proj.weight", {kHidden, kHidden}, 0}, {"self_attn.k_proj.weight", {1024, kHidden}, 0},
      {"self_attn.v_proj.weight", {1024, kHidden}, 0},    {"self_attn.o_proj.weight", {kHidden, kHidden}, 1},
      {"mlp.gate_proj.weight", {kFfn, kHidden}, 0},       {"mlp.up_proj.weight", {kFfn, kHidden}, 0},
      {"mlp.down_proj.weight", {kHidden, kFfn}, 1},       {"input_layernorm.weight", {kHidden}, -1},
      {"post_attention_layernorm.weight", {kHidden}, -1}};
  std::vector<std::uint64_t> begins(4, 0);
  add("model.embed_tokens.weight", {"", {kRows, kHidden}, 0}, 0, begins[0]);
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::uint64_t stage = placement::stage_of_layer({.layers = kLayers, .stages = 4}, layer).value();
    for (const Kind& kind : kinds)
      add("model.layers." + std::to_string(layer) + "." + kind.name, kind, stage, begins[stage]);
  }
  add("model.norm.weight", {"", {kHidden}, -1}, 3, begins[3]);
  add("lm_head.weight", {"", {kRows, kHidden}, 0}, 3, begins[3]);
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorRow& a, const TensorRow& b) { return a.tensor.name < b.tensor.name; });
  return manifest;
}

TEST(LayoutScale, SixteenThousandWritersCostATableOfTensors) {
  const Manifest manifest = model();
  ASSERT_EQ(manifest.tensors.size(), 2169u);
  const std::string text = build_manifest(manifest).value();
  const double parse_ms = least_cpu_ms([&] { ASSERT_TRUE(parse_manifest(text)); });
  WriterRequest request{.rows = manifest.tensors, .layouts = manifest.layouts, .id = manifest.id};
  double lay_out_ms = 0;
  double place_ms = 0;
  for (const std::uint32_t writer : {0u, 8191u, 16383u}) {
    request.writer = writer;
    lay_out_ms = std::max(lay_out_ms, least_cpu_ms([&] { ASSERT_TRUE(lay_out_writer(request)); }));
    place_ms = std::max(place_ms, least_cpu_ms([&] { ASSERT_TRUE(place_writer(request)); }));
  }
  std::size_t chunks = 0;
  const double search_ms = least_cpu_ms(
      [&] {
        chunks = 0;
        for (const TensorRow& row : manifest.tensors) {
          const Extent all{0, volume(row.tensor.shape)};
          ASSERT_TRUE(
              search_mesh(manifest.layouts[row.layout], row.tensor, row.begin, all, [&](WrittenChunk) -> Result<> {
                ++chunks;
                return {};
              }));
        }
      },
      1);
  std::printf(
      "16384 writers, %zu tensors, %zu layouts, %zu chunks: manifest %zu bytes, parsed in %.2f ms; a writer "
      "laid out in %.2f ms, placed in %.2f ms; all chunks found in %.1f ms (%.3f us each); CPU time\n",
      manifest.tensors.size(), manifest.layouts.size(), chunks, text.size(), parse_ms, lay_out_ms, place_ms, search_ms,
      search_ms * 1e3 / static_cast<double>(chunks));
  EXPECT_LE(text.size(), 2'000'000u);
  if (!kRelease) return;  // times are judged in release builds
  EXPECT_LE(parse_ms, 50);
  EXPECT_LE(lay_out_ms, 10);
  EXPECT_LE(search_ms * 1e3 / static_cast<double>(chunks), 1.0);
}

}  // namespace
}  // namespace ckpt::universal
