// spec/rules_fine_tuning: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kInfers{.precision = Precision::kBf16, .inference = Inference{}};

const RunOptions kSft{
    .precision = Precision::kAmpBf16, .weights_dtype = DType::kBFloat16, .loop = Loop::kTrlSft, .lora_rank = 8};
const RunOptions kAdapters{.precision = Precision::kAmpBf16, .lora_rank = 4};
const RunOptions kTwoGpus{.precision = Precision::kAmpBf16,
                          .weights_dtype = DType::kBFloat16,
                          .loop = Loop::kTrlSft,
                          .lora_rank = 8,
                          .gpus = 2};
const RunOptions kUnslothRun{.precision = Precision::kAmpBf16,
                             .weights_dtype = DType::kBFloat16,
                             .loop = Loop::kTrlSft,
                             .lora_rank = 8,
                             .unsloth = true};

const test::RuleCase kCases[] = {
    {"lora-of-transformers", "resnet18", [](RunSpec& run) { run.fine_tuning.lora = Lora{.rank = 8}; }},
    {"lora-modules-to-save",
     "llama-3.1-8b",
     [](RunSpec& run) { run.fine_tuning.lora->saved = {"lm_head"}; },
     {.lora_rank = 8, .gpus = 2, .parallel = {.data_parallel = DataParallel::kFsdp2}}},
    {"lora-dora", "gpt2", [](RunSpec& run) { run.fine_tuning.lora->dora = true; }, {.compile = true, .lora_rank = 8}},
    {"lora-head-among-all-linear",
     "bert-base",
     [](RunSpec& run) {
       run.task = Task::kQuestionAnswering;
       run.fine_tuning.lora->trains_head = true;
     },
     {.lora_rank = 8}},
    {"freeze-beside-lora", "gpt2", [](RunSpec& run) { run.fine_tuning.frozen = {"wte"}; }, {.lora_rank = 8}},
    // a quantised base
    {"quantize-of-transformers",
     "resnet18",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kNf4; },
     {.inference = Inference{}}},
    {"quantize-to-infer", "gpt2", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kAwq4; }},
    {"quantize-experts-nf4",
     "qwen3-30b-a3b",
     [](RunSpec& run) { run.fine_tuning.packs_experts = true; },
     {.lora_rank = 8, .quantization = Quantization::kInt8}},
    {"quantize-native-to-infer",
     "gpt-oss-20b",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kMxfp4; },
     {.attention = Attention::kEager, .quantization = Quantization::kNone}},
    {"quantize-mxfp4-of-gpt-oss", "llama-3.2-1b",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kMxfp4; }, kInfers},
    {"quantize-fp8-layers", "gpt2", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kFp8; }, kInfers},
    {"quantize-fp8-layers",
     "gpt-oss-20b",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kFp8; },
     {.precision = Precision::kBf16, .attention = Attention::kEager, .inference = Inference{}}},
    {"quantize-experts-apart", "mixtral-8x7b", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kAwq4; },
     kInfers},
    {"quantize-experts-apart", "qwen3-30b-a3b",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kGptq4; }, kInfers},
    {"quantize-group-size", "gpt2",
     [](RunSpec& run) {
       run.fine_tuning.quantization = Quantization::kGptq4;
       run.fine_tuning.group_size = 100;
     },
     kInfers},
    {"quantize-in-16-bit",
     "gpt2",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kGptq4; },
     {.inference = Inference{}}},
    {"fp8-base-of-denoisers", "gpt2", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kFp8Cast; },
     kAdapters},
    {"fp8-cast-under-autocast",
     "sd3-medium",
     [](RunSpec& run) { run.precision = Precision::kBf16; },
     {.precision = Precision::kAmpBf16, .lora_rank = 4, .quantization = Quantization::kFp8Cast}},
    {"swap-of-nf4",
     "sd3-medium",
     [](RunSpec& run) { run.fine_tuning.blocks_to_swap = 2; },
     {.precision = Precision::kAmpBf16, .lora_rank = 4, .quantization = Quantization::kNf4}},
    {"quantize-trains-adapters", "gpt2", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kNf4; }},
    {"prepare-kbit-of-position-bias",
     "t5-small",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"prepare-kbit-of-quantized", "gpt2", [](RunSpec& run) { run.fine_tuning.prepares_for_kbit = true; }},
    {"liger-of-its-families", "gpt2", [](RunSpec& run) { run.fine_tuning.liger = true; }},
    // cut cross entropy
    {"cut-cross-entropy-of-its-models", "mamba-130m", [](RunSpec& run) { run.fine_tuning.cut_cross_entropy = true; }},
    {"cut-cross-entropy-of-its-models", "bert-base", [](RunSpec& run) { run.fine_tuning.cut_cross_entropy = true; }},
    {"cut-cross-entropy-loop", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.cut_cross_entropy = true; }, kSft},
    {"cut-cross-entropy-alone",
     "llama-3.2-1b",
     [](RunSpec& run) { run.fine_tuning.liger = true; },
     {.cut_cross_entropy = true}},
    {"cut-cross-entropy-parallel",
     "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDp; },
     {.cut_cross_entropy = true, .gpus = 2}},
    // Unsloth
    {"unsloth-of-its-families", "gpt2", [](RunSpec& run) { run.fine_tuning.unsloth = true; }, kSft},
    {"unsloth-sft", "llama-3.2-1b", [](RunSpec& run) { run.training().loop = Loop::kTrainer; }, kUnslothRun},
    {"unsloth-adapters", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.lora.reset(); }, kUnslothRun},
    {"unsloth-lora", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.lora->dropout = 0.1; }, kUnslothRun},
    {"unsloth-lora", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.lora->targets = {"q_proj"}; }, kUnslothRun},
    {"unsloth-base", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kInt8; },
     kUnslothRun},
    {"unsloth-base", "llama-3.2-1b", [](RunSpec& run) { run.weights_dtype = DType::kFloat32; }, kUnslothRun},
    {"unsloth-one-gpu", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.unsloth = true; }, kTwoGpus},
    {"unsloth-own-kernels", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.liger = true; }, kUnslothRun},
    {"unsloth-own-kernels", "llama-3.2-1b", [](RunSpec& run) { run.attention = Attention::kEager; }, kUnslothRun},
    {"unsloth-checkpoints", "llama-3.2-1b",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kSelective; }, kUnslothRun},
    {"unsloth-plain-steps", "llama-3.2-1b", [](RunSpec& run) { run.training().smooths_labels = true; }, kUnslothRun},
    // LitGPT
    {"litgpt-trains", "litgpt", [](RunSpec& run) { run.purpose = Inference{}; }},
    {"litgpt-in-its-own-loop", "litgpt", [](RunSpec& run) { run.training().loop = Loop::kTrainer; }},
    {"litgpt-of-two-tokens", "litgpt", [](RunSpec& run) { run.sequence_length = 1; }},
    {"litgpt-predicts-tokens", "litgpt", [](RunSpec& run) { run.task = Task::kSequenceClassification; }},
    {"litgpt-precision", "litgpt", [](RunSpec& run) { run.precision = Precision::kAmpBf16; }},
    {"litgpt-precision", "litgpt", [](RunSpec& run) { run.precision = Precision::kTf32; }},
    {"litgpt-attention", "litgpt", [](RunSpec& run) { run.attention = Attention::kEager; }},
    {"litgpt-padding", "litgpt", [](RunSpec& run) { run.padding = true; }},
    {"litgpt-cache", "litgpt", [](RunSpec& run) { run.use_cache = true; }},
    {"litgpt-prepare-kbit",
     "litgpt",
     [](RunSpec& run) { run.fine_tuning.prepares_for_kbit = true; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"litgpt-quantize",
     "litgpt",
     [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kInt8; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"litgpt-lora-dtype",
     "litgpt",
     [](RunSpec& run) { run.fine_tuning.lora->in_base_dtype = false; },
     {.lora_rank = 8}},
    {"litgpt-liger", "litgpt", [](RunSpec& run) { run.fine_tuning.liger = true; }},
    {"litgpt-checkpointing", "litgpt", [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; }},
    {"litgpt-compile", "litgpt", [](RunSpec& run) { run.training().compile = true; }},
    {"litgpt-one-gpu", "litgpt", [](RunSpec& run) { run.parallel.gpus = 2; }},
};

TEST(RulesOfFineTuning, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_fine_tuning(), kCases); }

}  // namespace
}  // namespace memcalc
