// Adapters, frozen parameters and quantised bases: what they add and what they take away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

class FineTuningTest : public ::testing::Test {
 protected:
  SpecRegistry registry_{test::specs_dir().string()};
  ModelSpec model_ = registry_.model("tinyllama-1.1b");
  DeviceSpec device_ = registry_.device("h100-sxm");

  static RunOptions options() {
    RunOptions options;
    options.batch_size = 1;
    options.sequence_length = 128;
    options.precision = Precision::kBf16;
    options.loop = Loop::kBare;
    return options;
  }
  [[nodiscard]] Report report_of(const RunOptions& options) const {
    return estimate(model_, resolve(model_, options), device_);
  }
  [[nodiscard]] std::string refusal_of(const RunOptions& options) const {
    return error_text([&] { (void)report_of(options); });
  }
};

TEST_F(FineTuningTest, AdaptersAreTheOnlyTrainableParameters) {
  RunOptions lora = options();
  lora.lora_rank = 8;
  lora.lora_targets = {"q_proj", "v_proj"};
  const Report report = report_of(lora);
  // 22 layers; q_proj 2048 -> 2048, v_proj 2048 -> 256 (four key/value heads of 64).
  EXPECT_EQ(report.parameters_trainable, 22 * 8 * (2048 + 2048 + 2048 + 256));
  EXPECT_EQ(report.parameters_total, report_of(options()).parameters_total + report.parameters_trainable);
}

TEST_F(FineTuningTest, FrozenParametersHaveNoGradientAndNoState) {
  RunOptions frozen = options();
  frozen.frozen = {"embed_tokens", "lm_head"};
  const std::int64_t vocabulary = 2 * 32000 * 2048;
  EXPECT_EQ(report_of(frozen).parameters_trainable, report_of(options()).parameters_total - vocabulary);
}

TEST_F(FineTuningTest, AQuantisedBaseTakesHalfAByteForEachPackedWeight) {
  RunOptions plain = options();
  plain.lora_rank = 8;
  RunOptions packed = plain;
  packed.quantization = Quantization::kNf4;
  packed.prepares_for_kbit = false;
  const auto weights = [](const Report& report) {
    return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
  };
  // Of each packed weight 2 bytes become 1/2 and a float32 for 64.
  const double packed_weights = 22.0 * (2048.0 * 2048 * 2 + 2048.0 * 256 * 2 + 3.0 * 2048 * 5632);
  const double saved = static_cast<double>(weights(report_of(plain)) - weights(report_of(packed)));
  EXPECT_NEAR(saved / (packed_weights * (2 - 0.5 - 4.0 / 64)), 1, 0.001);
}

TEST_F(FineTuningTest, DoubleQuantisationShrinksTheBlockScales) {
  RunOptions nf4 = options();
  nf4.lora_rank = 8;
  nf4.quantization = Quantization::kNf4;
  RunOptions doubly = nf4;
  doubly.quantization = Quantization::kNf4Double;
  EXPECT_LT(report_of(doubly).memory.peak_allocated, report_of(nf4).memory.peak_allocated);
}

TEST_F(FineTuningTest, RefusesWhatTheLibrariesRefuse) {
  RunOptions quantized = options();
  quantized.quantization = Quantization::kNf4;
  EXPECT_THAT(refusal_of(quantized), HasSubstr("add --lora R"));

  RunOptions target = options();
  target.lora_rank = 8;
  target.lora_targets = {"c_attn"};
  EXPECT_THAT(refusal_of(target),
              HasSubstr("they end in q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"));

  RunOptions nothing = options();
  nothing.frozen = {"no.such.part"};
  EXPECT_THAT(refusal_of(nothing), HasSubstr("no parameter's name contains it"));

  RunOptions everything = options();
  everything.frozen = {"."};
  EXPECT_THAT(refusal_of(everything), HasSubstr("nothing to train"));

  RunOptions rank = options();
  rank.lora_rank = std::int64_t{1} << 40;
  EXPECT_THAT(refusal_of(rank), HasSubstr("from 1 to 65536"));

  RunOptions kbit = options();
  kbit.prepares_for_kbit = true;
  EXPECT_THAT(refusal_of(kbit), HasSubstr("not quantised"));
}

}  // namespace
}  // namespace memcalc
