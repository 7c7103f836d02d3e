// spec/rules_compile: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

RunOptions shared(RunOptions options) {
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  return options;
}

const RunOptions kBf16{.precision = Precision::kBf16};
const RunOptions kCompiled{.precision = Precision::kBf16, .compile = true};
const RunOptions kCompiledLayers{
    .precision = Precision::kBf16, .compile = true, .compiled_parts = CompiledParts::kLayers};
const RunOptions kFloat8{.precision = Precision::kBf16,
                         .compile = true,
                         .float8 = Float8::kTensorwise,
                         .compiled_parts = CompiledParts::kLayers};
const RunOptions kRecorded{
    .precision = Precision::kBf16, .compile = true, .compile_mode = CompileMode::kReduceOverhead};
const RunOptions kLossInLoop{.precision = Precision::kBf16, .loss_in_loop = true};

constexpr const char* kLlama = "llama-3.2-1b";

const test::RuleCase kCases[] = {
    // the loss in the loop
    {"loss-in-loop-plain", kLlama, [](RunSpec& run) { run.training().loop = Loop::kTrainer; }, kLossInLoop},
    {"loss-in-loop-causal", kLlama, [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kLossInLoop},
    {"loss-in-loop-parallel", kLlama, [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDdp; },
     shared(kLossInLoop)},
    {"loss-in-loop-liger", kLlama, [](RunSpec& run) { run.fine_tuning.liger = true; }, kLossInLoop},
    {"loss-in-loop-cache", kLlama, [](RunSpec& run) { run.use_cache = true; }, kLossInLoop},
    {"loss-in-loop-compiled", kLlama, [](RunSpec& run) { run.training().compile = true; }, kLossInLoop},
    // torch.compile
    {"compile-known-layers", "resnet18", [](RunSpec& run) { run.training().compiled_parts = CompiledParts::kLayers; },
     kCompiled},
    {"compile-reentrant", kLlama,
     [](RunSpec& run) {
       run.training().checkpointing = Checkpointing::kFull;
       run.training().reentrant = true;
     },
     kCompiled},
    {"compile-t5-checkpointing", "t5-small", [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; },
     kCompiled},
    {"compile-parallel", kLlama, [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDdp; },
     shared(kCompiledLayers)},
    {"compile-parts-of-fsdp2", kLlama, [](RunSpec& run) { run.training().compiled_parts = CompiledParts::kModel; },
     shared(kCompiledLayers)},
    {"compile-parts-of-the-trainer", kLlama, [](RunSpec& run) { run.training().loop = Loop::kTrainer; },
     kCompiledLayers},
    {"compile-parts-causal-loss",
     kLlama,
     [](RunSpec& run) { run.training().compiled_parts = CompiledParts::kLayersAndLoss; },
     {.task = Task::kSequenceClassification, .compile = true}},
    {"compile-activation-offload", kLlama, [](RunSpec& run) { run.training().offload_activations = true; }, kCompiled},
    {"compile-quantize",
     kLlama,
     [](RunSpec& run) { run.training().compile = true; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"compile-liger", kLlama, [](RunSpec& run) { run.fine_tuning.liger = true; }, kCompiled},
    {"compile-flash-attention", kLlama, [](RunSpec& run) { run.attention = Attention::kFlash; }, kCompiled},
    // CUDA graphs
    {"cuda-graphs-of-the-model", kLlama, [](RunSpec& run) { run.training().compiled_parts = CompiledParts::kLayers; },
     kRecorded},
    {"cuda-graphs-accumulation", kLlama, [](RunSpec& run) { run.training().accumulation_steps = 2; }, kRecorded},
    {"cuda-graphs-shapes", kLlama, [](RunSpec& run) { run.training().lengths = DataLengths{}; }, kRecorded},
    {"cuda-graphs-evaluation", kLlama, [](RunSpec& run) { run.training().evaluation.emplace(); }, kRecorded},
    {"cuda-graphs-expandable", kLlama, [](RunSpec& run) { run.expandable_segments = true; }, kRecorded},
    {"cuda-graphs-experts", "mixtral-8x7b",
     [](RunSpec& run) { run.training().compile_mode = CompileMode::kReduceOverhead; }, kCompiled},
    {"cuda-graphs-layerdrop", "opt-125m",
     [](RunSpec& run) { run.training().compile_mode = CompileMode::kReduceOverhead; }, kCompiled},
    // float8
    {"float8-of-its-families", "gpt2", [](RunSpec& run) { run.training().float8 = Float8::kRowwise; }, kCompiledLayers},
    {"float8-compiled-layers", kLlama, [](RunSpec& run) { run.training().float8 = Float8::kRowwise; }, kBf16},
    {"float8-compiled-layers", kLlama, [](RunSpec& run) { run.training().float8 = Float8::kRowwise; }, kCompiled},
    {"float8-in-bf16", kLlama, [](RunSpec& run) { run.precision = Precision::kFp16; }, kFloat8},
    {"float8-in-bf16", kLlama, [](RunSpec& run) { run.parallel.torch().fsdp_param_dtype = DType::kFloat16; },
     shared(kFloat8)},
    {"float8-gather-of-fsdp2", kLlama, [](RunSpec& run) { run.training().float8 = Float8::kTensorwiseGather; },
     kFloat8},
    {"float8-gather-from-host", kLlama,
     [](RunSpec& run) {
       run.training().float8 = Float8::kTensorwiseGather;
       run.parallel.offload_parameters = run.parallel.offload_states = OffloadTo::kHost;
     },
     shared(kFloat8)},
    {"float8-of-whole-weights", kLlama, [](RunSpec& run) { run.fine_tuning.lora = Lora{.rank = 8}; }, kFloat8},
};

TEST(RulesOfCompile, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_compile(), kCases); }

}  // namespace
}  // namespace memcalc
