// spec/megatron_options, spec/validate_megatron: what --megatron takes, and which runs Megatron-core refuses.
#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/validate_megatron.h"

namespace memcalc {
namespace {

TEST(MegatronOptionsTest, MegatronsOwnNamesAreTaken) {
  const MegatronOptions o = parse_megatron_options(
      "attention-backend=unfused,cross-entropy-loss-fusion,cross-entropy-fusion-impl=te,no-gradient-accumulation-"
      "fusion,"
      "moe-expert-capacity-factor=1.25,decoder-last-pipeline-num-layers=3,normalization=RMSNorm,hidden-dropout=0.1");
  EXPECT_EQ(o.attention, MegatronAttention::kUnfused);
  EXPECT_EQ(o.loss, MegatronLoss::kTe);
  EXPECT_FALSE(o.fuses_weight_gradients);
  EXPECT_EQ(o.expert_capacity, 1.25);
  EXPECT_EQ(o.last_stage_layers, 3);
  EXPECT_EQ(o.rms_norm, true);
  EXPECT_EQ(o.hidden_dropout, 0.1);
  const MegatronOptions of_stages = parse_megatron_options(
      "account-for-embedding-in-pipeline-split,defer-embedding-wgrad-compute,wgrad-deferral-limit=0,rotary-percent=0.5,"
      "microbatch-group-size-per-virtual-pipeline-stage=5,squared-relu,no-rope-fusion,apply-layernorm-1p");
  EXPECT_TRUE(of_stages.counts_embedding && !of_stages.counts_loss && of_stages.defers_head_gradient);
  EXPECT_EQ(of_stages.micro_batch_group, 5);
  EXPECT_TRUE(of_stages.squared_relu && !of_stages.fuses_rope);
  EXPECT_EQ(of_stages.rotary_percent, 0.5);
  EXPECT_EQ(parse_megatron_options("").loss, MegatronLoss::kNative);
  EXPECT_EQ(parse_megatron_options("cross-entropy-loss-fusion").loss, MegatronLoss::kFused);
}

struct Refusal {
  const char* name;
  const char* list;
  const char* says;  // a part of the message
};

class MegatronList : public ::testing::TestWithParam<Refusal> {};

TEST_P(MegatronList, IsRefusedWithTheReason) {
  try {
    (void)parse_megatron_options(GetParam().list);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, MegatronList,
                         ::testing::ValuesIn({Refusal{"Unknown", "use-megatron-fsdp", "unknown argument"},
                                              Refusal{"Mistyped", "atention-backend=fused", "attention-backend"},
                                              Refusal{"NoValue", "make-vocab-size-divisible-by",
                                                      "a whole number from 1, found nothing"},
                                              Refusal{"ValueOfAFlag", "swiglu=yes", "no value"},
                                              Refusal{"NotANumber", "hidden-dropout=0.1x", "from 0 to below 1"},
                                              Refusal{"TooLarge", "attention-dropout=1", "from 0 to below 1"},
                                              Refusal{"TooMuch", "rotary-percent=1.5", "up to 1, found \"1.5\""},
                                              Refusal{"Choice", "normalization=Batch", "RMSNorm or LayerNorm"}}),
                         [](const auto& info) { return info.param.name; });

ModelSpec llama() {
  LlamaSpec spec;
  spec.num_hidden_layers = 12;
  spec.num_attention_heads = 16;
  spec.num_key_value_heads = 8;
  return {.name = "a llama", .model_type = "llama", .architecture = spec};
}

ModelSpec mixtral() {
  MixtralSpec spec;
  spec.num_hidden_layers = 12;
  spec.num_attention_heads = 16;
  spec.num_key_value_heads = 8;
  spec.experts = {.count = 8, .per_token = 2, .intermediate_size = 64};
  return {.name = "a mixtral", .model_type = "mixtral", .architecture = spec};
}

RunSpec run_on(std::int64_t gpus) {
  RunSpec run;
  run.sequence_length = 1024;
  run.precision = Precision::kBf16;
  run.parallel.framework = Framework::kMegatron;
  run.parallel.gpus = gpus;
  return run;
}

struct RunRefusal {
  const char* name;
  void (*change)(RunSpec& run);
  const char* says;  // empty: accepted
  bool experts = false;
};

class MegatronRun : public ::testing::TestWithParam<RunRefusal> {};

TEST_P(MegatronRun, IsAcceptedOrRefusedWithTheReason) {
  const RunRefusal& c = GetParam();
  RunSpec run = run_on(8);
  c.change(run);
  std::string message;
  try {
    check_megatron(c.experts ? mixtral() : llama(), run);
  } catch (const Error& error) {
    message = error.what();
  }
  if (*c.says == '\0') {
    EXPECT_EQ(message, "");
  } else {
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
  }
}

const RunRefusal kRuns[] = {
    {"Plain", [](RunSpec&) {}, ""},
    {"TensorAndPipeline", [](RunSpec& r) { r.parallel.tensor = 2, r.parallel.pipeline = 4; }, ""},
    {"SplitHead", [](RunSpec& r) { r.parallel.tensor = 16; }, "tp 16 does not divide the 8 key/value heads"},
    {"UnevenStages", [](RunSpec& r) { r.parallel.pipeline = 8; }, "pp 8 does not divide the 12 layers"},
    {"UnevenStagesGiven",
     [](RunSpec& r) {
       r.parallel.pipeline = 4, r.parallel.megatron.first_stage_layers = 2, r.parallel.megatron.last_stage_layers = 4;
     },
     ""},
    {"EmbeddingAndLossAreCounted",
     [](RunSpec& r) {
       r.parallel.pipeline = 7, r.parallel.gpus = 7;
       r.parallel.megatron.counts_embedding = r.parallel.megatron.counts_loss = true;
     },
     ""},
    {"DeferredWithoutPipeline", [](RunSpec& r) { r.parallel.megatron.defers_head_gradient = true; }, "give --pp"},
    {"DeferredUnfused",
     [](RunSpec& r) {
       r.parallel.pipeline = 4, r.parallel.megatron.defers_head_gradient = true;
       r.parallel.megatron.fuses_weight_gradients = false;
     },
     "no-gradient-accumulation-fusion"},
    {"LayerScalingOfTransformerEngine", [](RunSpec& r) { r.parallel.megatron.scales_by_layer = true; },
     "transformer-impl=local"},
    {"GroupWithoutVirtualStages",
     [](RunSpec& r) { r.parallel.pipeline = 4, r.parallel.megatron.micro_batch_group = 4; }, "give --virtual-stages"},
    {"GroupSmallerThanPipeline",
     [](RunSpec& r) {
       r.parallel.pipeline = 4, r.parallel.virtual_stages = 3, r.parallel.micro_batches = 10;
       r.parallel.megatron.micro_batch_group = 3;
     },
     "expected 4 (pp) to 10 (micro-batches)"},
    {"Group",
     [](RunSpec& r) {
       r.parallel.pipeline = 4, r.parallel.virtual_stages = 3, r.parallel.micro_batches = 10;
       r.parallel.megatron.micro_batch_group = 5;
     },
     ""},
    {"Gpipe", [](RunSpec& r) { r.parallel.pipeline = 4, r.parallel.schedule = PipelineSchedule::kGpipe; },
     "Megatron-core has 1f1b and interleaved"},
    {"InterleavedMicroBatches",
     [](RunSpec& r) { r.parallel.pipeline = 4, r.parallel.virtual_stages = 3, r.parallel.micro_batches = 6; },
     "a multiple of pp, 4"},
    {"ContextHalves", [](RunSpec& r) { r.parallel.context = 4, r.sequence_length = 1028; }, "a multiple of 8"},
    {"UlyssesHeads",
     [](RunSpec& r) {
       r.parallel.tensor = 4, r.parallel.context = 4;
       r.parallel.context_type = ContextParallel::kUlysses;
     },
     "does not divide the 2 key/value heads"},
    {"ExpertsOfADenseModel", [](RunSpec& r) { r.parallel.expert = 2; }, "the model has no experts"},
    {"Experts", [](RunSpec& r) { r.parallel.expert = 8; }, "", true},
    {"ExpertsDoNotDivide", [](RunSpec& r) { r.parallel.expert = 3; }, "ep 3 does not divide the 8 experts", true},
    {"ExpertsNeedSequenceParallelism", [](RunSpec& r) { r.parallel.tensor = 2; }, "give --sp", true},
    {"Autocast", [](RunSpec& r) { r.precision = Precision::kAmpBf16; }, "accepted: bf16"},
    {"Fsdp", [](RunSpec& r) { r.parallel.data_parallel = DataParallel::kFsdp2; }, "accepted: megatron-dist"},
    {"Sgd", [](RunSpec& r) { r.optimizer = Optimizer::kSgd; }, "accepted: adamw"},
};

INSTANTIATE_TEST_SUITE_P(All, MegatronRun, ::testing::ValuesIn(kRuns),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace memcalc
