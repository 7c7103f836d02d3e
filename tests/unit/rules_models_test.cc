// spec/rules_models: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kLongEnough{.sequence_length = 1024, .precision = Precision::kBf16};

const test::RuleCase kCases[] = {
    // tasks
    {"task-of-layers", "layers/decoder", [](RunSpec& run) { run.task = Task::kCausalLm; }},
    {"task-custom-of-layers", "gpt2", [](RunSpec& run) { run.task = Task::kCustom; }},
    {"task-of-image-models", "resnet18", [](RunSpec& run) { run.task = Task::kCausalLm; }},
    {"task-of-image-models", "vit-base-patch16-224", [](RunSpec& run) { run.task = Task::kContrastive; }},
    {"task-image-of-classifiers", "bert-base", [](RunSpec& run) { run.task = Task::kImageClassification; }},
    {"task-of-contrastive-models", "clip-vit-base-patch32", [](RunSpec& run) { run.task = Task::kCausalLm; }},
    {"task-contrastive-of-pairs", "gpt2", [](RunSpec& run) { run.task = Task::kContrastive; }},
    {"task-of-encoder-decoders", "t5-small", [](RunSpec& run) { run.task = Task::kSpeech; }},
    {"task-of-encoder-decoders", "whisper-tiny", [](RunSpec& run) { run.task = Task::kSeq2Seq; }},
    {"task-of-encoders", "bert-base", [](RunSpec& run) { run.task = Task::kCausalLm; }},
    {"task-of-decoders", "llama-3.2-1b", [](RunSpec& run) { run.task = Task::kMaskedLm; }},
    // lengths and sizes
    {"target-sequence-within-positions", "bart-base", [](RunSpec& run) { run.target_sequence_length = 1025; }},
    {"sequence-within-positions", "bert-base", [](RunSpec& run) { run.sequence_length = 513; }},
    {"sequence-within-positions", "roberta-base", [](RunSpec& run) { run.sequence_length = 513; }},
    {"sequence-within-positions", "gpt2", [](RunSpec& run) { run.sequence_length = 1025; }},
    {"scan-within-limits", "mamba-130m", [](RunSpec& run) { run.sequence_length = 8334; }},
    {"scan-within-limits", "mamba-130m",
     [](RunSpec& run) {
       run.sequence_length = 2084;
       run.training().accumulation_steps = 64;
     }},
    {"image-size-of-positions", "vit-base-patch16-224", [](RunSpec& run) { run.image_size = 256; }},
    {"image-size-of-positions", "clip-vit-base-patch32", [](RunSpec& run) { run.image_size = 256; }},
    {"contrastive-in-a-plain-loop", "clip-vit-base-patch32",
     [](RunSpec& run) { run.training().loop = Loop::kTrainer; }},
    {"torchvision-checkpointing", "resnet18",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; }},
    {"torchvision-trainer-images",
     "resnet18",
     [](RunSpec& run) { run.training().loop = Loop::kTrainer; },
     {.precision = Precision::kBf16}},
    // images in a text
    {"images-of-causal", "llava-1.5-7b", [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kLongEnough},
    {"images-of-tower", "llava-1.5-7b", [](RunSpec& run) { run.image_size = 224; }, kLongEnough},
    {"images-of-patches", "qwen2.5-vl-3b", [](RunSpec& run) { run.image_size = 225; }, kLongEnough},
    {"images-within-sequence", "llava-1.5-7b", [](RunSpec& run) { run.sequence_length = 576; }, kLongEnough},
    {"images-in-loops", "llava-1.5-7b", [](RunSpec& run) { run.training().loop = Loop::kTrlReward; }, kLongEnough},
    {"images-of-one-length", "llava-1.5-7b",
     [](RunSpec& run) {
       run.training().loop = Loop::kTrainer;
       run.training().lengths = DataLengths{};
     },
     kLongEnough},
    {"images-split", "llava-1.5-7b",
     [](RunSpec& run) {
       run.parallel.tensor = 2;
       run.parallel.gpus = 2;
     },
     kLongEnough},
    {"images-compiled", "llava-1.5-7b", [](RunSpec& run) { run.training().compile = true; }, kLongEnough},
    {"images-flash-attention", "llava-1.5-7b", [](RunSpec& run) { run.attention = Attention::kFlash; }, kLongEnough},
    {"images-beams", "llava-1.5-7b", [](RunSpec& run) { run.inference()->beams = 2; },
     {.sequence_length = 1024, .inference = Inference{.new_tokens = 4}}},
    {"images-return-sequences", "llava-1.5-7b", [](RunSpec& run) { run.inference()->return_sequences = 2; },
     {.sequence_length = 1024, .inference = Inference{.new_tokens = 4, .sampling = Sampling{}}}},
    // masks and caches
    {"padding-of-images", "resnet18", [](RunSpec& run) { run.padding = true; }},
    {"padding-of-layers", "layers/decoder", [](RunSpec& run) { run.padding = true; }},
    {"padding-of-speech", "whisper-tiny", [](RunSpec& run) { run.padding = true; }},
    {"cache-of-decoders", "bert-base", [](RunSpec& run) { run.use_cache = true; }},
    {"cache-of-decoders", "resnet18", [](RunSpec& run) { run.use_cache = true; }},
    {"cache-of-decoders", "clip-vit-base-patch32", [](RunSpec& run) { run.use_cache = true; }},
    {"cache-of-decoders", "layers/decoder", [](RunSpec& run) { run.use_cache = true; }},
    {"cache-without-checkpointing",
     "gpt2",
     [](RunSpec& run) { run.use_cache = true; },
     {.checkpointing = Checkpointing::kFull}},
    // what a class does not do
    {"checkpointing-of-the-class", "mpnet-base",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; }},
    {"repeated-layers-sharded", "albert-base-v2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kFsdp2;
       run.parallel.gpus = 2;
     }},
    // attention and precision
    {"attention-of-sinks", "gpt-oss-20b", [](RunSpec& run) { run.attention = Attention::kSdpa; }},
    {"attention-of-sinks", "deberta-v3-base", [](RunSpec& run) { run.attention = Attention::kFlash; }},
    {"flash-attention-of-t5", "t5-small", [](RunSpec& run) { run.attention = Attention::kFlash; }},
    {"flash-attention-in-16-bit", "gpt2", [](RunSpec& run) { run.attention = Attention::kFlash; }},
    {"position-bias-offloaded-and-recomputed",
     "t5-small",
     [](RunSpec& run) { run.training().offload_activations = true; },
     {.checkpointing = Checkpointing::kFull}},
    {"weights-dtype-is-known", "gpt2", [](RunSpec& run) { run.weights_dtype = DType::kFloat64; }},
    {"precision-is-that-of-weights", "bert-base", [](RunSpec& run) { run.weights_dtype = DType::kFloat16; }},
    {"precision-is-that-of-weights",
     "bert-base",
     [](RunSpec& run) { run.weights_dtype = DType::kFloat32; },
     {.precision = Precision::kBf16}},
    {"loss-scaler-in-float32",
     "llama-3.2-1b",
     [](RunSpec& run) { run.weights_dtype = DType::kBFloat16; },
     {.precision = Precision::kAmpFp16}},
    {"loss-scaler-in-float32",
     "llama-3.2-1b",
     [](RunSpec& run) {
       run.weights_dtype = DType::kFloat16;
       run.fine_tuning.lora->in_base_dtype = true;
     },
     {.precision = Precision::kAmpFp16, .lora_rank = 8}},
    // a user's own layers
    {"denoiser-samples", "sdxl", [](RunSpec& run) { run.purpose = Inference{}; }},
    {"denoiser-compiled", "sdxl", [](RunSpec& run) { run.training().compile = true; }},
    {"program-in-trainer", "timm-resnet18", [](RunSpec& run) { run.training().loop = Loop::kTrainer; }},
    {"program-as-recorded", "timm-resnet18", [](RunSpec& run) { run.dropout = 0.5; }},
    {"program-as-recorded", "timm-resnet18", [](RunSpec& run) { run.attention = Attention::kEager; }},
    {"program-compiled-loss", "timm-resnet18",
     [](RunSpec& run) {
       run.training().compile = true;
       run.training().compiled_parts = CompiledParts::kLayersAndLoss;
     }},
    {"program-generates",
     "mamba2-130m",
     [](RunSpec& run) { run.inference()->new_tokens = 4; },
     {.inference = Inference{}}},
    {"program-split", "timm-resnet18", [](RunSpec& run) { run.parallel.pipeline = 2; }},
    {"layers-in-a-plain-loop", "layers/mlp", [](RunSpec& run) { run.training().loop = Loop::kTrainer; }},
    {"layers-attention", "layers/decoder", [](RunSpec& run) { run.attention = Attention::kEager; }},
    {"layers-checkpointing", "layers/mlp", [](RunSpec& run) { run.training().checkpointing = Checkpointing::kFull; }},
};

TEST(RulesOfModels, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_models(), kCases); }

}  // namespace
}  // namespace memcalc
