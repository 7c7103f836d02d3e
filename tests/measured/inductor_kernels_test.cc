// The launches of a compiled step against those in the code that torch 2.11's inductor generates for it without a card
// (inductor_kernels.tsv, written by harness/inductor_kernels.py).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/train/step.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

struct Launches {
  std::int64_t forward = 0, backward = 0;
};

struct Row {
  std::string model;
  Precision precision = Precision::kBf16;
  std::int64_t layers = 0, batch = 0, sequence = 0;
  Launches launches;
};

std::vector<Row> recorded() {
  std::vector<Row> rows;
  std::ifstream file(test::measured_dir() / "inductor_kernels.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.starts_with("model\t")) continue;
    std::istringstream cells(line);
    Row row;
    std::string precision;
    std::array<std::int64_t, 6> counts{};
    cells >> row.model >> precision >> row.layers >> row.batch >> row.sequence;
    for (std::int64_t& each : counts) cells >> each;
    EXPECT_TRUE(cells) << line;
    row.precision = precision == "fp32" ? Precision::kFp32 : Precision::kBf16;
    row.launches = {counts[0] + counts[1], counts[2] + counts[3] + counts[4] + counts[5]};
    rows.push_back(row);
  }
  return rows;
}

/// Which models of the registry the harness builds with fewer layers.
std::string name_of(const std::string& model) {
  if (model == "bert") return "bert-base";
  if (model == "llama") return "llama-3.2-1b";
  if (model == "qwen3") return "qwen3-0.6b";
  if (model == "vit") return "vit-base-patch16-224";
  return model;
}

Launches launches_of(const Row& row) {
  const SpecRegistry registry(test::specs_dir().string());
  ModelSpec model = registry.model(name_of(row.model));
  model.architecture.set_layers(row.layers);
  RunOptions options;
  options.loop = Loop::kBare;
  options.precision = row.precision;
  options.batch_size = row.batch;
  if (row.sequence > 0) options.sequence_length = row.sequence;
  options.padding = row.model == "bert";  // the harness hands it a mask
  options.compile = true;
  const RunSpec run = resolve(model, options).run;
  const SymbolicRun symbolic = run_symbolically(model, run, registry.device("h200-sxm"));
  Launches launches;
  for (const Kernel& kernel : symbolic.kernels) {
    if (!is_of_compiled_code(kernel) || kernel.kind == KernelKind::kPartOfPrevious) continue;
    (kernel.phase == Phase::kForward ? launches.forward : launches.backward) += kernel.launches;
  }
  return launches;
}

// Where they still differ: kernels on whole numbers (positions, the search for packed sequences) are not counted, nor
// is every group that inductor fuses by a score found by going through the launches once.
TEST(InductorKernels, AreCountedAsInGeneratedCode) {
  constexpr double kForwardOff = 3, kBackwardOff = 4;
  const std::vector<Row> rows = recorded();
  ASSERT_EQ(rows.size(), 15U);
  double counted_in_all = 0, launched_in_all = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.model + " " + std::string(memcalc::name_of(row.precision)) + " " + std::to_string(row.layers));
    const Launches counted = launches_of(row);
    // GPT-2's loss is a graph of its own, which the harness does not lower: logarithms of softmax in float32, their
    // sum, the count of labels, in 16 bits a padded copy of the head's weight; one kernel backward.
    const bool has_graph_of_loss = row.model == "gpt2";
    const double forward = static_cast<double>(counted.forward - (has_graph_of_loss ? 3 : 0));
    const double backward = static_cast<double>(counted.backward - (has_graph_of_loss ? 1 : 0));
    EXPECT_NEAR(forward, static_cast<double>(row.launches.forward), kForwardOff);
    EXPECT_NEAR(backward, static_cast<double>(row.launches.backward), kBackwardOff);
    counted_in_all += forward + backward;
    launched_in_all += static_cast<double>(row.launches.forward + row.launches.backward);
  }
  EXPECT_NEAR(counted_in_all / launched_in_all, 1, 0.02);
}

}  // namespace
}  // namespace memcalc::measured
