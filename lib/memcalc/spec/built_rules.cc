#include "memcalc/spec/built_rules.h"

#include <utility>

#include "memcalc/spec/rules.h"

namespace memcalc {
namespace rules {

extern const BuiltRule kLinearStatesRead, kLinearLayersCompiled;  // models/linear_states.h
extern const BuiltRule kLoraFused, kLoraAllLinear, kLoraParameterDropout, kLoraParameterDora, kLoraParameterCompiled,
    kLoraParameterPacked, kLoraParameterGathered, kLoraPattern, kLoraSaved;  // spec/peft_targets.h
extern const BuiltRule kCutCrossEntropyTypes;                                // symbolic/ops/cut_cross_entropy.h
extern const BuiltRule kFreezePattern, kFreezeUnmatched;                     // spec/freeze_patterns.h
extern const BuiltRule kBatchNormOfSeveral;                                  // symbolic/ops/batch_norm.h

// --- models

const BuiltRule kKnownActivation{"activation-is-known", "--model",
                                 "activation function '{}' of the model is not modelled",
                                 "gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, silu"};
const BuiltRule kClassOfVersion{
    "class-of-version", "--transformers --model",
    "{} before transformers 5.0 is another class, which unpads its batches and is not modelled",
    "--transformers 5.0.0 or later"};
const BuiltRule kKnownTorchvision{"torchvision-model-is-known", "--model", "torchvision's model '{}' is not modelled",
                                  "a model of memcalc models"};
const BuiltRule kMegatronModels{"megatron-builds-model", "--framework --model",
                                "{} is not a model that Megatron-core's GPTModel builds",
                                "GPT-2, LLaMA, Mistral, Qwen2, Qwen3, Mixtral, Qwen3-MoE, DeepSeek-V2, DeepSeek-V3, "
                                "Nemotron-H"};
const BuiltRule kMegatronMamba{"megatron-mamba-divides", "--tp --cp --model",
                               "a Mamba mixer of {} heads in {} groups cannot be split over {} ranks",
                               "--tp and --cp whose product divides both", ErrorCode::kUsage};
const BuiltRule kLitGptModels{"litgpt-builds-model", "--model", "LitGPT's module of this model is not modelled",
                              "its LLaMA, GPT-NeoX (Pythia) and Phi models"};
const BuiltRule kImageLargeEnough{"image-large-enough", "--image",
                                  "the image is too small: nothing is left of it after the model's {}",
                                  "a larger --image", ErrorCode::kUsage};
// torch/nn/functional.py, _verify_batch_size and _verify_spatial_size: a ValueError
const BuiltRule kBatchNormOfSeveral{"batch-norm-of-several", "--bs --image",
                                    "a batch norm in training needs more than one value of each channel, and has one: "
                                    "torch refuses it",
                                    "a larger --bs or --image", ErrorCode::kUsage};
const BuiltRule kGroupedExperts{"experts-of-grouped-mm", "--precision --model",
                                "torch's grouped_mm takes experts whose sizes are multiples of {} in {}, not {}",
                                "another width of the experts, or another precision"};

const BuiltRule kCutCrossEntropyTypes{
    "cut-cross-entropy-types", "--cut-cross-entropy --precision --weights-dtype",
    "--cut-cross-entropy: its kernels take states and a head of 16 bits, and one of them is float32 here",
    "--precision bf16, --weights-dtype bf16"};

// --- adapters, quantised weights, frozen parameters

const BuiltRule kLoraLayers{"lora-has-layers", "--lora --model", "this model has no linear layers for LoRA", ""};
const BuiltRule kLoraTarget{"lora-target-is-a-layer", "--lora-targets",
                            "no linear layer's name ends in the LoRA target '{}'", "{}", ErrorCode::kUsage};
const BuiltRule kLoraPattern{
    "lora-pattern", "--lora-targets",
    "'{}' is no regular expression that can be read here (no named groups, no flags within, no "
    "looking behind; at most 1,000 characters)",
    "re:PATTERN as ECMAScript writes it, or the ends of names", ErrorCode::kUsage};
const BuiltRule kLoraSaved{
    "lora-saved-is-a-module", "--lora-modules-to-save",
    "no module of its own ends in '{}' (embeddings that share their matrix with the head are not "
    "modelled so)",
    "another module, or no --lora-modules-to-save"};
const BuiltRule kLoraFused{"lora-targets-fused", "--lora-targets",
                           "peft targets {} only beside {}: both are the parameter {} of transformers 5",
                           "both names, or neither", ErrorCode::kUsage};
const BuiltRule kLoraAllLinear{
    "lora-all-linear-of-version", "--lora-targets --peft",
    "peft 0.19 takes 'all-linear' of this mixture of experts for a list of letters, and finds "
    "no module of such a name",
    "--lora-targets with names, or --peft 0.20.0 or later"};
const BuiltRule kLoraParameterDropout{"lora-parameter-dropout", "--lora-dropout --lora-targets",
                                      "peft has no dropout in front of the adapter of a parameter, and {} is one",
                                      "--lora-dropout 0, or --lora-targets of linear layers alone"};
const BuiltRule kLoraParameterDora{"lora-parameter-dora", "--dora --lora-targets",
                                   "peft refuses DoRA of parameters of other modules than linear layers, and {} is one",
                                   "no --dora, or --lora-targets of linear layers alone"};
const BuiltRule kLoraParameterCompiled{"lora-parameter-compiled", "--compile --lora-targets",
                                       "peft changes modules while they run to adapt parameters such as {}, which "
                                       "breaks torch.compile's graph",
                                       "no --compile, or --lora-targets of linear layers alone"};
const BuiltRule kLoraParameterGathered{"lora-parameter-gathered", "--parallel --lora-targets",
                                       "when ZeRO-3 or FSDP1 gathers a parameter to which peft adds an adapter, such "
                                       "as {}, is not modelled",
                                       "--parallel ds-zero2, fsdp2, or --lora-targets of linear layers alone"};
const BuiltRule kFreezeName{"freeze-names-a-parameter", "--freeze",
                            "no parameter's name contains '{}', which is to be frozen", "parts of names such as {}",
                            ErrorCode::kUsage};
const BuiltRule kFreezeNotAll{"freeze-leaves-some", "--freeze",
                              "every parameter is frozen, so there is nothing to train", "fewer names, or --infer",
                              ErrorCode::kUsage};
const BuiltRule kFreezePattern{"freeze-pattern", "--freeze", "'{}' is no regular expression that can be read here",
                               "except:PATTERN,… as ECMAScript writes it, or parts of names", ErrorCode::kUsage};
const BuiltRule kFreezeUnmatched{"freeze-except-matches", "--freeze",
                                 "nothing would train: no parameter's name begins as {} says",
                                 "except:PATTERN of whole names from their beginning, such as {}", ErrorCode::kUsage};
const BuiltRule kMarlinShape{"marlin-takes-layer", "--quantize --model",
                             "the Marlin kernel of quantize {} takes no layer of {} x {} ({}), and other kernels are "
                             "not modelled",
                             "inputs that are a multiple of 128, outputs of 64"};
const BuiltRule kFp8Experts{"fp8-takes-experts", "--quantize --model",
                            "the FP8 kernels take experts in blocks of 128 x 128 alone, and {} x {} is none ({})",
                            "--quantize none"};
const BuiltRule kPackedHead{"quantize-head-exists", "--quantize-head --model",
                            "this model has no output head of its own to pack: a tied one is the embedding's weight",
                            "no --quantize-head"};
const BuiltRule kPackedExperts{"quantize-experts-exist", "--quantize-experts --model",
                               "this model has no parameter of three dimensions in a module called experts",
                               "no --quantize-experts"};
const BuiltRule kLoraParameterPacked{"lora-parameter-packed", "--quantize-experts --lora-targets",
                                     "adapters of packed experts, such as of {}, are not modelled",
                                     "--lora-targets of linear layers alone, or no --quantize-experts"};
const BuiltRule kQuantizedLayers{"quantize-has-layers", "--quantize --model",
                                 "this model has no linear layers that bitsandbytes would replace", "--quantize none"};
const BuiltRule kFp8BaseLayers{"fp8-base-linear", "--quantize --model",
                               "fp8-cast and fp8-scaled are modelled of networks of linear layers; the convolutions of "
                               "this one, which sd-scripts casts, too, are not",
                               "--quantize none, nf4"};
const BuiltRule kBlocksToSwap{"swap-has-blocks", "--blocks-to-swap --model",
                              "this network has no lists of equal blocks that the scripts would swap (of UNets they "
                              "swap none)",
                              "no --blocks-to-swap"};
const BuiltRule kSwapLeavesBlocks{"swap-leaves-blocks", "--blocks-to-swap",
                                  "blocks to swap {}: {} of the {} {}, of which {} or more stay on the card",
                                  "fewer blocks", ErrorCode::kUsage};
const BuiltRule kOffloadedParameterHooks{"offload-parameters-hooks", "--offload-parameters --model",
                                         "which module of this model holds {}, and so when it is on the card, is not "
                                         "known",
                                         "--offload-parameters none"};

// --- several GPUs

const BuiltRule kTpDivides{"tp-divides-weights", "--tp --model",
                           "tensor parallelism of {} does not divide the {} rows or columns of a weight",
                           "a --tp that divides them"};
const BuiltRule kTpExperts{"tp-of-experts", "--tp --model",
                           "a tensor-parallel plan that splits experts is not modelled", "--ep"};
const BuiltRule kTpPlan{"tp-plan-of-layer", "--tp --model", "no tensor-parallel plan is modelled that splits {}",
                        "families whose layers are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj: "
                        "llama, mistral, qwen2, qwen3, gemma"};
const BuiltRule kTpNorm{"tp-norm-of-heads", "--tp --model",
                        "{} is a norm over all heads, and a plan that gathers them for it is not modelled",
                        "models whose norms are of one head, or without them"};
const BuiltRule kTpRowBias{"tp-bias-of-rows", "--tp --model",
                           "the bias of {}, which tensor parallelism splits by rows, is not modelled",
                           "models without it"};
const BuiltRule kTpLayers{"tp-has-layers", "--tp --model", "this model has no linear layers that --tp could split", ""};
const BuiltRule kFsdp1Frozen{"fsdp1-frozen", "--parallel --freeze",
                             "a unit of FSDP1 of which a part is frozen, as by {}, is not modelled",
                             "--freeze of whole layers, or --parallel fsdp2"};
const BuiltRule kFsdp1Scalar{"fsdp1-scalar", "--parallel --model",
                             "FSDP1 takes no parameter without a dimension, and {} is one", "--parallel ddp"};
const BuiltRule kFsdp1OneType{"fsdp1-one-type", "--parallel --precision --model",
                              "FSDP1 flattens parameters of one type alone, and {} is {} beside {}",
                              "--precision fp32, or --parallel fsdp2, ddp"};
const BuiltRule kFsdp1Layers{"fsdp1-layers", "--parallel --model",
                             "the layers of this model, which FSDP1 would wrap one by one, are not known",
                             "--parallel ddp, zero1"};
const BuiltRule kFsdp2Scalar{"fsdp2-scalar", "--parallel --model",
                             "fully_shard takes no parameter without a dimension, and {} is one", "--parallel ddp"};
const BuiltRule kFsdp2Layers{"fsdp2-layers", "--parallel --model",
                             "the layers of this model, which FSDP2 would shard one by one, are not known",
                             "--parallel ddp, zero1"};
const BuiltRule kFsdp2DirectRead{"fsdp2-direct-read", "--parallel --loop --model",
                                 "how FSDP2 reduces the gradient of a head that TRL reads without calling it, in a "
                                 "unit of its own, is not modelled",
                                 "--lora R, or --parallel ddp"};
const BuiltRule kZero3Frozen{"zero3-frozen", "--parallel --freeze",
                             "{} does not train, and frozen parameters under ZeRO-3 are not modelled",
                             "--parallel ds-zero2, fsdp2"};
const BuiltRule kDeepSpeedBuffers{"deepspeed-buffers", "--parallel --model",
                                  "DeepSpeed casts the module's {} to the type that trains, which is not modelled",
                                  "--parallel ddp, fsdp2"};
const BuiltRule kZero3Hooks{"zero3-hooks", "--parallel --model",
                            "which module of this model holds {}, and so when ZeRO-3 gathers it, is not known",
                            "--parallel ds-zero2, fsdp2"};
const BuiltRule kCpMask{"cp-without-mask", "--cp --padding", "context_parallel takes no attention mask",
                        "no --padding, models without a sliding window", ErrorCode::kUsage};
const BuiltRule kCpCausal{"cp-of-causal-attention", "--cp --model",
                          "context_parallel's load balancing needs causal attention", "decoders", ErrorCode::kUsage};
const BuiltRule kCpKernel{"cp-kernel", "--cp --precision", "the {} kernel of attention is not modelled under --cp",
                          "16-bit precision on a card with cuDNN's or flash attention", ErrorCode::kUsage};
const BuiltRule kNoClassifier{"classifier-of-family", "--task --model",
                              "transformers has no class of this model that classifies sequences", "--task causal"};
const BuiltRule kStages{"stages-of-family", "--pp --model",
                        "how a stage of a pipeline calls the layers of {} is not modelled",
                        "llama, qwen2, qwen3 and other decoders whose layers are all alike"};

const BuiltRule kLinearStatesRead{"linear-states-read", "--new-tokens --model",
                                  "new tokens: layers with linear attention or an indexer that read the states of an "
                                  "earlier forward pass are not modelled",
                                  "no --new-tokens"};
const BuiltRule kLinearLayersCompiled{"linear-layers-compiled", "--compile --model",
                                      "compile: the graphs of layers with linear attention are not modelled",
                                      "no --compile"};

const BuiltRule kFloat32Head{"float32-head-of-model", "--float32-head --model",
                             "TRL casts lm_head, and with it a tied model.embed_tokens, and this model has {}",
                             "no --float32-head"};

// --- torch.compile of each layer

const BuiltRule kCompiledArguments{"compile-layer-arguments", "--compile-parts --model",
                                   "a compiled layer that takes more than {} tensors with gradients is not modelled",
                                   "--compile-parts model, or no --compile"};

const BuiltRule kScriptedFunctions{"compile-scripted-functions", "--compile --model",
                                   "compile: what torch.compile makes of {}'s torch.jit.script functions is not known",
                                   "no --compile"};

const BuiltRule kBrokenGraphRecorded{"cuda-graphs-break", "--compile-mode --model",
                                     "compile mode reduce-overhead: Dynamo breaks this model's graph, and CUDA graphs "
                                     "of its pieces are not modelled",
                                     "--compile-mode default"};

constexpr const BuiltRule* kAll[] = {&kKnownActivation,
                                     &kKnownTorchvision,
                                     &kMegatronModels,
                                     &kMegatronMamba,
                                     &kLitGptModels,
                                     &kImageLargeEnough,
                                     &kBatchNormOfSeveral,
                                     &kGroupedExperts,
                                     &kNoClassifier,
                                     &kCutCrossEntropyTypes,
                                     &kLoraLayers,
                                     &kLoraTarget,
                                     &kLoraFused,
                                     &kLoraPattern,
                                     &kLoraSaved,
                                     &kLoraAllLinear,
                                     &kLoraParameterDropout,
                                     &kLoraParameterDora,
                                     &kLoraParameterCompiled,
                                     &kLoraParameterGathered,
                                     &kFreezeName,
                                     &kFreezeNotAll,
                                     &kFreezePattern,
                                     &kFreezeUnmatched,
                                     &kMarlinShape,
                                     &kFp8Experts,
                                     &kPackedHead,
                                     &kPackedExperts,
                                     &kLoraParameterPacked,
                                     &kQuantizedLayers,
                                     &kFp8BaseLayers,
                                     &kBlocksToSwap,
                                     &kSwapLeavesBlocks,
                                     &kOffloadedParameterHooks,
                                     &kTpDivides,
                                     &kTpExperts,
                                     &kTpPlan,
                                     &kTpNorm,
                                     &kTpRowBias,
                                     &kTpLayers,
                                     &kFloat32Head,
                                     &kFsdp1Frozen,
                                     &kFsdp1Scalar,
                                     &kFsdp1OneType,
                                     &kFsdp1Layers,
                                     &kFsdp2Scalar,
                                     &kFsdp2Layers,
                                     &kFsdp2DirectRead,
                                     &kZero3Frozen,
                                     &kZero3Hooks,
                                     &kDeepSpeedBuffers,
                                     &kCpMask,
                                     &kCpCausal,
                                     &kCpKernel,
                                     &kStages,
                                     &kLinearStatesRead,
                                     &kLinearLayersCompiled,
                                     &kCompiledArguments,
                                     &kScriptedFunctions,
                                     &kBrokenGraphRecorded,
                                     &kClassOfVersion};

}  // namespace rules

std::span<const BuiltRule* const> built_rules() { return rules::kAll; }

Error refusal(const BuiltRule& rule, std::initializer_list<std::string_view> found) {
  const auto* next = found.begin();
  const auto filled = [&](std::string_view text) {
    std::string result;
    for (std::size_t at = text.find("{}"); at != std::string_view::npos; at = text.find("{}")) {
      result += text.substr(0, at);
      if (next != found.end()) result += *next++;
      text.remove_prefix(at + 2);
    }
    return result += text;
  };
  std::string message = filled(rule.message);  // before the rest: each takes the next of `found`
  return {rule.code, with_accepted(std::move(message), filled(rule.accepted)), first_option(rule.options),
          std::string(rule.id)};
}

}  // namespace memcalc
