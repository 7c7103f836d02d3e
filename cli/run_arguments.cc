#include "run_arguments.h"

#include <CLI/CLI.hpp>
#include <cstddef>

namespace memcalc::cli {
namespace {

// Where descriptions start in --help: with at most 56 characters each they end within 80 columns.
constexpr std::size_t kHelpColumn = 24;

constexpr const char* kModelGroup = "Model and data";
constexpr const char* kArchitectureGroup = "Architecture";
constexpr const char* kPrecisionGroup = "Precision";
constexpr const char* kTrainingGroup = "Training";
constexpr const char* kFineTuningGroup = "Fine-tuning";
constexpr const char* kSavingGroup = "Saving memory, host memory";
constexpr const char* kInferenceGroup = "Inference";
constexpr const char* kCardGroup = "Card and data files";

void add_model_options(CLI::App& command, RunArguments& a) {
  command.add_option("--model", a.model, "name (memcalc models), config.json or its directory")
      ->type_name("MODEL")
      ->group(kModelGroup);
  command.add_option("--bs", a.batch, "sequences per micro-batch [1]")->type_name("N")->group(kModelGroup);
  command.add_option("--seq", a.sequence, "tokens per sequence [trained context, at most 2048]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--target-seq", a.target_sequence, "seq2seq: tokens per label sequence [as --seq]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--image", a.image, "pixels a side, for image models [the trained size]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--task", a.task, "seqcls, mlm, tokcls, causal, seq2seq, speech, image,\ncontrastive")
      ->type_name("TASK")
      ->group(kModelGroup);
  command.add_flag("--padding", a.padding, "some sequences are padded, so a mask is passed")
      ->disable_flag_override()
      ->group(kModelGroup);
}

void add_architecture_options(CLI::App& command, RunArguments& a) {
  const auto size = [&](const char* name, std::string& value, const char* description) {
    command.add_option(name, value, description)->type_name("N")->group(kArchitectureGroup);
  };
  command.add_option("--arch", a.family, "a family by itself, instead of --model (gpt2, llama, …)")
      ->type_name("FAMILY")
      ->group(kArchitectureGroup);
  size("--layers", a.layers, "layers; of an encoder-decoder: of each");
  size("--hidden", a.hidden, "width of the hidden states");
  size("--heads", a.heads, "attention heads");
  size("--kv-heads", a.kv_heads, "key and value heads, where they are grouped");
  size("--head-dim", a.head_dim, "width of a head");
  size("--ffn", a.ffn, "width of the feed-forward layers");
  size("--vocab", a.vocabulary, "rows of the embedding");
  size("--max-positions", a.max_positions, "positions that the model has");
  command.add_flag("--tie", a.tie, "the head shares the embedding's weight")
      ->disable_flag_override()
      ->group(kArchitectureGroup);
  command.add_flag("--no-tie", a.no_tie, "the head has a weight of its own")
      ->disable_flag_override()
      ->group(kArchitectureGroup);
}

void add_precision_options(CLI::App& command, RunArguments& a) {
  command.add_option("--precision", a.precision, "fp32, tf32, amp-fp16, amp-bf16, bf16, fp16 [fp32]")
      ->type_name("P")
      ->group(kPrecisionGroup);
  command.add_flag("--fp16", a.fp16, "--precision amp-fp16; of DeepSpeed, Megatron: fp16")
      ->disable_flag_override()
      ->group(kPrecisionGroup);
  command.add_flag("--bf16", a.bf16, "--precision amp-bf16; of DeepSpeed, Megatron: bf16")
      ->disable_flag_override()
      ->group(kPrecisionGroup);
  command.add_option("--weights-dtype", a.weights_dtype, "fp32, fp16 or bf16 [as the precision says]")
      ->type_name("T")
      ->group(kPrecisionGroup);
}

void add_training_options(CLI::App& command, RunArguments& a) {
  command.add_option("--loop", a.loop, "trainer (HF Trainer) or bare (a plain loop) [trainer]")
      ->type_name("LOOP")
      ->group(kTrainingGroup);
  command.add_option("--optimizer", a.optimizer, "name (docs/cli.md) or HF Trainer's optim [by loop]")
      ->type_name("OPT")
      ->group(kTrainingGroup);
  command.add_option("--accum", a.accumulation, "micro-batches per optimizer step [1]")
      ->type_name("N")
      ->group(kTrainingGroup);
  a.clip_grad = command.add_option("--clip-grad", "clip at this norm, 0: never [trainer 1.0, bare never]")
                    ->expected(0, 1)
                    ->type_name("[NORM]")
                    ->group(kTrainingGroup);
  command.add_option("--checkpointing", a.checkpointing, "none, full, every-N (layers) or selective [none]")
      ->type_name("C")
      ->group(kTrainingGroup);
  command.add_flag("--compile", a.compile, "torch.compile, the default mode")
      ->disable_flag_override()
      ->group(kTrainingGroup);
  command.add_option("--float8", a.float8, "tensorwise, tensorwise-gather or rowwise [none]")
      ->type_name("F")
      ->group(kTrainingGroup);
  command.add_option("--compile-parts", a.compiled_parts, "model, layers, layers-loss [model; on several: layers]")
      ->type_name("P")
      ->group(kTrainingGroup);
  command.add_option("--attn", a.attention, "sdpa, eager or flash [sdpa]")->type_name("A")->group(kTrainingGroup);
  command.add_option("--dropout", a.dropout, "every dropout probability [the model's own]")
      ->type_name("P")
      ->group(kTrainingGroup);
  command.add_option("--skipped-steps", a.skipped_steps, "first steps that the fp16 loss scaler skips [0]")
      ->type_name("N")
      ->group(kTrainingGroup);
  command.add_flag("--loss-in-loop", a.loss_in_loop, "a plain loop computes the loss from the logits")
      ->disable_flag_override()
      ->group(kTrainingGroup);
  command.add_flag("--use-cache", a.use_cache, "keep the KV cache, as plain loops over decoders do")
      ->disable_flag_override()
      ->group(kTrainingGroup);
}

void add_fine_tuning_options(CLI::App& command, RunArguments& a) {
  command.add_option("--lora", a.lora, "peft adapters of this rank on a frozen base")
      ->type_name("R")
      ->group(kFineTuningGroup);
  command.add_option("--lora-targets", a.lora_targets, "ends of layer names, by commas [all linear layers]")
      ->type_name("LIST")
      ->group(kFineTuningGroup);
  command.add_option("--lora-dropout", a.lora_dropout, "dropout in front of the adapters [0]")
      ->type_name("P")
      ->group(kFineTuningGroup);
  command.add_option("--lora-dtype", a.lora_dtype, "fp32, or base: as the base's weights [fp32]")
      ->type_name("T")
      ->group(kFineTuningGroup);
  command.add_flag("--lora-head", a.lora_head, "a classifier is trained in full (peft's task_type)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--quantize", a.quantize, "nf4, nf4-double, int8; to infer also gptq4, awq4 [none]")
      ->type_name("Q")
      ->group(kFineTuningGroup);
  command.add_flag("--quantize-head", a.quantize_head, "the output head is packed, too (LitGPT)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--bitsandbytes", a.bitsandbytes, "its version; inputs kept before 0.43.2 [0.50]")
      ->type_name("V")
      ->group(kFineTuningGroup);
  command.add_option("--group-size", a.group_size, "of gptq4, awq4: numbers that share a scale [128]")
      ->type_name("N")
      ->group(kFineTuningGroup);
  command.add_flag("--prepare-kbit", a.prepare_kbit, "prepare_model_for_kbit_training [with both]")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_flag("--no-prepare-kbit", a.no_prepare_kbit, "leave that call out")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_flag("--liger", a.liger, "Liger's fused kernels and loss (LLaMA, Mistral, Qwen)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--freeze", a.freeze, "parts of parameter names, by commas, not to train")
      ->type_name("LIST")
      ->group(kFineTuningGroup);
}

void add_inference_options(CLI::App& command, RunArguments& a) {
  command.add_flag("--infer", a.infer, "no training: one forward pass, or generate()")
      ->disable_flag_override()
      ->group(kInferenceGroup);
  command.add_option("--new-tokens", a.new_tokens, "tokens that generate() adds to each sequence")
      ->type_name("N")
      ->group(kInferenceGroup);
  command.add_option("--beams", a.beams, "beams of generate()'s beam search [1]")
      ->type_name("K")
      ->group(kInferenceGroup);
  command.add_option("--kv-cache-dtype", a.cache_dtype, "fp32, fp16 or bf16 [as the activations]")
      ->type_name("T")
      ->group(kInferenceGroup);
}

void add_saving_options(CLI::App& command, RunArguments& a) {
  command.add_flag("--activation-offload", a.offload_activations, "saved tensors go to pinned host memory")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--offload-optimizer", a.offload_optimizer, "AdamW's states and step on the host (torchao)")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--offload-gradients", a.offload_gradients, "with it: gradients die once they are copied")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--expandable", a.expandable_segments, "the allocator's expandable_segments:True")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_option("--loader-workers", a.dataloader_workers, "processes that load batches [0]")
      ->type_name("N")
      ->group(kSavingGroup);
  command.add_option("--prefetch-factor", a.prefetch_factor, "batches each worker prepares ahead [2]")
      ->type_name("N")
      ->group(kSavingGroup);
  command.add_flag("--pin-memory", a.pin_memory, "batches pass through pinned memory [trainer: on]")
      ->disable_flag_override()
      ->group(kSavingGroup);
}

void add_card_options(CLI::App& command, RunArguments& a) {
  command.add_option("--gpu", a.gpu, "name (memcalc gpus) or file [as h100-sxm; fit on others]")
      ->type_name("GPU")
      ->group(kCardGroup);
  command.add_option("--specs", a.specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group(kCardGroup);
}

}  // namespace

void add_run_options(CLI::App& command, RunArguments& arguments) {
  command.get_formatter()->column_width(kHelpColumn);
  add_model_options(command, arguments);
  add_architecture_options(command, arguments);
  add_precision_options(command, arguments);
  add_training_options(command, arguments);
  add_fine_tuning_options(command, arguments);
  add_saving_options(command, arguments);
  add_inference_options(command, arguments);
  add_parallel_options(command, arguments.parallel);
  add_card_options(command, arguments);
}

}  // namespace memcalc::cli
