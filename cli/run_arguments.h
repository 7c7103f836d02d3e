// The options that describe a run, shared by every command that takes one.
#pragma once

#include <array>
#include <string>

#include "parallel_arguments.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace memcalc::cli {

/// One card of each common size, for a question that names none.
inline constexpr std::array<const char*, 5> kCommonCards = {"rtx-4090", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm",
                                                            "h200-sxm"};

/// As typed; parsed by resolve_arguments() (question.h).
struct RunArguments {
  std::string model, task, batch, sequence, target_sequence, image;
  std::string family, layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, max_positions;
  bool tie = false;
  bool no_tie = false;
  std::string precision, weights_dtype;
  std::string compiled_parts, float8;
  std::string loop, optimizer, attention, checkpointing, accumulation, dropout, skipped_steps;
  std::string lora, lora_targets, lora_dropout, lora_dtype, quantize, bitsandbytes, group_size, freeze;
  std::string dataloader_workers, prefetch_factor;
  std::string new_tokens, beams, cache_dtype;
  std::string gpu, specs;
  bool fp16 = false;
  bool bf16 = false;
  bool use_cache = false;
  bool infer = false;
  bool padding = false;
  bool liger = false;
  bool lora_head = false;
  bool quantize_head = false;
  bool prepare_kbit = false;
  bool no_prepare_kbit = false;
  bool offload_activations = false;
  bool expandable_segments = false;
  bool pin_memory = false;
  ParallelArguments parallel;
  bool compile = false;
  bool loss_in_loop = false;
  bool offload_optimizer = false;
  bool offload_gradients = false;
  const CLI::Option* clip_grad = nullptr;  // its value is optional
};

/// Declares the options on a command; `arguments` must outlive it.
void add_run_options(CLI::App& command, RunArguments& arguments);

}  // namespace memcalc::cli
