// What goes with torch.compile, with a loss that the loop computes, and with layers that compute in float8.
// Covered by tests/unit/rules_compile_test.cc.
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

/// As one graph.
bool compiles_whole(const RuleQuestion& q) {
  return q.run.compiles() && training_of(q).compiled_parts == CompiledParts::kModel;
}

bool is_shared_otherwise(const Parallel& p) { return p.context > 1 || p.pipeline > 1 || p.expert > 1; }

// --- model(input_ids), then the loss of its logits

constexpr Rule kLossInLoop[] = {
    {.id = "loss-in-loop-plain",
     .options = "--loss-in-loop --loop --infer",
     .message = "loss in loop: only a plain training loop computes the loss from the logits",
     .accepted = "--loop bare, no --infer",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trainer(); }},
    {.id = "loss-in-loop-causal",
     .options = "--loss-in-loop --task",
     .message = "loss in loop: it is modelled for the task causal, not for {--task}",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return !is_causal(q); }},
    {.id = "loss-in-loop-parallel",
     .options = "--loss-in-loop --parallel --cp --pp --ep --framework",
     .message = "loss in loop: on several GPUs it is only modelled beside FSDP2 and tensor parallelism",
     .accepted = "--parallel fsdp2 under torch without --cp, --pp, --ep, or --gpus 1",
     .broken =
         [](const RuleQuestion& q) {
           const DataParallel mode = q.parallel.data_parallel;
           return (mode != DataParallel::kFsdp2 && mode != DataParallel::kNone) || is_shared_otherwise(q.parallel) ||
                  !is_torch(q);
         }},
    {.id = "loss-in-loop-liger",
     .options = "--loss-in-loop --liger",
     .message = "loss in loop: Liger's kernel computes the loss in the model",
     .accepted = "one of --loss-in-loop and --liger",
     .broken = has_liger},
    {.id = "loss-in-loop-cache",
     .options = "--loss-in-loop --use-cache",
     .message = "loss in loop: beside a key/value cache it is not modelled",
     .accepted = "no --use-cache",
     .broken = [](const RuleQuestion& q) { return q.run.use_cache; }},
    {.id = "loss-in-loop-compiled",
     .options = "--loss-in-loop --compile-parts --compile",
     .message = "loss in loop: a graph of the whole model without its loss is not modelled",
     .accepted = "--compile-parts layers, layers-loss",
     .broken = compiles_whole},
};

// --- torch.compile traces through most choices; these change the traced program in ways that are not modelled

constexpr Rule kCompile[] = {
    {.id = "compile-known-layers",
     .options = "--compile-parts --model",
     .message = "compile: which layers of {model} would be compiled is not known",
     .accepted = "--compile-parts model",
     .broken =
         [](const RuleQuestion& q) {
           // A program knows its layers itself (models/program_compile.cc).
           const bool has_layers =
               is_program(q.model) || (q.run.task != Task::kCustom && !has(q, &Family::compiled_whole_alone));
           return training_of(q).compiled_parts != CompiledParts::kModel && !has_layers;
         }},
    {.id = "compile-reentrant",
     .options = "--compile --reentrant",
     .message = "compile: torch.compile traces checkpoints without use_reentrant alone",
     .accepted = "--no-reentrant",
     .broken = [](const RuleQuestion& q) { return q.run.checkpoints_reentrantly(); }},
    {.id = "compile-t5-checkpointing",
     .options = "--checkpointing --compile --model",
     .message = "compile: under checkpointing T5's cross attention sets requires_grad, which breaks the graph",
     .accepted = "--checkpointing none, selective",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.checkpointing() == Checkpointing::kFull && has(q, &Family::shares_position_bias);
         }},
    {.id = "compile-parallel",
     .options = "--compile --parallel --tp --cp --pp --ep",
     .message = "compile: on several GPUs it is only modelled beside FSDP2",
     .accepted = "--parallel fsdp2 without --tp, --cp, --pp, --ep, or --gpus 1",
     .broken =
         [](const RuleQuestion& q) {
           return is_parallel(q) && (q.parallel.data_parallel != DataParallel::kFsdp2 || q.parallel.tensor > 1 ||
                                     is_shared_otherwise(q.parallel));
         }},
    {.id = "compile-parts-of-fsdp2",
     .options = "--compile-parts --parallel",
     .message = "compile: FSDP2's hooks break a graph of the whole model",
     .accepted = "--compile-parts layers, layers-loss",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && compiles_whole(q); }},
    {.id = "compile-parts-of-the-trainer",
     .options = "--compile-parts --loop",
     .message = "compile: the Trainer compiles the whole model, not {--compile-parts}",
     .accepted = "--compile-parts model, or --loop bare",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).compiled_parts != CompiledParts::kModel && q.run.uses_trainer();
         }},
    {.id = "compile-parts-causal-loss",
     .options = "--compile-parts --task",
     .message = "compile: a loss that is compiled by itself is modelled for the task causal, not for {--task}",
     .accepted = "--compile-parts layers",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).compiled_parts == CompiledParts::kLayersAndLoss && !is_causal(q);
         }},
    {.id = "compile-activation-offload",
     .options = "--activation-offload --compile",
     .message = "compile: hooks that offload saved tensors are not called inside of a compiled graph",
     .accepted = "one of --compile and --activation-offload",
     .broken = [](const RuleQuestion& q) { return training_of(q).offload_activations; }},
    {.id = "compile-quantize",
     .options = "--compile --quantize",
     .message = "compile: the kernels of weights in {--quantize} break the graph, and its pieces are not modelled",
     .accepted = "no --compile, or --quantize none",
     .broken = quantizes},
    {.id = "compile-liger",
     .options = "--compile --liger",
     .message = "compile: Liger's kernels break the graph, and its pieces are not modelled",
     .accepted = "one of --compile and --liger",
     .broken = has_liger},
    {.id = "compile-flash-attention",
     .options = "--attn --compile",
     .message = "compile: the flash-attn package breaks the graph, and its pieces are not modelled",
     .accepted = "--attn sdpa, eager",
     .broken = [](const RuleQuestion& q) { return q.run.attention == Attention::kFlash; }},
};

// --- mode="reduce-overhead": what CUDA graphs cannot hold, and what of them is not modelled

constexpr Rule kReduceOverhead[] = {
    {.id = "cuda-graphs-of-the-model",
     .options = "--compile-mode --compile-parts",
     .message = "compile mode reduce-overhead: CUDA graphs of single layers, which FSDP2 would need, are not modelled",
     .accepted = "--compile-parts model",
     .broken = [](const RuleQuestion& q) { return training_of(q).compiled_parts != CompiledParts::kModel; }},
    {.id = "cuda-graphs-accumulation",
     .options = "--compile-mode --accum",
     .message = "compile mode reduce-overhead: each forward pass gives back the memory of the gradients that --accum "
                "would add to",
     .accepted = "--compile-mode default, or --accum 1",
     .broken = [](const RuleQuestion& q) { return training_of(q).accumulation_steps > 1; }},
    {.id = "cuda-graphs-shapes",
     .options = "--compile-mode --lengths --padding",
     .message = "compile mode reduce-overhead: batches of several lengths are a graph each, which is not modelled",
     .accepted = "--compile-mode default, or sequences of one length",
     .broken = [](const RuleQuestion& q) { return training_of(q).lengths.has_value(); }},
    {.id = "cuda-graphs-evaluation",
     .options = "--compile-mode --eval-bs",
     .message = "compile mode reduce-overhead: the graphs of an evaluation are not modelled",
     .accepted = "--compile-mode default, or no --eval-bs",
     .broken = [](const RuleQuestion& q) { return training_of(q).evaluation.has_value(); }},
    {.id = "cuda-graphs-expandable",
     .options = "--compile-mode --expandable",
     .message = "compile mode reduce-overhead: private pools of expandable segments are not modelled",
     .accepted = "one of --compile-mode reduce-overhead and --expandable",
     .broken = [](const RuleQuestion& q) { return q.run.expandable_segments; }},
    {.id = "cuda-graphs-experts",
     .options = "--compile-mode --model",
     .message = "compile mode reduce-overhead: experts choose their tokens by values on the card, which no CUDA graph "
                "can hold",
     .accepted = "--compile-mode default",
     .broken = [](const RuleQuestion& q) { return has_experts(q.model); }},
    {.id = "cuda-graphs-layerdrop",
     .options = "--compile-mode --model",
     .message = "compile mode reduce-overhead: {family} reads a random number before each layer (LayerDrop), which "
                "breaks the graph, and CUDA graphs of its pieces are not modelled",
     .accepted = "--compile-mode default",
     .broken = [](const RuleQuestion& q) { return has(q, &Family::skips_layers_at_random); }},
};

// --- torchao's float8 training: eager mode writes every step of a cast, which is not modelled

bool gathers_float8(const RuleQuestion& q) { return training_of(q).float8 == Float8::kTensorwiseGather; }

constexpr Rule kFloat8[] = {
    {.id = "float8-of-its-families",
     .options = "--float8 --model",
     .message = "float8: it is not known which products of {family} torchao converts",
     .accepted = "a model of the families llama, mistral, qwen3",
     .broken = [](const RuleQuestion& q) { return !has(q, &Family::float8); }},
    {.id = "float8-compiled-layers",
     .options = "--float8 --compile --compile-parts",
     .message = "float8: casts are only modelled where the compiler fuses them, and the head stays outside",
     .accepted = "--compile --compile-parts layers, layers-loss",
     .broken = [](const RuleQuestion& q) { return !q.run.compiles() || compiles_whole(q); }},
    {.id = "float8-in-bf16",
     .options = "--float8 --precision --fsdp-param-dtype",
     .message = "float8: products return bf16, so the layers have to compute in it",
     .accepted = "--precision bf16, or --fsdp-param-dtype bf16",
     .broken =
         [](const RuleQuestion& q) {
           const std::optional<DType> gathered = q.parallel.gathered_dtype();
           return gathered ? *gathered != DType::kBFloat16 : q.run.precision != Precision::kBf16;
         }},
    {.id = "float8-gather-of-fsdp2",
     .options = "--float8 --parallel",
     .message = "float8 tensorwise-gather: only FSDP2 gathers weights in float8",
     .accepted = "--float8 tensorwise, or --parallel fsdp2",
     .broken =
         [](const RuleQuestion& q) { return gathers_float8(q) && q.parallel.data_parallel != DataParallel::kFsdp2; }},
    {.id = "float8-gather-from-host",
     .options = "--float8 --offload-parameters",
     .message = "float8 tensorwise-gather: weights that are gathered from the host are not modelled in float8",
     .accepted = "--float8 tensorwise, or no --offload-parameters",
     .broken =
         [](const RuleQuestion& q) {
           return gathers_float8(q) && q.parallel.offload_parameters != OffloadTo::kNowhere;
         }},
    {.id = "float8-of-whole-weights",
     .options = "--float8 --lora --quantize",
     .message = "float8: layers with adapters or packed weights are not converted",
     .accepted = "no --lora and no --quantize",
     .broken = [](const RuleQuestion& q) { return has_adapters(q) || quantizes(q); }},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Loss in the loop",
     .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).loss_in_loop; },
     .rules = kLossInLoop},
    {.title = "torch.compile", .concerns = [](const RuleQuestion& q) { return q.run.compiles(); }, .rules = kCompile},
    {.title = "CUDA graphs",
     .concerns = [](const RuleQuestion& q) { return q.run.records_graphs(); },
     .rules = kReduceOverhead},
    {.title = "Float8",
     .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).float8 != Float8::kNone; },
     .rules = kFloat8},
};

}  // namespace

std::span<const RuleGroup> rules_of_compile() { return kGroups; }

}  // namespace memcalc
