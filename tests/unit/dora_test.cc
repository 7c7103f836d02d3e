// --dora: peft's use_dora. What a layer's forward pass asks for beside LoRA's, and what trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRun =
    "--model llama-3.2-1b --layers 2 --bs 1 --seq 64 --precision bf16 --weights-dtype bf16 --loop bare --lora 8 "
    "--lora-targets q_proj,down_proj --gpu h200-sxm ";
constexpr std::int64_t kHidden = 2048, kInner = 8192;  // q_proj: [hidden, hidden], down_proj: [hidden, inner]

Question question_of(const std::string& more) { return test::question_of(test::words_in(std::string(kRun) + more)); }

/// How often the run's trace asks for so many bytes.
std::int64_t requests_of(const Question& question, Bytes bytes) {
  const Trace trace = run_symbolically(question.model, question.run.run, question.device).trace;
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && trace.blocks[static_cast<std::size_t>(event.block)].requested == bytes;
  });
}

std::int64_t requests_of(const std::string& more, Bytes bytes) { return requests_of(question_of(more), bytes); }

TEST(Dora, TrainsALengthForEachRow) {
  const Report lora = estimate(question_of("")), dora = estimate(question_of("--dora"));
  EXPECT_EQ(dora.parameters_trainable - lora.parameters_trainable, 2 * (kHidden + kHidden));
}

// x_eye is as wide as the layer's input and in float32, the adapters' type: 256 MiB for 8,192 inputs.
TEST(Dora, MultipliesTheTwoMatricesByWayOfAnIdentity) {
  constexpr Bytes kEye = 4 * kInner * kInner;
  EXPECT_EQ(requests_of("", kEye), 0);
  EXPECT_EQ(requests_of("--dora", kEye), 3 * 2);  // steps, layers
  EXPECT_EQ(requests_of("--dora --lora-dtype base", kEye / 2), 3 * 2);
}

TEST(Dora, NeedsMoreThanLoraInEveryType) {
  for (const char* type : {"", "--lora-dtype base", "--lora-dropout 0.1", "--quantize nf4", "--checkpointing full"}) {
    EXPECT_GT(estimate(question_of(std::string(type) + " --dora")).memory.exact_peak,
              estimate(question_of(type)).memory.exact_peak)
        << type;
  }
}

// TRL casts the adapters of a packed base to bfloat16, and of DoRA the two matrices alone since 1.15; a reward model's
// training is the same in both otherwise.
TEST(Dora, LengthsOfAPackedBaseStayInFloat32UnderTrl) {
  const auto requests = [](const std::string& release) {
    const std::string run =
        "--model llama-3.2-1b --layers 2 --bs 1 --seq 64 --weights-dtype bf16 --loop trl-reward --lora 8 "
        "--lora-targets q_proj --quantize nf4 --dora --gpu h200-sxm --trl " +
        release;
    return requests_of(test::question_of(test::words_in(run)), 4 * kHidden);
  };
  EXPECT_GT(requests("1.16.0"), requests("1.12.0"));
  EXPECT_EQ(requests("1.16.0"), requests("1.15.0"));
}

TEST(Dora, IsRefusedWhereItIsNotModelled) {
  const auto refusal = [](const std::string& more) {
    return error_text([&] { (void)estimate(question_of("--dora " + more)); });
  };
  EXPECT_THAT(refusal("--quantize int8"), HasSubstr("not packed or in NF4"));
  EXPECT_THAT(refusal("--gpus 2 --parallel fsdp2"), HasSubstr("DoRA is modelled"));
  EXPECT_NO_THROW((void)estimate(question_of("--dora --gpus 2 --parallel ddp")));
}

}  // namespace
}  // namespace memcalc
