// Metrics from the logs of trainers: genuine files of TensorBoard and Lightning, and damaged ones.
#include "convert/training_log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "convert/torch/name_metrics.hpp"
#include "engine/io/io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

using Row = std::tuple<std::string, std::uint64_t, float>;

class TrainingLog : public testing::Test {
 protected:
  TrainingLog() {
    auto io = open_io(IoKind::threads);
    if (io) io_ = *std::move(io);
  }
  std::vector<Row> rows(const std::string& path) {
    const auto values = read_training_log(*io_, path);
    EXPECT_TRUE(values) << values.error().message;
    std::vector<Row> out;
    if (!values) return out;
    for (const LoggedValue& one : *values) out.emplace_back(one.name, one.step, static_cast<float>(one.value));
    return out;
  }
  Errc failure(const std::string& path) {
    const auto values = read_training_log(*io_, path);
    return values ? Errc::internal : values.error().code;
  }
  static std::string logs() { return std::string(CKPT_GOLDEN_DIR) + "/../training_logs"; }

  TempDir directory_{};
  std::unique_ptr<Io> io_{};
};

TEST_F(TrainingLog, ScalarsOfTensorBoardAreReadAndHistogramsPassedOver) {
  const std::vector<Row> expected{{"train/loss", 100, 4.0F},
                                  {"train/learning_rate", 100, 0.001F},
                                  {"train/loss", 200, 2.0F},
                                  {"train/learning_rate", 200, 0.001F},
                                  {"eval/loss", 200, 2.5F},
                                  {"train/loss", 300, 4.0F / 3},
                                  {"train/learning_rate", 300, 0.001F},
                                  {"train/loss", 400, 1.0F},
                                  {"train/learning_rate", 400, 0.001F},
                                  {"eval/loss", 400, 1.25F}};
  EXPECT_EQ(rows(logs() + "/tensorboard"), expected);
}

TEST_F(TrainingLog, TheTableOfLightningHasEmptyCells) {
  const auto all = rows(logs() + "/csv");
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(all[0], Row("epoch", 100, 0.0F));
  EXPECT_EQ(all[1], Row("train_loss", 100, 4.0F));
  EXPECT_EQ(all[4], Row("val_loss", 200, 2.5F));
}

TEST_F(TrainingLog, ASummaryHasTheStepOfTheTrainer) {
  const std::vector<Row> expected{{"train/global_step", 400, 400.0F}, {"eval/loss", 400, 1.25F}};
  EXPECT_EQ(rows(logs() + "/wandb/wandb-summary.json"), expected);
}

TEST_F(TrainingLog, AFileCutAnywhereGivesItsWholeRecords) {
  const std::string path = directory_.path() + "/events.out.tfevents.1";
  const std::string whole = test::read_file(logs() + "/tensorboard/events.out.tfevents.1795720074.node.1.0");
  const auto all = rows(logs() + "/tensorboard");
  for (std::size_t size = 0; size <= whole.size(); size += 97) {
    test::write_file(path, whole.substr(0, size));
    const auto values = read_training_log(*io_, path);
    if (!values) {
      EXPECT_EQ(values.error().code, Errc::corrupt);
      EXPECT_LT(size, 100U);
      continue;
    }
    ASSERT_LE(values->size(), all.size());
    for (std::size_t i = 0; i < values->size(); ++i) EXPECT_EQ((*values)[i].step, std::get<1>(all[i]));
  }
}

TEST_F(TrainingLog, DamageIsNeverReadBeyondTheFile) {
  const std::string path = directory_.path() + "/events.out.tfevents.1";
  const std::string whole =
      test::read_file(logs() + "/tensorboard/events.out.tfevents.1795720074.node.1.0").substr(0, 2000);
  for (std::size_t i = 0; i < whole.size(); i += 3) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    test::write_file(path, damaged);
    static_cast<void>(read_training_log(*io_, path));
  }
}

TEST_F(TrainingLog, OtherFilesAreRefused) {
  test::write_file(directory_.path() + "/x.txt", "step,loss\n1,2\n");
  EXPECT_EQ(failure(directory_.path()), Errc::unsupported);
  EXPECT_EQ(failure(directory_.path() + "/x.txt"), Errc::unsupported);
  EXPECT_EQ(failure(directory_.path() + "/none"), Errc::not_found);
  test::write_file(directory_.path() + "/metrics.csv", "epoch,loss\n1,2\n");
  EXPECT_EQ(failure(directory_.path()), Errc::corrupt);
  test::write_file(directory_.path() + "/metrics.csv", "step,loss\n1,2\n2,nan\n3,\n,4\n5,6");
  EXPECT_EQ(rows(directory_.path()), (std::vector<Row>{{"loss", 1, 2.0F}}));
}

TEST(NameMetrics, AreTheNumbersInALightningName) {
  using Metrics = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(torch::metrics_in_name("epoch=3-step=400-val_loss=1.25.ckpt"), (Metrics{{"val_loss", 1.25}}));
  EXPECT_EQ(torch::metrics_in_name("epoch=3-step=400-val_loss=-0.50-acc=0.75-v1.ckpt"),
            (Metrics{{"val_loss", -0.5}, {"acc", 0.75}}));
  EXPECT_EQ(torch::metrics_in_name("epoch=3-val_loss=1.5e-05-step=400.ckpt"), (Metrics{{"val_loss", 1.5e-5}}));
  for (const char* name : {"last.ckpt", "epoch=3-step=400.ckpt", "step=1-x=2y.ckpt", "step=1-x=nan.ckpt", "=1"})
    EXPECT_EQ(torch::metrics_in_name(name), Metrics{}) << name;
}

}  // namespace
}  // namespace ckpt
