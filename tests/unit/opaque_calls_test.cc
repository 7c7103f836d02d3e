// Calls of a program that memcalc does not look into are named in the report, with how often a step makes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/program.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// A product (value 1), then `calls`, which make value 2; its sum is the loss.
ModelSpec model_of(const std::string& calls) {
  const std::string text = R"({"format": "memcalc.program", "version": 1, "name": "calls",
    "symbols": {"batch": {"default": 4}}, "inputs": [{"name": "x", "shape": ["batch", 256], "dtype": "weights"}],
    "parameters": [{"name": "weight", "shape": [1024, 256], "dtype": "weights"}], "buffers": [],
    "functions": [{"inputs": 0, "keywords": ["x"], "results": [99], "body": [
      ["call", "torch.nn.functional.linear", [{"v": 0}, {"p": "weight"}, null], {}, [1]], )" +
                           calls + R"(,
      ["call", "torch.Tensor.sum", [{"v": 2}], {}, [99]]]}],
    "forwards": [{"mode": "train", "inputs": ["x"], "gradients": true, "function": 0, "outputs": {"output": 99}}]})";
  ModelSpec model = registry().model((test::measured_dir() / "programs/custom_functions.json.gz").string());
  model.architecture = ProgramSpec{std::make_shared<Program>(read_program(JsonDocument::parse(text, "calls").root()))};
  return model;
}

Report report_of(const std::string& calls, std::int64_t accumulation = 1) {
  const ModelSpec model = model_of(calls);
  RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare};
  options.batch_size = 4;
  options.accumulation_steps = accumulation;
  return estimate(model, resolve(model, options).run, SpecRegistry(test::specs_dir().string()).device("h100-sxm"));
}

constexpr const char* kShape = R"([[["batch", 1024], {"d": "weights"}]])";

std::string unknown(const std::string& name, int from, int to) {
  return R"(["call", "torch.)" + name + R"(", [{"v": )" + std::to_string(from) + "}], {}, [" + std::to_string(to) +
         "], " + kShape + "]";
}

// Of singular values alone the gradient is exact.
TEST(OpaqueCalls, GradientsOfSingularVectorsAreAnAssumption) {
  const auto told = Contains(HasSubstr("singular vectors"));
  EXPECT_THAT(report_of(R"(["call", "torch.linalg.svd", [{"v": 1}, false], {}, [2, 3, 4]])").assumptions, told);
  EXPECT_THAT(report_of(R"(["call", "torch.linalg.svdvals", [{"v": 1}], {}, [2]])").assumptions, Not(told));
}

TEST(OpaqueCalls, AreNamedInTheReport) {
  const Report report =
      report_of(unknown("frobnicate", 1, 3) + ", " + unknown("frobnicate", 3, 4) + ", " + unknown("wibble", 4, 2));
  ASSERT_EQ(report.opaque.size(), 2U);
  EXPECT_EQ(report.opaque[0].function, "frobnicate");
  EXPECT_EQ(report.opaque[0].calls, 2);
  EXPECT_EQ(report.opaque[1].function, "wibble");
  EXPECT_EQ(report.opaque[1].calls, 1);
  constexpr const char* kNames = "frobnicate (2 calls), wibble (1 call)";
  EXPECT_THAT(report.not_modelled, Contains(HasSubstr(kNames)));
  EXPECT_THAT(render(report, Format::kText), HasSubstr("Opaque in a step: " + std::string(kNames)));
  EXPECT_THAT(render(report, Format::kJson), HasSubstr("\"function\": \"wibble\""));
}

TEST(OpaqueCalls, OfEachMicroBatchCount) {
  const Report report = report_of(unknown("frobnicate", 1, 2), 8);
  ASSERT_EQ(report.opaque.size(), 1U);
  EXPECT_EQ(report.opaque[0].calls, 8);
}

TEST(OpaqueCalls, AreThoseWithArgumentsThatNoRowHas) {
  const std::string relu = R"(["call", "torch.nn.functional.relu", [{"v": 1}], {"strength": 2}, [2])";
  const Report report = report_of(relu + ", " + kShape + "]");
  ASSERT_EQ(report.opaque.size(), 1U);
  EXPECT_EQ(report.opaque[0].function, "relu");
  EXPECT_THAT(error_text([&] { (void)report_of(relu + "]"); }),
              HasSubstr("the program calls relu with the argument strength"));
  EXPECT_TRUE(report_of(R"(["call", "torch.nn.functional.relu", [{"v": 1}], {"strength": null}, [2]])").opaque.empty());
}

// A function that the table does not have makes no tensor where it changes one.
TEST(OpaqueCalls, InPlaceMakeNothing) {
  const auto peak = [](const std::string& calls) { return report_of(calls).memory.peak_allocated; };
  const std::string add = R"(["call", "torch.Tensor.add", [{"v": 1}, 1], {}, [2]])";
  const std::string changed =
      R"(["call", "torch.Tensor.frobnicate_", [{"v": 2}], {}, [2], )" + std::string(kShape) + "]";
  const Report report = report_of(add + ", " + changed);
  ASSERT_EQ(report.opaque.size(), 1U);
  EXPECT_EQ(report.opaque[0].function, "frobnicate_");
  EXPECT_EQ(peak(add + ", " + changed),
            peak(add + R"(, ["call", "torch.Tensor.mul_", [{"v": 2}, {"v": 2}], {}, [2]])"));
}

TEST(OpaqueCalls, AreNoneWhereAllIsModelled) {
  const Report report = report_of(R"(["call", "torch.nn.functional.relu", [{"v": 1}], {}, [2]])");
  EXPECT_TRUE(report.opaque.empty());
  EXPECT_THAT(render(report, Format::kText), Not(HasSubstr("Opaque")));
  EXPECT_THAT(render(report, Format::kJson), Not(HasSubstr("opaque")));
}

}  // namespace
}  // namespace memcalc
