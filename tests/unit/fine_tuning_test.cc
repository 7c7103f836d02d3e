// Adapters, frozen parameters and quantised bases: what they add and what they take away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::HasSubstr;

class FineTuningTest : public ::testing::Test {
 protected:
  ModelSpec model_ = registry().model("tinyllama-1.1b");
  DeviceSpec device_ = registry().device("h100-sxm");

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
  [[nodiscard]] std::string rule_of(const RunOptions& options) const {
    return error_rule([&] { (void)report_of(options); });
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

TEST_F(FineTuningTest, AClassifierIsAdaptedOrTrained) {
  const ModelSpec bert = registry().model("bert-base", {.layers = 1});
  RunOptions lora = options();
  lora.precision = Precision::kFp32;
  lora.lora_rank = 8;
  const auto trained = [&] { return estimate(bert, resolve(bert, lora), device_).parameters_trainable; };
  // Query, key, value and the output of attention, the two of the MLP, the pooler, a classifier of two labels.
  constexpr std::int64_t kAdapters = 8 * (4 * (768 + 768) + 2 * (768 + 3072) + (768 + 768));
  EXPECT_EQ(trained(), kAdapters + 8 * (768 + 2));
  lora.lora_trains_head = true;
  EXPECT_EQ(trained(), kAdapters + 768 * 2 + 2);
}

// peft's QUESTION_ANS: qa_outputs, which has no activation and no pooler in front of it.
TEST_F(FineTuningTest, TheHeadOfAnswersIsAdaptedOrTrained) {
  const ModelSpec bert = registry().model("bert-base", {.layers = 1});
  RunOptions lora = options();
  lora.precision = Precision::kFp32;
  lora.task = Task::kQuestionAnswering;
  lora.lora_rank = 8;
  const auto trained = [&] { return estimate(bert, resolve(bert, lora), device_).parameters_trainable; };
  constexpr std::int64_t kAdapters = 8 * (4 * (768 + 768) + 2 * (768 + 3072));
  EXPECT_EQ(trained(), kAdapters + 8 * (768 + 2));
  lora.lora_trains_head = true;
  lora.lora_targets = {"query", "value"};
  EXPECT_EQ(trained(), 8 * 2 * (768 + 768) + 768 * 2 + 2);
}

TEST_F(FineTuningTest, FrozenParametersHaveNoGradientAndNoState) {
  RunOptions frozen = options();
  frozen.frozen = {"embed_tokens", "lm_head"};
  const std::int64_t vocabulary = 2 * 32000 * 2048;
  EXPECT_EQ(report_of(frozen).parameters_trainable, report_of(options()).parameters_total - vocabulary);
}

// axolotl's unfrozen_parameters: patterns that names begin with, as the whole model of images and text has them, too.
TEST_F(FineTuningTest, OfAllButSomeParametersThoseTrainWhoseNamesBeginSo) {
  const auto trained = [&](std::vector<std::string> patterns) {
    RunOptions frozen = options();
    frozen.frozen = std::move(patterns);
    return report_of(frozen).parameters_trainable;
  };
  constexpr std::int64_t kHead = 32000 * 2048, kQuery = 2048 * 2048;
  EXPECT_EQ(trained({"except:^lm_head\\.weight$"}), kHead);
  EXPECT_EQ(trained({"except:lm_head", "model\\.layers\\.[01]\\.self_attn\\.q_proj"}), kHead + 2 * kQuery);
  EXPECT_EQ(trained({"except:model\\.language_model\\.layers\\.2[01]\\.self_attn\\.q_proj"}), 2 * kQuery);
  EXPECT_EQ(rule_of([&] {
              RunOptions none = options();
              none.frozen = {"except:q_proj"};
              return none;
            }()),
            "freeze-except-matches")
      << "no name begins so";
  EXPECT_EQ(rule_of([&] {
              RunOptions all = options();
              all.frozen = {"except:"};
              return all;
            }()),
            "freeze-pattern")
      << "it would freeze nothing";
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

TEST_F(FineTuningTest, APackedHeadIsHalfAByteForEachWeightToo) {
  RunOptions head = options();
  head.lora_rank = 8;
  head.quantization = Quantization::kNf4;
  head.prepares_for_kbit = false;
  RunOptions plain = head;
  head.packs_head = true;
  const auto weights = [](const Report& report) {
    return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
  };
  const double saved = static_cast<double>(weights(report_of(plain)) - weights(report_of(head)));
  EXPECT_NEAR(saved / (32000.0 * 2048 * (2 - 0.5 - 4.0 / 64)), 1, 0.001);

  EXPECT_THAT(error_text([&] {
                const ModelSpec tied = registry().model("llama-3.2-1b");
                (void)estimate(tied, resolve(tied, head), device_);
              }),
              HasSubstr("a tied one is the embedding's weight"));
}

TEST_F(FineTuningTest, OldBitsandbytesKeepsWhatGoesIntoAPackedProduct) {
  const auto forward_peak = [&](std::int64_t layers, bool keeps) {
    RunOptions packed = options();
    packed.batch_size = 4;
    packed.sequence_length = 1024;
    packed.lora_rank = 8;
    packed.lora_targets = {"q_proj"};
    packed.lora_in_base_dtype = true;
    packed.quantization = Quantization::kNf4;
    packed.prepares_for_kbit = false;
    packed.profile.behaviors.keeps_packed_inputs = keeps;
    const ModelSpec model = registry().model("tinyllama-1.1b", {.layers = layers});
    return estimate(model, resolve(model, packed), device_)
        .memory.phase_peaks[static_cast<std::size_t>(Phase::kForward)];
  };
  // One more layer keeps, beside what it keeps anyway, the inputs of gate_proj (and up_proj) and of down_proj; that of
  // q_proj the adapter keeps anyway, that of o_proj attention.
  const Bytes added =
      (forward_peak(6, true) - forward_peak(5, true)) - (forward_peak(6, false) - forward_peak(5, false));
  EXPECT_NEAR(static_cast<double>(added) / (4 * 1024 * (2048 + 5632) * 2), 1, 0.02) << "but for slack";
}

// Its product in 16 bits and the float32 copy, each as large as the head's weight (job j7041-10).
TEST_F(FineTuningTest, OldLigerAddsToTheGradientOfTheHeadByProducts) {
  const ModelSpec model = registry().model("llama-3.2-1b", {.layers = 1});
  const auto forward_peak = [&](Precision precision, LigerLoss form) {
    RunOptions run = options();
    run.batch_size = 2;
    run.sequence_length = 256;
    run.precision = precision;
    if (precision == Precision::kAmpBf16) run.weights_dtype = DType::kFloat32;
    run.liger = true;
    run.profile.behaviors.liger_loss = form;
    return static_cast<double>(
        estimate(model, resolve(model, run), device_).memory.phase_peaks[static_cast<std::size_t>(Phase::kForward)]);
  };
  constexpr double kElements = 128256.0 * 2048;
  using L = LigerLoss;
  for (const Precision precision : {Precision::kBf16, Precision::kAmpBf16}) {
    const double least = forward_peak(precision, L::kInPlace);
    const auto added = [&](LigerLoss form) { return (forward_peak(precision, form) - least) / kElements; };
    // Under autocast the least has a copy of the head in 16 bits, which is gone by then.
    const bool has_float32_gradient = precision == Precision::kAmpBf16;
    EXPECT_NEAR(added(L::kProducts), has_float32_gradient ? 4 : 6, 0.03);
    EXPECT_NEAR(added(L::kFloat32InPlace), has_float32_gradient ? 0 : 6, 0.03);
  }
}

// trl 1.16: no prepare_model_for_kbit_training, adapters in bfloat16; exact on an H100 (measured/jobs, r20).
TEST_F(FineTuningTest, TrlCastsTheAdaptersOfAPackedBase) {
  RunOptions packed = options();
  packed.quantization = Quantization::kNf4;
  packed.lora_rank = 4;
  packed.loop = Loop::kTrlSft;
  const FineTuning in_trl = resolve(model_, packed).run.fine_tuning;
  EXPECT_FALSE(in_trl.prepares_for_kbit);
  EXPECT_TRUE(in_trl.lora->in_bf16);
  for (const Loop loop : {Loop::kTrainer, Loop::kTrlOrpo}) {
    packed.loop = loop;
    const FineTuning other = resolve(model_, packed).run.fine_tuning;
    EXPECT_TRUE(other.prepares_for_kbit);
    EXPECT_FALSE(other.lora->in_bf16);
  }
}

TEST_F(FineTuningTest, ParametersNeedNoStep) {
  const auto rows_of = [](const std::vector<ParameterInfo>& parameters) {
    std::vector<std::string> rows;
    for (const ParameterInfo& each : parameters) {
      rows.push_back(each.name + (each.trainable ? " trains " : " is frozen ") + std::string(name_of(each.dtype)));
      for (int i = 0; i < each.shape.rank; ++i) rows.back() += " " + std::to_string(each.shape[i]);
    }
    return rows;
  };
  const auto expect_equal = [&](const ModelSpec& model, const RunOptions& options) {
    const RunSpec run = resolve(model, options).run;
    EXPECT_EQ(rows_of(parameters_of_run(model, run, device_)),
              rows_of(run_symbolically(model, run, device_).parameters))
        << model.name;
  };
  RunOptions lora = options();
  lora.lora_rank = 8;
  expect_equal(model_, lora);
  lora.quantization = Quantization::kNf4;
  expect_equal(model_, lora);
  RunOptions frozen = options();
  frozen.frozen = {"embed_tokens"};
  expect_equal(model_, frozen);
  RunOptions trainer = options();
  trainer.loop = Loop::kTrainer;
  expect_equal(model_, trainer);
  for (const char* name : {"bert-base", "t5-small", "resnet18", "gpt-oss-20b"})
    expect_equal(registry().model(name), {});
  // Of one small image a batch norm has one value in each channel: torch refuses the step, and has the parameters.
  const ModelSpec network = registry().model("resnet50");
  RunOptions small;
  small.image_size = 32;
  small.batch_size = 1;
  const RunSpec run = resolve(network, small).run;
  EXPECT_EQ(error_rule([&] { (void)run_symbolically(network, run, device_); }), "batch-norm-of-several");
  EXPECT_FALSE(parameters_of_run(network, run, device_).empty());
}

TEST_F(FineTuningTest, RefusesWhatTheLibrariesRefuse) {
  RunOptions quantized = options();
  quantized.quantization = Quantization::kNf4;
  EXPECT_EQ(rule_of(quantized), "quantize-trains-adapters");

  RunOptions target = options();
  target.lora_rank = 8;
  target.lora_targets = {"c_attn"};
  EXPECT_THAT(refusal_of(target), HasSubstr("accepted: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"));

  RunOptions nothing = options();
  nothing.frozen = {"no.such.part"};
  EXPECT_THAT(refusal_of(nothing), HasSubstr("no parameter's name contains '"));

  RunOptions everything = options();
  everything.frozen = {"."};
  EXPECT_THAT(refusal_of(everything), HasSubstr("nothing to train"));

  RunOptions rank = options();
  rank.lora_rank = std::int64_t{1} << 40;
  EXPECT_THAT(refusal_of(rank), HasSubstr("from 1 to 65536"));

  RunOptions kbit = options();
  kbit.prepares_for_kbit = true;
  EXPECT_EQ(rule_of(kbit), "prepare-kbit-of-quantized");
}

}  // namespace
}  // namespace memcalc
