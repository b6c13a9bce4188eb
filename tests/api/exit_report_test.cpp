// A program that ends without closing its run says on stderr what became of its saves.
#include "api/run/exit_report.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace ckpt {
namespace {

std::shared_ptr<PendingSave> save_in_flight() {
  return std::make_shared<PendingSave>(Hash128{});
}

TEST(ExitReportText, NamesFailuresNobodyAskedAboutAndSavesInFlight) {
  ExitReport report("runs/r", true);
  EXPECT_EQ(report.text(), "");
  const auto good = save_in_flight();
  const auto asked = save_in_flight();
  const auto failed = save_in_flight();
  const auto running = save_in_flight();
  report.add(10, good);
  report.add(20, asked);
  report.add(30, failed);
  report.add(40, running);
  good->durable().complete(SaveOutcome{.name = "step-000000010.g1", .id = "a"});
  asked->durable().complete(fail(Errc::no_space, "disk full"));
  EXPECT_FALSE(asked->durable().take_outcome());
  failed->durable().complete(fail(Errc::no_space, "no space left"));
  EXPECT_EQ(
      report.text(),
      "runs/r: the program exited without closing the run; step 30: not saved: no space left; step 40: still being "
      "saved, may be lost");
  running->durable().complete(SaveOutcome{.name = "step-000000040.g2", .id = "b"});
  static_cast<void>(failed->durable().take_outcome());
  EXPECT_EQ(report.text(), "");
}

TEST(ExitReportText, OneProcessOfAJobSpeaks) {
  ExitReport report("runs/r", false);
  report.add(10, save_in_flight());
  EXPECT_EQ(report.text(), "");
}

TEST(ExitReportDeathTest, IsPrintedAtExit) {
  EXPECT_EXIT(
      {
        ExitReport report("runs/r", true);
        report.add(10, save_in_flight());
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "^ckpt: runs/r: the program exited without closing the run; step 10: still being saved");
}

TEST(ExitReportDeathTest, AClosedRunIsNotReported) {
  EXPECT_EXIT(
      {
        { ExitReport("runs/r", true).add(10, save_in_flight()); }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(ExitReportDeathTest, AForkedChildDoesNotReportItsParentsSaves) {
  EXPECT_EXIT(
      {
        auto report = std::make_unique<ExitReport>("runs/r", true);
        report->add(10, save_in_flight());
        const pid_t child = ::fork();
        if (child == 0) {
          // Nor where it has a run of its own.
          ExitReport("runs/child", true).add(20, save_in_flight());
          std::exit(0);
        }
        ::waitpid(child, nullptr, 0);
        report.reset();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace ckpt
