// spec/rules_megatron: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

RunOptions megatron(std::int64_t gpus, std::int64_t tensor, std::int64_t pipeline) {
  RunOptions options{
      .sequence_length = 1024, .precision = Precision::kBf16, .gpus = gpus, .framework = Framework::kMegatron};
  options.parallel.tensor = tensor;
  options.parallel.pipeline = pipeline;
  return options;
}

const RunOptions kPlain = megatron(8, 1, 1);
const RunOptions kTwoStages = megatron(8, 1, 2);
const RunOptions kFourStages = megatron(8, 1, 4);
const RunOptions kInterleaved = [] {
  RunOptions options = kFourStages;
  options.parallel.virtual_stages = 2;
  options.parallel.schedule = PipelineSchedule::kInterleaved;
  return options;
}();
const RunOptions kContext = [] {
  RunOptions options = megatron(8, 4, 1);
  options.parallel.context = 2;
  options.parallel.context_type = ContextParallel::kUlysses;
  return options;
}();
const RunOptions kExperts = [] {
  RunOptions options = megatron(8, 2, 1);
  options.parallel.sequence_parallel = true;
  return options;
}();

const RunOptions kT5 = [] {
  RunOptions options = megatron(8, 2, 1);
  options.sequence_length = 512;
  options.target_sequence_length = 128;
  options.parallel.sequence_parallel = true;
  return options;
}();
const RunOptions kBert = [] {
  RunOptions options = megatron(8, 1, 1);
  options.sequence_length = 512;
  return options;
}();

// llama-3.2-1b: 16 layers, 32 heads, 8 key/value heads.
const test::RuleCase kCases[] = {
    {"megatron-builds-family",
     "gemma-2b",
     [](RunSpec& run) { run.parallel.layout = MegatronLayout{}; },
     {.precision = Precision::kBf16}},
    {"megatron-builds-family",
     "opt-125m",
     [](RunSpec& run) { run.parallel.layout = MegatronLayout{}; },
     {.precision = Precision::kBf16}},
    {"megatron-trains",
     "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.layout = MegatronLayout{}; },
     {.precision = Precision::kBf16, .inference = Inference{}}},
    {"megatron-task", "llama-3.2-1b", [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kPlain},
    {"megatron-precision", "llama-3.2-1b", [](RunSpec& run) { run.precision = Precision::kAmpBf16; }, kPlain},
    {"megatron-optimizer", "llama-3.2-1b", [](RunSpec& run) { run.training().optimizer = Optimizer::kSgd; }, kPlain},
    {"megatron-muon-distributed", "llama-3.2-1b",
     [](RunSpec& run) {
       run.training().optimizer = Optimizer::kMuon;
       run.parallel.data_parallel = DataParallel::kMegatronDist;
     },
     kPlain},
    {"megatron-muon-fp16", "llama-3.2-1b",
     [](RunSpec& run) { run.training().optimizer = Optimizer::kMuon, run.precision = Precision::kFp16; }, kPlain},
    {"megatron-attention", "llama-3.2-1b", [](RunSpec& run) { run.attention = Attention::kEager; }, kPlain},
    {"megatron-checkpointing", "llama-3.2-1b",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull, run.training().checkpoint_every = 2; },
     kPlain},
    {"megatron-adapters", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.lora = Lora{.rank = 8}; }, kPlain},
    {"megatron-frozen", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.frozen = {"model.embed_tokens"}; }, kPlain},
    {"megatron-liger", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.liger = true; }, kPlain},
    {"megatron-padding", "llama-3.2-1b", [](RunSpec& run) { run.padding = true; }, kPlain},
    {"megatron-cache", "llama-3.2-1b", [](RunSpec& run) { run.use_cache = true; }, kPlain},
    {"megatron-compile", "llama-3.2-1b", [](RunSpec& run) { run.training().compile = true; }, kPlain},
    {"megatron-activation-offload", "llama-3.2-1b", [](RunSpec& run) { run.training().offload_activations = true; },
     kPlain},
    {"megatron-optimizer-offload", "llama-3.2-1b",
     [](RunSpec& run) { run.training().max_grad_norm.reset(), run.training().offload_optimizer = true; },
     megatron(1, 1, 1)},
    {"megatron-has-mode", "llama-3.2-1b", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kFsdp2; },
     kPlain},
    {"megatron-states-offload", "llama-3.2-1b", [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kHost; },
     kPlain},
    {"megatron-parameters-offload", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; }, kPlain},
    // arguments
    {"megatron-deferral-needs-pipeline", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.megatron().defers_head_gradient = true; }, kPlain},
    {"megatron-deferral-needs-fusion", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.megatron().defers_head_gradient = true;
       run.parallel.megatron().fuses_weight_gradients = false;
     },
     kTwoStages},
    {"megatron-deferral-limit", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().deferral_limit = 2; },
     kTwoStages},
    {"megatron-block-needs-layers", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.megatron().recomputes_blocks = true; }, kPlain},
    {"megatron-layer-scaling", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().scales_by_layer = true; },
     kPlain},
    {"megatron-softmax-fusion", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().fuses_softmax = false; },
     kPlain},
    {"megatron-position-table", "gpt2", [](RunSpec& run) { run.parallel.megatron().max_positions = 512; }, kPlain},
    {"megatron-one-activation", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.megatron().squared_relu = true, run.parallel.megatron().swiglu = true; }, kPlain},
    {"megatron-unfused-rope-with-cp", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().fuses_rope = false; },
     kContext},
    {"megatron-counts-or-says-ends", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.megatron().counts_embedding = true;
       run.parallel.megatron().last_stage_layers = 9;
     },
     kTwoStages},
    // pipelines
    {"megatron-schedules", "llama-3.2-1b", [](RunSpec& run) { run.parallel.schedule = PipelineSchedule::kGpipe; },
     kTwoStages},
    {"megatron-uneven-ends", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().first_stage_layers = 2; },
     kPlain},
    {"megatron-uneven-ends", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().first_stage_layers = 4; },
     kInterleaved},
    {"megatron-stages-hold-all-layers", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.megatron().first_stage_layers = 7;
       run.parallel.megatron().last_stage_layers = 8;
     },
     kTwoStages},
    {"megatron-stages-hold-all-layers", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.megatron().first_stage_layers = 17; }, kTwoStages},
    {"megatron-stages-are-even", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.pipeline = 3; },
     kTwoStages},
    {"megatron-stages-are-even", "llama-3.2-1b", [](RunSpec& run) { run.parallel.megatron().counts_loss = true; },
     kTwoStages},
    {"megatron-interleaved-needs-virtual-stages", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.schedule = PipelineSchedule::kInterleaved; }, kTwoStages},
    {"megatron-virtual-stages-of-pipelines", "llama-3.2-1b", [](RunSpec& run) { run.parallel.virtual_stages = 2; },
     kPlain},
    {"megatron-interleaved-micro-batches", "llama-3.2-1b", [](RunSpec& run) { run.parallel.micro_batches = 6; },
     kInterleaved},
    {"megatron-group-needs-virtual-stages", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.megatron().micro_batch_group = 4; }, kFourStages},
    {"megatron-group-size", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.micro_batches = 10;
       run.parallel.megatron().micro_batch_group = 3;
     },
     kInterleaved},
    {"megatron-group-size", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.micro_batches = 11;
       run.parallel.megatron().micro_batch_group = 9;  // of which two are left
     },
     kInterleaved},
    // sequences
    {"megatron-splits-sequence", "llama-3.2-1b", [](RunSpec& run) { run.sequence_length = 1026; }, kContext},
    {"megatron-ulysses-splits-key-value-heads", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.gpus = 16, run.parallel.context = 4; }, kContext},
    // BERT and T5
    {"megatron-task", "bert-large", [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kBert},
    {"megatron-encoder-positions", "bert-large", [](RunSpec& run) { run.parallel.megatron().rotary = true; }, kBert},
    {"megatron-encoder-context", "bert-large", [](RunSpec& run) { run.parallel.context = 2; }, kBert},
    {"megatron-flash-padding", "bert-large",
     [](RunSpec& run) { run.parallel.megatron().attention = MegatronAttention::kFlash; }, kBert},
    {"megatron-t5-pipeline", "t5-base", [](RunSpec& run) { run.parallel.pipeline = 2; }, kT5},
    {"megatron-t5-target", "t5-base", [](RunSpec& run) { run.target_sequence_length = 127; }, kT5},
    // experts
    {"megatron-experts-need-sp", "mixtral-8x7b", [](RunSpec& run) { run.parallel.sequence_parallel = false; },
     kExperts},
    {"megatron-flash-latent", "deepseek-v2-lite",
     [](RunSpec& run) { run.parallel.megatron().attention = MegatronAttention::kFlash; }, kExperts},
    {"megatron-gathered-capacity", "mixtral-8x7b",
     [](RunSpec& run) {
       run.parallel.megatron().gathers_tokens = true;
       run.parallel.megatron().expert_capacity = 1.0;
     },
     kExperts},
    {"megatron-experts-bias", "mixtral-8x7b", [](RunSpec& run) { run.parallel.megatron().bias_linear = true; },
     kExperts},
    {"megatron-gpus-hold-whole-experts", "mixtral-8x7b",
     [](RunSpec& run) { run.parallel.gpus = 4, run.parallel.expert = 8; }, kExperts},
};

TEST(RulesOfMegatron, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_megatron(), kCases); }

struct Accepted {
  const char* name;
  void (*change)(RunSpec& run);
  std::int64_t gpus = 8;
  const char* model = "llama-3.2-1b";
};

class MegatronRun : public ::testing::TestWithParam<Accepted> {};

TEST_P(MegatronRun, IsAccepted) {
  const ModelSpec model = test::model_of(GetParam().model);
  RunSpec run = resolve(model, kPlain).run;
  run.parallel.gpus = GetParam().gpus;
  GetParam().change(run);
  EXPECT_STREQ(test::first_broken(model, run).what(), "accepted");
}

const Accepted kAccepted[] = {
    {"Plain", [](RunSpec&) {}},
    {"OfADefaultMode", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kNone; }},
    {"TensorAndPipeline", [](RunSpec& run) { run.parallel.tensor = 2, run.parallel.pipeline = 4; }},
    {"UnevenStagesGiven",
     [](RunSpec& run) {
       run.parallel.pipeline = 4, run.parallel.megatron().first_stage_layers = 2;
       run.parallel.megatron().last_stage_layers = 4;
     }},
    {"EmbeddingAndLossAreCounted",
     [](RunSpec& run) {
       run.parallel.pipeline = 9;
       run.parallel.megatron().counts_embedding = run.parallel.megatron().counts_loss = true;
     },
     9},
    {"Group",
     [](RunSpec& run) {
       run.parallel.pipeline = 4, run.parallel.virtual_stages = 2, run.parallel.micro_batches = 10;
       run.parallel.megatron().micro_batch_group = 5;
     }},
    {"Experts", [](RunSpec& run) { run.parallel.expert = 8; }, 8, "mixtral-8x7b"},
};

INSTANTIATE_TEST_SUITE_P(All, MegatronRun, ::testing::ValuesIn(kAccepted),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace memcalc
