// report/verdict and spec/prediction_errors: three verdicts by one rule, and how well each kind of run is predicted.
#include "memcalc/report/verdict.h"

#include <gtest/gtest.h>

#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/prediction_errors.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

TEST(Verdict, IsTooCloseWithinTheError) {
  EXPECT_EQ(verdict_of(90, 10, 100), Verdict::kFits);
  EXPECT_EQ(verdict_of(91, 10, 100), Verdict::kTooClose);
  EXPECT_EQ(verdict_of(110, 10, 100), Verdict::kTooClose);
  EXPECT_EQ(verdict_of(111, 10, 100), Verdict::kDoesNotFit);
  EXPECT_EQ(verdict_of(100, 0, 100), Verdict::kFits);
  EXPECT_EQ(verdict_of(101, 0, 100), Verdict::kDoesNotFit);
}

std::string kind_of(const std::string& line) {
  const Question question = test::question_of(test::words_in(line));
  return std::string(kRunKindNames[static_cast<std::size_t>(kind_of(question.model, question.run.run))]);
}

TEST(Verdict, KnowsKindsOfRuns) {
  EXPECT_EQ(kind_of("--model gpt2"), "text");
  EXPECT_EQ(kind_of("--model resnet18"), "image");
  EXPECT_EQ(kind_of("--model gpt2 --lora 8"), "fine-tuning");
  EXPECT_EQ(kind_of("--model flux.1-dev --lora 16"), "denoiser");
  EXPECT_EQ(kind_of("--model gpt2 --infer"), "inference");
  EXPECT_EQ(kind_of("--model gpt2 --compile"), "compiled");
  EXPECT_EQ(kind_of("--model gpt2 --gpus 2"), "data-parallel");
  EXPECT_EQ(kind_of("--model gpt2 --gpus 2 --parallel fsdp1 --loop bare"), "fsdp1");
  EXPECT_EQ(kind_of("--model gpt2 --gpus 2 --parallel zero2 --loop bare"), "deepspeed");
  EXPECT_EQ(kind_of("--model gpt2 --gpus 2 --framework megatron"), "megatron");
  EXPECT_EQ(kind_of("--model llama-3.2-1b --gpus 2 --pp 2 --loop bare"), "pipeline");
}

std::string step_kind_of(const std::string& line, bool host_bound, bool timed_card = true) {
  const Question question = test::question_of(test::words_in(line));
  return std::string(
      kStepKindNames[static_cast<std::size_t>(step_kind_of(question.model, question.run.run, host_bound, timed_card))]);
}

TEST(Verdict, KnowsKindsOfSteps) {
  EXPECT_EQ(step_kind_of("--model gpt2", /*host_bound=*/false), "by-card");
  EXPECT_EQ(step_kind_of("--model gpt2", /*host_bound=*/true), "by-host");
  EXPECT_EQ(step_kind_of("--model granite-3.0-1b-a400m", /*host_bound=*/false), "experts");
  EXPECT_EQ(step_kind_of("--model granite-3.0-1b-a400m", /*host_bound=*/true), "by-host");
  EXPECT_EQ(step_kind_of("--model resnet18", /*host_bound=*/false), "image");
  EXPECT_EQ(step_kind_of("--model gpt2 --compile", /*host_bound=*/true), "compiled");
  EXPECT_EQ(step_kind_of("--model gpt2 --gpus 2", /*host_bound=*/true), "several-cards");
  EXPECT_EQ(step_kind_of("--model gpt2 --infer", /*host_bound=*/true), "inference");
  const bool other = false;  // a card that others timed alone
  EXPECT_EQ(step_kind_of("--model gpt2", /*host_bound=*/false, other), "other-card");
  EXPECT_EQ(step_kind_of("--model gpt2", /*host_bound=*/true, other), "by-host");
  EXPECT_EQ(step_kind_of("--model gpt2 --gpus 2", /*host_bound=*/false, other), "other-cards");
  EXPECT_EQ(step_kind_of("--model gpt2 --gpus 2", /*host_bound=*/true, other), "several-cards");
}

TEST(Verdict, CountsWhatIsAssumedOfTheCard) {
  const auto report = [](const std::string& card) {
    return estimate(test::question_of(test::words_in("--model gpt2 --bs 2 --loop bare --gpu " + card)));
  };
  const Report measured = report("h100-sxm"), assumed = report("rtx-4090");
  const double share = measured.device.errors->shares[static_cast<std::size_t>(RunKind::kText)];
  EXPECT_NEAR(static_cast<double>(measured.needed_error), share * static_cast<double>(measured.memory.peak_reserved),
              1);
  EXPECT_EQ(assumed.needed(), assumed.memory.peak_reserved + assumed.device.assumed_context->bytes);
  EXPECT_GE(assumed.needed_error, assumed.device.assumed_context->error);
}

TEST(Verdict, OfAllViewsIsTheSame) {
  for (const char* batch : {"1", "16", "17", "18", "19", "20", "64"}) {
    const Question question =
        test::question_of(test::words_in("--model gpt2 --seq 1024 --fp16 --gpu rtx-4090 --bs " + std::string(batch)));
    const Report report = estimate(question);
    const std::vector<FitRow> rows = fits_on(question.model, question.run.run, {&question.device, 1});
    EXPECT_EQ(rows[0].verdict, report.verdict);
    EXPECT_EQ(rows[0].needed_bytes, report.needed());
  }
}

Report of_line(const std::string& line) { return estimate(test::question_of(test::words_in(line))); }

TEST(Verdict, AHostThatHasTooLittleDoesNotRunItWhateverTheCardHas) {
  const std::string offloads = "--model gpt2 --bs 8 --seq 1024 --bf16 --gpu h100-sxm --activation-offload";
  const Report fits = of_line(offloads + " --host-memory 64"), lacks = of_line(offloads + " --host-memory 2");
  EXPECT_TRUE(fits.fits());
  ASSERT_TRUE(fits.host_fit && lacks.host_fit);
  EXPECT_EQ(fits.host_fit->needed, lacks.host_memory.total);
  EXPECT_FALSE(lacks.fits());
  EXPECT_EQ(lacks.verdict, Verdict::kDoesNotFit);
  EXPECT_NE(render(lacks, Format::kText, {}).find("the stage train needs"), std::string::npos);
  EXPECT_EQ(of_line(offloads).host_fit->available, 2048 * kGiB) << "the usual host's";
}

TEST(Verdict, EachRankOfAHostLoadsTheModelButPagesOfFilesMayBeDropped) {
  const std::string loads =
      "--model llama-3.1-8b --bs 1 --seq 512 --precision amp-bf16 --gpus 8 --parallel ddp "
      "--gpu h100-sxm --stages all --load host --host-memory 128 --weights-dtype ";
  const Report converted = of_line(loads + "fp32"), as_stored = of_line(loads + "bf16");
  ASSERT_TRUE(converted.host_fit && as_stored.host_fit);
  EXPECT_EQ(converted.host_fit->stage, "load");
  EXPECT_EQ(converted.host_fit->ranks, 8);
  EXPECT_EQ(converted.host_fit->needed, 8 * 8'030'261'248 * Bytes{4});
  EXPECT_FALSE(converted.fits_host());
  EXPECT_TRUE(as_stored.fits_host());
}

}  // namespace
}  // namespace memcalc
