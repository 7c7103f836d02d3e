// spec/rules_torch: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

RunOptions on(std::int64_t gpus, DataParallel mode) {
  RunOptions options{.sequence_length = 64, .gpus = gpus};
  options.parallel.data_parallel = mode;
  return options;
}

RunOptions with_tensor(RunOptions options, std::int64_t ranks) {
  options.parallel.tensor = ranks;
  return options;
}

RunOptions with_pipeline(RunOptions options, PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward) {
  options.parallel.pipeline = 2;
  options.parallel.schedule = schedule;
  return options;
}

RunOptions in_trainer(RunOptions options) {
  options.loop = Loop::kTrainer;
  return options;
}

/// QLoRA over two ranks.
RunOptions quantized_over(DataParallel mode) {
  RunOptions options = in_trainer(on(2, mode));
  options.precision = Precision::kAmpBf16;
  options.lora_rank = 8;
  options.quantization = Quantization::kNf4;
  return options;
}

const RunOptions kDdp = on(4, DataParallel::kDdp);
const RunOptions kDp = on(4, DataParallel::kDp);
const RunOptions kFsdp1 = on(4, DataParallel::kFsdp1);
const RunOptions kFsdp2 = on(4, DataParallel::kFsdp2);
const RunOptions kTensor = [] {
  RunOptions options = with_tensor(on(2, DataParallel::kNone), 2);
  options.optimizer = Optimizer::kAdamWForLoop;
  return options;
}();
const RunOptions kTensorFsdp2 = with_tensor(on(4, DataParallel::kFsdp2), 2);
const RunOptions kSequence = [] {
  RunOptions options = with_tensor(on(2, DataParallel::kNone), 2);
  options.precision = Precision::kBf16;
  options.parallel.sequence_parallel = true;
  return options;
}();
const RunOptions kContext = [] {
  RunOptions options = on(2, DataParallel::kNone);
  options.parallel.context = 2;
  return options;
}();
const RunOptions kPipeline = with_pipeline(on(2, DataParallel::kNone));
const RunOptions kPipelineDdp = with_pipeline(on(4, DataParallel::kDdp));
const RunOptions kZeroBubble = with_pipeline(on(2, DataParallel::kNone), PipelineSchedule::kZeroBubble);
const RunOptions kZeroBubbleV = with_pipeline(on(2, DataParallel::kNone), PipelineSchedule::kZeroBubbleV);
const RunOptions kZeroBubbleFsdp2 = [] {
  RunOptions options = with_pipeline(on(4, DataParallel::kFsdp2), PipelineSchedule::kZeroBubble);
  options.torch.reshard_after_forward = false;
  return options;
}();
const RunOptions kInterleaved = [] {
  RunOptions options = with_pipeline(on(2, DataParallel::kNone), PipelineSchedule::kInterleaved);
  options.parallel.virtual_stages = 2;
  return options;
}();

constexpr const char* kLlama = "llama-3.2-1b";  // 16 layers, 32 heads, 8 key/value heads, a tied head

const test::RuleCase kModes[] = {
    {"hsdp-of-fsdp", kLlama, [](RunSpec& run) { run.parallel.torch().hsdp_shard = 2; }, kDdp},
    {"hsdp-of-fsdp1", kLlama, [](RunSpec& run) { run.parallel.torch().hsdp_shard = 2; }, kFsdp1},
    {"hsdp-divides-ranks", kLlama, [](RunSpec& run) { run.parallel.torch().hsdp_shard = 3; }, kFsdp2},
    {"hsdp-divides-ranks", kLlama, [](RunSpec& run) { run.parallel.torch().hsdp_shard = 4; }, kFsdp2},
    {"hsdp-divides-ranks", kLlama, [](RunSpec& run) { run.parallel.torch().hsdp_shard = 1; }, kFsdp2},
    {"fsdp-dtypes-of-fsdp", kLlama, [](RunSpec& run) { run.parallel.torch().fsdp_param_dtype = DType::kBFloat16; },
     kDdp},
    {"fsdp-dtypes-of-fsdp", kLlama, [](RunSpec& run) { run.parallel.torch().fsdp_reduce_dtype = DType::kFloat32; },
     kDdp},
    {"reshard-of-fsdp", kLlama, [](RunSpec& run) { run.parallel.torch().reshard_after_forward = false; }, kDdp},
    {"keep-last-layer-of-fsdp2", kLlama, [](RunSpec& run) { run.parallel.torch().keep_last_layer = true; }, kFsdp1},
    {"keep-last-layer-of-fsdp2", kLlama,
     [](RunSpec& run) {
       run.parallel.torch().keep_last_layer = true, run.parallel.torch().reshard_after_forward = false;
     },
     kFsdp2},
    {"ddp-options-of-ddp", kLlama, [](RunSpec& run) { run.parallel.torch().ddp_bucket_view = true; }, kFsdp2},
    {"ddp-options-of-ddp", kLlama, [](RunSpec& run) { run.parallel.torch().ddp_static_graph = true; }, kDp},
    {"quantized-base-on-one-gpu",
     kLlama,
     [](RunSpec& run) { run.parallel.gpus = 2, run.parallel.data_parallel = DataParallel::kDdp; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"quantized-base-on-one-gpu", kLlama, [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kInt8; },
     quantized_over(DataParallel::kFsdp2)},
    {"quantized-base-on-one-gpu", kLlama, [](RunSpec& run) { run.training().loop = Loop::kBare; },
     quantized_over(DataParallel::kFsdp2)},
    {"quantized-base-offload", kLlama, [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kHost; },
     quantized_over(DataParallel::kDsZero2)},
    {"quantized-base-offload", kLlama, [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; },
     quantized_over(DataParallel::kFsdp2)},
    {"quant-storage-is-gathered", kLlama, [](RunSpec& run) { run.fine_tuning.quant_storage = DType::kFloat16; },
     quantized_over(DataParallel::kFsdp2)},
    // nn.DataParallel
    {"dp-on-one-node", kLlama, [](RunSpec& run) { run.parallel.nodes = 2; }, kDp},
    {"dp-cache", kLlama, [](RunSpec& run) { run.use_cache = true; }, kDp},
    {"dp-accumulation", kLlama, [](RunSpec& run) { run.training().accumulation_steps = 2; }, kDp},
    // offload
    {"offload-of-fsdp2", kLlama, [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kHost; }, kDdp},
    {"fsdp2-offloads-to-host", kLlama, [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kNvme; },
     kFsdp2},
    {"fsdp2-offloads-all", kLlama, [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kHost; }, kFsdp2},
    // the Trainer
    {"trainer-splits-no-model", kLlama, [](RunSpec& run) { run.training().loop = Loop::kTrainer; }, kTensor},
    {"trainer-splits-no-model", kLlama, [](RunSpec& run) { run.training().loop = Loop::kTrainer; }, kPipeline},
    {"trainer-modes", kLlama, [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kZero1; },
     in_trainer(kDdp)},
    {"trainer-fsdp-loss-scaler", kLlama, [](RunSpec& run) { run.precision = Precision::kAmpFp16; }, in_trainer(kFsdp2)},
    {"trainer-fsdp1-decoders", "bert-base", [](RunSpec& run) { run.task = Task::kTokenClassification; },
     in_trainer(kFsdp1)},
    {"trainer-fsdp2-decoders", "bert-base", [](RunSpec& run) { run.task = Task::kTokenClassification; },
     in_trainer(kFsdp2)},
    {"trainer-fsdp2-adafactor", kLlama, [](RunSpec& run) { run.training().optimizer = Optimizer::kAdafactor; },
     in_trainer(kFsdp2)},
    {"trainer-keeps-no-last-layer", kLlama, [](RunSpec& run) { run.parallel.torch().keep_last_layer = true; },
     in_trainer(kFsdp2)},
};

const test::RuleCase kSplits[] = {
    // context parallelism
    {"torch-cp-is-no-ulysses", kLlama, [](RunSpec& run) { run.parallel.context_type = ContextParallel::kUlysses; },
     kContext},
    {"cp-is-causal", kLlama, [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kContext},
    {"cp-splits-sequence", kLlama, [](RunSpec& run) { run.sequence_length = 66; }, kContext},
    {"cp-attention", kLlama, [](RunSpec& run) { run.attention = Attention::kEager; }, kContext},
    {"cp-padding", kLlama, [](RunSpec& run) { run.padding = true; }, kContext},
    {"cp-selective-checkpointing", kLlama,
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kSelective; }, kContext},
    // expert parallelism
    {"ep-takes-all-gpus", "mixtral-8x7b", [](RunSpec& run) { run.parallel.expert = 2; }, kDdp},
    {"ep-adapters",
     "mixtral-8x7b",
     [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 2, run.fine_tuning.lora = Lora{.rank = 8}; },
     {.optimizer = Optimizer::kAdamWForLoop}},
    // sequence parallelism
    {"sp-needs-tp", kLlama, [](RunSpec& run) { run.parallel.sequence_parallel = true; }, kDdp},
    {"loss-parallel-needs-sp", kLlama, [](RunSpec& run) { run.parallel.torch().loss_parallel = true; }, kTensor},
    {"sp-ddp", kLlama, [](RunSpec& run) { run.parallel.gpus = 4, run.parallel.data_parallel = DataParallel::kDdp; },
     kSequence},
    {"sp-splits-nothing-else", kLlama, [](RunSpec& run) { run.parallel.gpus = 4, run.parallel.context = 2; },
     kSequence},
    {"sp-families", "qwen3-0.6b", [](RunSpec& run) { run.parallel.sequence_parallel = true; }, kTensorFsdp2},
    {"sp-task", kLlama, [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kSequence},
    {"sp-adapters", kLlama, [](RunSpec& run) { run.fine_tuning.lora = Lora{.rank = 8}; }, kSequence},
    {"sp-splits-sequence", kLlama, [](RunSpec& run) { run.sequence_length = 65; }, kSequence},
    {"sp-padding", kLlama, [](RunSpec& run) { run.padding = true; }, kSequence},
    {"sp-attention", kLlama, [](RunSpec& run) { run.attention = Attention::kEager; }, kSequence},
    {"sp-compile", kLlama, [](RunSpec& run) { run.training().compile = true; }, kSequence},
    {"sp-liger", kLlama, [](RunSpec& run) { run.fine_tuning.liger = true; }, kSequence},
    {"sp-checkpointing", kLlama, [](RunSpec& run) { run.training().checkpointing = Checkpointing::kSelective; },
     kSequence},
    {"sp-activation-offload", kLlama, [](RunSpec& run) { run.training().offload_activations = true; }, kSequence},
    {"sp-loss-scaler", kLlama, [](RunSpec& run) { run.precision = Precision::kAmpFp16; }, kSequence},
    {"sp-clipping", kLlama, [](RunSpec& run) { run.training().max_grad_norm = 1.0; }, kSequence},
    {"sp-optimizer", kLlama, [](RunSpec& run) { run.training().optimizer = Optimizer::kSgd; }, kSequence},
    // tensor parallelism
    {"tp-modes", kLlama, [](RunSpec& run) { run.parallel.gpus = 4, run.parallel.data_parallel = DataParallel::kZero1; },
     kTensor},
    {"tp-optimizer", kLlama, [](RunSpec& run) { run.training().optimizer = Optimizer::kAdamWForeach; }, kTensor},
    {"tp-optimizer", "mixtral-8x7b", [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 2; }},
    {"tp-clipping", kLlama, [](RunSpec& run) { run.training().max_grad_norm = 1.0; }, kTensor},
    {"tp-clipping", kLlama, [](RunSpec& run) { run.training().max_grad_norm = 1.0; }, kTensorFsdp2},
    {"tp-loss-scaler", kLlama, [](RunSpec& run) { run.precision = Precision::kAmpFp16; }, kTensor},
    {"tp-adafactor", kLlama, [](RunSpec& run) { run.training().optimizer = Optimizer::kAdafactorTorch; }, kTensorFsdp2},
};

const test::RuleCase kPipelines[] = {
    {"pp-modes", kLlama, [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kFsdp1; }, kPipelineDdp},
    {"pp-static-graph", kLlama, [](RunSpec& run) { run.parallel.torch().ddp_static_graph = true; }, kPipelineDdp},
    {"pp-offload", kLlama, [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; },
     with_pipeline(kFsdp2)},
    {"pp-has-stages", "gpt2", [](RunSpec& run) { run.parallel.pipeline = 2; }, kDdp},
    {"pp-has-stages", "phi-2", [](RunSpec& run) { run.parallel.pipeline = 2; }, kDdp},
    {"pp-has-stages", "opt-125m", [](RunSpec& run) { run.parallel.pipeline = 2; }, kDdp},
    {"pp-has-stages", "t5-small", [](RunSpec& run) { run.parallel.pipeline = 2; }, kDdp},
    {"pp-stages-have-layers", kLlama, [](RunSpec& run) { run.parallel.gpus = run.parallel.pipeline = 32; }, kPipeline},
    {"pp-stages-have-layers", kLlama, [](RunSpec& run) { run.parallel.virtual_stages = 9; }, kInterleaved},
    {"stage-layers-for-each-stage", kLlama,
     [](RunSpec& run) {
       run.parallel.stage_layers = {8, 4, 4};
     },
     kPipeline},
    {"stage-layers-from-one", kLlama,
     [](RunSpec& run) {
       run.parallel.stage_layers = {16, 0};
     },
     kPipeline},
    {"stage-layers-from-one", kLlama,
     [](RunSpec& run) {
       run.parallel.stage_layers = {std::int64_t{1} << 62, 8};
     },
     kPipeline},
    {"stage-layers-hold-all", kLlama,
     [](RunSpec& run) {
       run.parallel.stage_layers = {8, 7};
     },
     kPipeline},
    {"pp-task", kLlama, [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kPipeline},
    {"pp-padding", kLlama, [](RunSpec& run) { run.padding = true; }, kPipeline},
    {"pp-loss-scaler", kLlama, [](RunSpec& run) { run.precision = Precision::kAmpFp16; }, kPipeline},
    {"pp-accumulation", kLlama, [](RunSpec& run) { run.training().accumulation_steps = 2; }, kPipeline},
    {"pp-micro-batches", kLlama, [](RunSpec& run) { run.parallel.micro_batches = 257; }, kPipeline},
    // schedules
    {"pp-rounds", kLlama, [](RunSpec& run) { run.parallel.micro_batches = 5; }, kInterleaved},
    {"pp-rounds", kLlama, [](RunSpec& run) { run.parallel.micro_batches = 5; }, kZeroBubble},
    {"zbv-has-two-stages", kLlama, [](RunSpec& run) { run.parallel.virtual_stages = 4; }, kZeroBubbleV},
    {"interleaved-has-virtual-stages", kLlama,
     [](RunSpec& run) { run.parallel.schedule = PipelineSchedule::kInterleaved; }, kPipeline},
    {"schedule-has-one-stage", kLlama, [](RunSpec& run) { run.parallel.virtual_stages = 2; }, kPipeline},
    {"pp-1f1b-fills-stages", kLlama, [](RunSpec& run) { run.parallel.micro_batches = 1; }, kPipeline},
    {"zero-bubble-ddp", kLlama, [](RunSpec& run) { run.parallel.schedule = PipelineSchedule::kZeroBubble; },
     kPipelineDdp},
    {"zero-bubble-reshard", kLlama, [](RunSpec& run) { run.parallel.torch().reshard_after_forward = true; },
     kZeroBubbleFsdp2},
    {"zero-bubble-fsdp2-checkpointing", kLlama,
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; }, kZeroBubbleFsdp2},
    {"zero-bubble-selective-checkpointing", kLlama,
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kSelective; }, kZeroBubble},
};

TEST(RulesOfTorch, EachIsBrokenByARun) {
  std::vector<test::RuleCase> cases(std::begin(kModes), std::end(kModes));
  cases.insert(cases.end(), std::begin(kSplits), std::end(kSplits));
  cases.insert(cases.end(), std::begin(kPipelines), std::end(kPipelines));
  test::expect_each_rule_broken(rules_of_torch(), cases);
}

}  // namespace
}  // namespace memcalc
