// plan/plan.h on jobs that people ask for. Seven of them are the field trial's (2026-11-22), for which plan said "No
// plan", or named one twice as slow, while a run that estimate() accepts fitted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "memcalc/plan/plan_space.h"
#include "memcalc/planning.h"
#include "memcalc/spec/hosts.h"
#include "support/paths.h"
#include "support/registry.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

using test::registry;

/// What plan has to find.
enum class Wanted : std::uint8_t {
  kFits,   // any that fits
  kTimed,  // one without an optimizer that steps on the host
  kNone,   // the library models none
};

struct Job {
  const char* name;
  const char* model;
  const char* card;
  std::int64_t gpus, nodes, global_batch, sequence_length;
  const char* exists;  // the options of a run that fits, beside model, card, cards and length; null: none is known
  Wanted wanted = Wanted::kTimed;
  std::vector<Framework> frameworks = {Framework::kTorch, Framework::kDeepSpeed, Framework::kMegatron};
  std::int64_t lora_rank = 0;
  std::optional<Quantization> quantization = {};
  Precision precision = Precision::kAmpBf16;
  Loop loop = Loop::kBare;
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

// torch's FSDP2 as the planner lays it out.
constexpr const char* kFsdp2OfTwo =
    "--loop bare --parallel fsdp2 --fsdp-param-dtype bf16 --fsdp-reduce-dtype fp32 --checkpointing full --bs 2";
constexpr const char* kFsdp2OfTwoTwice =
    "--loop bare --parallel fsdp2 --fsdp-param-dtype bf16 --fsdp-reduce-dtype fp32 --checkpointing full --bs 2 "
    "--accum 2";
constexpr const char* kFsdp2OverAllContexts =
    "--loop bare --parallel fsdp2 --fsdp-param-dtype bf16 --fsdp-reduce-dtype fp32 --checkpointing full --cp 8 "
    "--accum 8";
constexpr const char* kFsdp2OverTwoContexts =
    "--loop bare --parallel fsdp2 --fsdp-param-dtype bf16 --fsdp-reduce-dtype fp32 --no-reshard-after-forward --cp 2 "
    "--accum 8";
constexpr const char* kMegatronOf70B =
    "--precision bf16 --optimizer adamw --parallel megatron-dist --tp 4 --sp --cp 2 --pp 4 --micro-batches 128";
constexpr const char* kMegatronOfGpt2 = "--precision bf16 --optimizer adamw --parallel megatron-dist --bs 4 --accum 4";
constexpr const char* kMegatronOfMixtral =
    "--precision bf16 --optimizer adamw --parallel megatron-dist --cp 2 --ep 8 --pp 2 --micro-batches 16";

const Job kJobs[] = {
    // The field trial's; of what exists there the runs of FSDP2.
    {"Qwen2Of32BOn16",
     "qwen2.5-32b",
     "h100-sxm",
     16,
     2,
     64,
     4096,
     kFsdp2OfTwoTwice,
     Wanted::kTimed,
     {Framework::kTorch}},
    {"Llama8BAt128k", "llama-3.1-8b", "h100-sxm", 8, 1, 8, 131072, kFsdp2OverAllContexts},
    {"Llama70BOn32", "llama-3.1-70b", "h100-sxm", 32, 4, 128, 8192, kMegatronOf70B},
    {"MixtralOn8A100", "mixtral-8x7b", "a100-sxm4-80gb", 8, 1, 16, 2048, nullptr, Wanted::kFits},
    {"Llama405BOn144",
     "llama-3.1-405b",
     "h100-sxm",
     144,
     18,
     576,
     8192,
     nullptr,
     Wanted::kTimed,
     {Framework::kMegatron}},
    {"Llama70BOn64", "llama-3.1-70b", "h100-sxm", 64, 8, 128, 4096, kFsdp2OfTwo, Wanted::kTimed, {Framework::kTorch}},
    {"Gemma9BOn8A100", "gemma-2-9b", "a100-sxm4-80gb", 8, 1, 32, 4096, kFsdp2OverTwoContexts},
    // Ten more.
    {"Llama8BOnTwo4090", "llama-3.1-8b", "rtx-4090", 2, 1, 16, 2048, nullptr, Wanted::kFits},
    {"Qlora70BOnTwo4090",
     "llama-3.1-70b",
     "rtx-4090",
     2,
     1,
     8,
     1024,
     nullptr,
     Wanted::kNone,  // a plain loop of it is not modelled
     {Framework::kTorch, Framework::kDeepSpeed, Framework::kMegatron},
     16,
     Quantization::kNf4,
     Precision::kBf16},
    {"Qlora70BOnTwo4090InTheTrainer",
     "llama-3.1-70b",
     "rtx-4090",
     2,
     1,
     8,
     1024,
     nullptr,
     Wanted::kFits,
     {Framework::kTorch, Framework::kDeepSpeed},
     16,
     Quantization::kNf4,
     Precision::kAmpBf16,
     Loop::kTrainer},
    {"Qwen2Of32BAt128k", "qwen2.5-32b", "h200-sxm", 8, 1, 8, 131072, nullptr},
    {"Llama405BOn128", "llama-3.1-405b", "h100-sxm", 128, 16, 512, 8192, nullptr},
    {"Llama405BOn144OfAny", "llama-3.1-405b", "h100-sxm", 144, 18, 576, 8192, nullptr},
    {"Llama8BOn8", "llama-3.1-8b", "h100-sxm", 8, 1, 16, 8192, nullptr},
    {"Llama1BOn3090", "llama-3.2-1b", "rtx-3090", 1, 1, 32, 2048, nullptr, Wanted::kFits},
    {"Gpt2XlOn4A100", "gpt2-xl", "a100-sxm4-40gb", 4, 1, 64, 1024, kMegatronOfGpt2},
    {"MixtralOn16", "mixtral-8x7b", "h100-sxm", 16, 2, 64, 4096, kMegatronOfMixtral},
    {"Lora8BOn4090",
     "llama-3.1-8b",
     "rtx-4090",
     1,
     1,
     16,
     2048,
     nullptr,
     Wanted::kTimed,
     {Framework::kTorch},
     16,
     std::nullopt,
     Precision::kBf16},
};

PlanQuestion question_of(const Job& job) {
  PlanQuestion asked{.model = registry().model(job.model), .device = registry().device(job.card)};
  RunOptions options{.sequence_length = job.sequence_length, .precision = job.precision, .loop = job.loop};
  if (job.lora_rank > 0) options.lora_rank = job.lora_rank;
  options.quantization = job.quantization;
  asked.run = resolve(asked.model, options).run;
  asked.gpus = job.gpus;
  asked.nodes = job.nodes;
  asked.global_batch = job.global_batch;
  asked.frameworks = job.frameworks;
  if (const auto host = usual_host_of(test::specs_dir().string(), asked.device.name)) {
    asked.host = {host->memory_bytes / host->gpus, host->source};
  }
  return asked;
}

/// The step of the run that exists, by the same rates.
double seconds_of_existing(const Job& job) {
  const std::string line = std::string("--model ") + job.model + " --gpu " + job.card + " --gpus " +
                           std::to_string(job.gpus) + " --nodes " + std::to_string(job.nodes) + " --seq " +
                           std::to_string(job.sequence_length) + " " + job.exists;
  const Outcome outcome = outcome_of(estimate(test::question_of(test::words_in(line))));
  EXPECT_TRUE(outcome.speed.has_value()) << line;
  return outcome.speed ? outcome.speed->step_seconds : 0;
}

class PlanOf : public testing::TestWithParam<Job> {};

TEST_P(PlanOf, IsAsGoodAsWhatExists) {
  const Job& job = GetParam();
  const PlanQuestion asked = question_of(job);
  const Plan plan = make_plan(asked);
  if (job.wanted == Wanted::kNone) {
    EXPECT_TRUE(plan.front.empty());
    EXPECT_THAT(answer_of(asked, plan).headline, HasSubstr("No plan"));
    return;
  }
  ASSERT_FALSE(plan.front.empty()) << answer_of(asked, plan).headline;
  const PlanEntry& first = plan.front.front();
  EXPECT_TRUE(first.outcome.fits());
  EXPECT_TRUE(asked.host.bytes_per_gpu == 0 || first.outcome.host <= asked.host.bytes_per_gpu);
  EXPECT_TRUE(first.outcome.speed.has_value() || job.wanted != Wanted::kTimed);
  if (job.exists == nullptr) return;
  double fastest = first.seconds();
  for (const PlanEntry& each : plan.front) fastest = std::min(fastest, each.seconds());
  EXPECT_LE(fastest, seconds_of_existing(job) * 1.001);
}

INSTANTIATE_TEST_SUITE_P(Jobs, PlanOf, testing::ValuesIn(kJobs), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace memcalc
