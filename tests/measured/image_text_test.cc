// Models of images and text leave the events of the programs that were recorded of them (transformers 5.17,
// python/memcalc/record, --task image-text); where a program follows the framework less closely, that is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/event_texts.h"
#include "support/paths.h"
#include "support/registry.h"
#include "support/ways.h"

namespace memcalc {
namespace {

using test::registry;

struct Case {
  std::string config;   // tests/measured/programs/NAME.json
  std::string program;  // specs/programs/NAME.json.gz, else beside the config
  std::int64_t batch, sequence;
  std::int64_t images = 1;
  std::optional<std::int64_t> image_size{};
};

std::string beside(const std::string& name) { return (test::measured_dir() / "programs" / name).string(); }

ModelSpec family(const Case& of) {
  ModelSpec model = registry().model(beside(of.config + ".json"));
  model.architecture.change<ImageTextSpec>().images = of.images;
  return model;
}

ModelSpec program(const Case& of) {
  return registry().model(of.program.empty() ? beside(of.config + ".json.gz") : of.program);
}

Trace trace_of(const ModelSpec& model, const RunOptions& options) {
  return run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm")).trace;
}

class ImageText : public testing::TestWithParam<Case> {
 protected:
  /// Qwen's module holds rope_deltas, 8 bytes a sequence, until its next forward pass; a program lets go of them.
  static std::vector<std::string> events(const ModelSpec& model, const RunOptions& options) {
    std::vector<std::string> all = test::events_of(trace_of(model, options));
    if (GetParam().config.starts_with("qwen")) {
      const std::string bytes = " " + std::to_string(8 * GetParam().batch);
      std::erase_if(all, [&](const std::string& event) { return event.ends_with(bytes); });
    }
    // A program's cache dies behind what else the module returns, a module's before it.
    const bool caches = options.loop == Loop::kTrainer && !options.checkpointing;
    // Where a recomputation of experts stops, variables die in another order (program_test.cc, stops_otherwise).
    const bool stops = options.checkpointing == Checkpointing::kFull && GetParam().config == "qwen3_vl_moe";
    if (caches || stops) std::sort(all.begin(), all.end());
    return all;
  }

  static void expect_equal(RunOptions options) {
    options.batch_size = GetParam().batch;
    options.sequence_length = GetParam().sequence;
    options.image_size = GetParam().image_size;
    const auto recorded = events(program(GetParam()), options);
    if (GetParam().config.ends_with("_eager")) options.attention = Attention::kEager;  // a program has its own
    const auto written = events(family(GetParam()), options);
    EXPECT_GT(written.size(), 1000U);
    test::expect_same(recorded, written);
  }
};

TEST_P(ImageText, LeavesTheEventsOfItsProgram) {
  for (const test::Way& way : test::kWays) {
    for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
      SCOPED_TRACE(std::string(way.name) + (checkpointing == Checkpointing::kFull ? ", checkpointing" : ""));
      expect_equal({.precision = way.precision,
                    .weights_dtype = way.weights,
                    .loop = Loop::kBare,
                    .checkpointing = checkpointing});
    }
  }
}

TEST_P(ImageText, IsAdaptedInTowerAndText) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare};
  options.lora_rank = 4;
  expect_equal(options);
  options.quantization = Quantization::kNf4;
  expect_equal(options);
}

TEST_P(ImageText, IsTrainedInTheTrainer) {
  expect_equal({.precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32, .loop = Loop::kTrainer});
  expect_equal({.precision = Precision::kBf16, .loop = Loop::kTrainer, .checkpointing = Checkpointing::kFull});
}

TEST_P(ImageText, FreezesPartsByName) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare};
  options.frozen = {GetParam().config.starts_with("qwen") ? "model.visual" : "vision_tower"};
  expect_equal(options);
}

TEST_P(ImageText, TakesAMaskWhereSequencesArePadded) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare};
  options.padding = true;
  expect_equal(options);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ImageText,
    testing::Values(Case{"llava", "", 4, 1024}, Case{"qwen2_5_vl", "", 1, 1024}, Case{"qwen3_vl", "", 1, 1024},
                    Case{"qwen3_vl_moe", "", 1, 1024}, Case{"gemma3_vision", "gemma-3-4b-vision", 2, 1024},
                    Case{"qwen2_vl", "", 1, 1024}, Case{"paligemma", "", 1, 1024}, Case{"paligemma2", "", 1, 1024},
                    Case{"qwen2_vl_images", "", 2, 1024, 2, 336}, Case{"llava_images", "", 2, 1536, 2},
                    Case{"gemma3_vision_images", "", 2, 1024, 2}, Case{"paligemma_eager", "", 1, 512},
                    Case{"qwen2_vl_eager", "", 1, 512}, Case{"paligemma_rows", "", 2, 1024},
                    Case{"paligemma2_images", "", 2, 1024, 2}, Case{"internvl", "", 1, 1024},
                    Case{"internvl_tiles", "", 2, 384, 2}, Case{"mistral3", "", 1, 1024, 2, 448}),
    [](const auto& each) { return each.param.config; });

/// Tower and projector stand in memory though no image is shown; without --images Gemma 3 is its text model alone.
TEST(ImagesInText, AreAnOptionOfTheRun) {
  RunRequest request;
  request.model = beside("gemma3_vision.json");
  request.run = {.sequence_length = 512, .precision = Precision::kBf16};
  const auto parameters = [&] {
    const Question question = question_of(request, registry());
    std::int64_t count = 0;
    for (const ParameterInfo& each : run_symbolically(question.model, question.run.run, question.device).parameters) {
      count += each.elements;
    }
    return count;
  };
  const std::int64_t text = parameters();
  request.images = 0;
  const std::int64_t whole = parameters();
  EXPECT_EQ(text, 3'880'263'168);
  EXPECT_EQ(whole, 4'300'079'472);
  request.images = 1;
  EXPECT_EQ(parameters(), whole);
  request.images = 2;
  EXPECT_THAT(error_text([&] { static_cast<void>(question_of(request, registry())); }),
              testing::HasSubstr("--seq of more than 512"));
}

TEST(ImagesInText, HaveTheSizesThatTheTowerTakes) {
  RunRequest request;
  request.model = "llava-1.5-7b";
  request.run.image_size = 224;
  EXPECT_THAT(error_text([&] { static_cast<void>(question_of(request, registry())); }),
              testing::HasSubstr("--image 336"));
  request.model = "qwen2.5-vl-3b";
  EXPECT_NO_THROW(static_cast<void>(question_of(request, registry())));
  request.run.image_size = 225;
  EXPECT_THAT(error_text([&] { static_cast<void>(question_of(request, registry())); }),
              testing::HasSubstr("multiples of 28 pixels"));
}

/// Four tokens' patches a token: (height / 28) x (width / 28).
TEST(ImagesInText, TakePlacesByTheirSize) {
  const ModelSpec qwen = registry().model("qwen2.5-vl-3b");
  ImageTextSpec spec = *image_text_of(qwen);
  EXPECT_EQ(spec.places(448), 256);
  spec.image_width = 672;
  spec.images = 3;
  EXPECT_EQ(spec.places(448), 3 * 384);
  EXPECT_EQ(image_text_of(registry().model("llava-1.5-7b"))->places(336), 576);
}

}  // namespace
}  // namespace memcalc
