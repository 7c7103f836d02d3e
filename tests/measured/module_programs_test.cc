// Programs of modules that no family here is: with custom autograd.Functions, regions of checkpointing, lists, copied
// layers. Their requests are compared with PyTorch 2.11's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"
#include "support/ways.h"

namespace memcalc {
namespace {

std::string path_of(const std::string& name) { return (test::measured_dir() / "programs" / name).string(); }

using test::registry;

Trace trace_of(const std::string& file, const RunOptions& options) {
  const ModelSpec model = registry().model(path_of(file));
  return run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm")).trace;
}

/// tests/measured/programs/modules.py: PyTorch 2.11's own requests of a step, and frees as negative numbers.
std::vector<Bytes> requests_of(const std::string& name) {
  std::vector<Bytes> requests;
  std::ifstream file(path_of(name));
  for (std::string line; std::getline(file, line);) requests.push_back(std::stoll(line));
  return requests;
}

/// The same of a recorded module.
std::vector<Bytes> requests_of(const Trace& trace) {
  std::vector<Bytes> requests;
  for (const Event& event : trace.events) {
    const bool counts = event.phase == Phase::kForward || event.phase == Phase::kBackward;
    if (!counts || event.step != trace.events.back().step || event.block == kNoBlock) continue;
    const Bytes bytes = trace.blocks[static_cast<std::size_t>(event.block)].requested;
    if (event.kind == EventKind::kAllocate) requests.push_back(bytes);
    if (event.kind == EventKind::kFree) requests.push_back(-bytes);
  }
  return requests;
}

/// Autocast lets go of its cache in the order of a hash table.
void sort_frees(std::vector<Bytes>& requests) {
  const auto is_free = [](Bytes each) { return each < 0; };
  for (auto at = requests.begin(); at != requests.end();) {
    const auto end = std::find_if_not(at, requests.end(), is_free);
    std::sort(at, end);
    at = end == requests.end() ? end : std::next(end);
  }
}

void expect_the_requests_of_pytorch(const std::string& name) {
  const std::vector<std::string> precisions = {"fp32", "bf16", "amp-bf16"};
  for (std::size_t i = 0; i < precisions.size(); ++i) {
    SCOPED_TRACE(precisions[i]);
    RunOptions options{
        .precision = test::kWays[i].precision, .weights_dtype = test::kWays[i].weights, .loop = Loop::kBare};
    options.batch_size = 4;
    std::vector<Bytes> recorded = requests_of(trace_of(name + ".json.gz", options));
    std::vector<Bytes> real = requests_of(name + "." + precisions[i] + ".events");
    if (test::kWays[i].precision == Precision::kAmpBf16) {
      sort_frees(recorded);
      sort_frees(real);
    }
    EXPECT_GT(real.size(), 30U);
    EXPECT_EQ(recorded, real);
  }
}

TEST(ModulePrograms, WithCustomFunctionsMakeTheCallsOfTheirBackward) {
  expect_the_requests_of_pytorch("custom_functions");
}

TEST(ModulePrograms, WithListsAsLongAsTheBatchJoinThem) { expect_the_requests_of_pytorch("joined_rows"); }

TEST(ModulePrograms, WithRegionsOfCheckpointingComputeThemAgain) {
  expect_the_requests_of_pytorch("checkpoint_regions");
  RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare, .checkpointing = Checkpointing::kFull};
  EXPECT_THROW((void)trace_of("checkpoint_regions.json.gz", options), Error);
}

TEST(ModulePrograms, WithRegionsOfCheckpointingAreOneGraphWithThem) {
  RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare, .compile = true};
  options.batch_size = 4;
  const Trace trace = trace_of("checkpoint_regions.json.gz", options);
  // Of the 1,024 columns inside of a block, the block without a region keeps what comes before and behind its gelu;
  // those in regions keep nothing of it.
  int kept = 0;
  for (const Event& event : trace.events) {
    if (event.phase != Phase::kForward || event.step != trace.events.back().step || !event.moves_block()) continue;
    if (trace.blocks[static_cast<std::size_t>(event.block)].requested != 4 * 96 * 1024 * 4) continue;
    kept += event.kind == EventKind::kAllocate ? 1 : -1;
  }
  EXPECT_EQ(kept, 2);
}

TEST(ModulePrograms, WithCustomFunctionsAreNotCompiled) {
  const RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare, .compile = true};
  EXPECT_THAT(error_text([&] { (void)trace_of("custom_functions.json.gz", options); }),
              testing::HasSubstr("the custom function Swish"));
}

TEST(ModulePrograms, WithCustomFunctionsAreRefusedWhereTheirBackwardIsNotKnown) {
  Program program =
      read_program(JsonDocument::parse(read_program_text(path_of("custom_functions.json.gz")), "it").root());
  std::size_t found = 0;
  for (std::int64_t i = 0; i < std::ssize(program.functions); ++i) {
    for (ProgramInstruction& each : program.functions.at(i).body.items) {
      if (auto* custom = std::get_if<ProgramCustom>(&each)) {
        custom->backward = -1;
        ++found;
      }
    }
  }
  EXPECT_EQ(found, 3U);
  ModelSpec model = registry().model(path_of("custom_functions.json.gz"));
  model.architecture = ProgramSpec{std::make_shared<Program>(std::move(program))};
  const RunSpec run = resolve(model, {.precision = Precision::kFp32, .loop = Loop::kBare}).run;
  try {
    (void)run_symbolically(model, run, registry().device("h100-sxm"));
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the custom function Swish is differentiated"), std::string::npos)
        << error.what();
  }
}

// The layout's part of LiLT's last layer has no gradient, the rest of that layer has.
TEST(ModulePrograms, AreRefusedUnderFsdp1WhereAPartOfAUnitHasNoGradient) {
  const ModelSpec model =
      registry().model((test::measured_dir() / "drawn/lilt.SequenceClassification.json.gz").string());
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .gpus = 4};
  options.parallel.data_parallel = DataParallel::kFsdp1;
  options.data_parallel_given = true;
  try {
    (void)run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm"));
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("some parameters of a unit get no gradient"), std::string::npos)
        << error.what();
  }
}

/// nn.TransformerEncoder copies a layer that then dies: what is made later lies where it was (any_module/rows.jsonl).
TEST(ModulePrograms, LeaveTheRoomOfALayerThatWasCopied) {
  const ModelSpec model = registry().model((test::measured_dir() / "any_module/own-transformer.json.gz").string());
  RunOptions options{.precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32, .loop = Loop::kBare};
  options.batch_size = 16;
  const Report report = estimate(model, resolve(model, options).run, registry().device("h200-sxm"));
  EXPECT_EQ(report.memory.peak_allocated, 1'966'578'688);
  EXPECT_EQ(report.memory.peak_reserved, 2'187'329'536);
}

/// A class that takes no dtype is made in float32 and converted: its 16-bit tensors lie in one another's places.
TEST(ModulePrograms, AreConvertedByModuleTo) {
  const ModelSpec model = registry().model((test::measured_dir() / "any_module/diff-dit-xl.json.gz").string());
  RunOptions options{.precision = Precision::kBf16, .weights_dtype = DType::kBFloat16, .loop = Loop::kBare};
  options.batch_size = 16;
  const Report report = estimate(model, resolve(model, options).run, registry().device("h200-sxm"));
  EXPECT_NEAR(static_cast<double>(report.memory.peak_allocated), 4'436'847'104, 4096);
  EXPECT_EQ(report.memory.peak_reserved, 4'863'295'488);
}

}  // namespace
}  // namespace memcalc
