// How a run was asked for, in words: what stands below the model's name in text and in Markdown. Each option that
// changes the answer is heard here, but for those that a table of the report speaks of (epoch, stages, time).
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {
namespace {

/// " x 80000 numbers": of a program that reads neither tokens nor images of a free size (sounds). Empty: it does.
std::string numbers_of(const Program& program, const RunSpec& run) {
  if (program.inputs.empty() || program.inputs.front().dtype.starts_with("int") || run.image_size > 0) return {};
  std::string words;
  for (const ProgramArgument& size : program.inputs.front().shape) {
    if (size.kind == ProgramArgument::Kind::kInteger) {
      words += fmt::format(" x {}", size.integer);
    } else if (size.text == "sequence") {
      words += fmt::format(" x {}", run.sequence_length);
    } else if (size.text != "batch") {
      return {};
    }
  }
  return words.empty() ? words : words + " numbers";
}

/// " x 512 tokens", " x 224 px", " x 784 numbers".
std::string sample_words(const ModelSpec& model, const RunSpec& run) {
  const bool in_a_text = run.task == Task::kCausalLm;
  if (run.image_size > 0 && !in_a_text) return " x " + std::to_string(run.image_size) + " px";
  if (const auto* recorded = model.architecture.get_if<ProgramSpec>()) {
    if (std::string numbers = numbers_of(*recorded->program, run); !numbers.empty()) return numbers;
  }
  const auto* custom = model.architecture.get_if<CustomSpec>();
  const auto* features = custom != nullptr ? std::get_if<custom::FeaturesInput>(&custom->input) : nullptr;
  if (features == nullptr)
    return " x " + std::to_string(run.sequence_length) + " " + plural(run.sequence_length, "token");
  std::string words;
  for (const std::int64_t size : features->shape) words += " x " + std::to_string(size);
  return words + " numbers";
}

/// Of programs those of diffusers, all of which attend by sdpa; others need not attend at all.
bool names_attention(const ModelSpec& model) {
  return is_program(model) ? is_denoiser(model) : chooses_attention(model);
}

const char* compiled_words(const Training& training) {
  if (training.compile_mode == CompileMode::kReduceOverhead) return "torch.compile with CUDA graphs";
  switch (training.compiled_parts) {
    case CompiledParts::kLayers: return "torch.compile of each layer";
    case CompiledParts::kLayersAndLoss: return "torch.compile of each layer and the loss";
    case CompiledParts::kModel: break;
  }
  return "torch.compile";
}

/// What is recomputed, fused or moved, so that less is kept.
void add_savings(const Training& training, Task task, std::vector<std::string>& words) {
  if (training.checkpointing == Checkpointing::kSelective) words.emplace_back("selective checkpointing");
  if (training.checkpointing == Checkpointing::kFull) {
    const std::string what = task == Task::kCustom ? "repeated block" : "layer";
    words.push_back(training.checkpoint_every == 1
                        ? "checkpointing every " + what
                        : "checkpointing 1 " + what + " of every " + std::to_string(training.checkpoint_every));
  }
  if (training.compile) words.emplace_back(compiled_words(training));
  if (training.float8 != Float8::kNone) words.push_back("float8 " + std::string(name_of(training.float8)));
  if (training.offload_activations) words.emplace_back("activations offloaded");
}

/// "weights bfloat16, as stored (--weights-dtype)"
std::string weights_text(const ModelSpec& model, const RunSpec& run) {
  const DType type = weights_dtype_of(run);
  const bool as_stored = is_half(type) && model.checkpoint_dtype == type;
  return fmt::format("weights {}{}", name_of(type), as_stored ? ", as stored (--weights-dtype)" : "");
}

/// "LoRA rank 16 of q_proj, v_proj", "LoRA rank 16 of 7 targets"
std::string adapters_text(const Lora& lora) {
  constexpr std::size_t kWidest = 30;
  const std::string text = fmt::format("{} rank {}", lora.dora ? "DoRA" : "LoRA", lora.rank);
  const std::string names = lora.targets.empty() ? "" : " of " + join(lora.targets);
  if (names.size() <= kWidest) return text + names;
  return text + " of " + format_counted(static_cast<std::int64_t>(lora.targets.size()), "target");
}

/// What lies off the card between uses.
void add_offloading(const Parallel& parallel, std::vector<std::string>& words) {
  const auto add = [&](OffloadTo place, const char* what) {
    if (place == OffloadTo::kNowhere) return;
    words.push_back(std::string(what) + (place == OffloadTo::kHost ? " on the host" : " on NVMe"));
  };
  add(parallel.offload_states, "states");
  add(parallel.offload_parameters, "parameters");
}

/// What a trainer of TRL or of sentence-transformers is told beside its loop.
void add_trainer(const Training& training, std::vector<std::string>& words) {
  if (has_completions(training.loop) && training.reference == Reference::kPrecomputed)
    words.emplace_back("reference precomputed");
  if (training.sft_loss != SftLoss::kNll) words.push_back(fmt::format("loss {}", name_of(training.sft_loss)));
  if (training.kto_loss != KtoLoss::kKto) words.push_back(fmt::format("loss {}", name_of(training.kto_loss)));
  if (training.grpo_loss != GrpoLoss::kDapo) words.push_back(fmt::format("loss {}", name_of(training.grpo_loss)));
  if (training.iterations > 1) words.push_back(fmt::format("{} iterations", training.iterations));
  if (training.vllm.mode != VllmMode::kNone) words.push_back(fmt::format("vLLM {}", name_of(training.vllm.mode)));
  if (training.sentences.loss != ContrastiveLoss::kMnrl)
    words.push_back(fmt::format("loss {}", name_of(training.sentences.loss)));
  if (training.sentences.hard_negatives > 0)
    words.push_back(format_counted(training.sentences.hard_negatives, "hard negative"));
}

/// What else a run that trains does with its step, and before and after it.
void add_job(const Training& training, std::vector<std::string>& words) {
  if (training.loss_in_loop) words.emplace_back("loss in the loop");
  if (training.smooths_labels) words.emplace_back("label smoothing");
  if (training.optimizer_in_backward) words.emplace_back("stepping in backward");
  if (training.offload_optimizer)
    words.emplace_back(training.offload_gradients ? "optimizer and gradients on the host" : "optimizer on the host");
  if (training.lengths && training.lengths->packing)
    words.push_back(fmt::format("packing {}", name_of(*training.lengths->packing)));
  if (training.lengths && training.lengths->padding_free) words.emplace_back("no padding");
  if (training.lengths && training.lengths->grouped) words.emplace_back("grouped by length");
  if (training.evaluation) {
    words.push_back(fmt::format("evaluation of {} at once{}", training.evaluation->batch_size,
                                training.evaluation->keeps_logits ? ", logits kept" : ""));
  }
  if (training.stages == Stages::kAll) words.emplace_back("all stages");
  if (training.loading == ModelLoading::kRank0) words.emplace_back("loaded by rank 0");
  if (training.loading == ModelLoading::kHost) words.emplace_back("loaded on the host");
  if (training.loading == ModelLoading::kDeviceMap && training.stages == Stages::kAll)
    words.emplace_back("loaded by device_map");
  if (training.saving != ModelSaving::kNone) words.push_back(fmt::format("saving {}", name_of(training.saving)));
}

void add_inference(const Inference& inference, std::vector<std::string>& words) {
  words.push_back(inference.new_tokens == 0 ? "inference, one forward pass"
                                            : fmt::format("inference, {} new {}", inference.new_tokens,
                                                          plural(inference.new_tokens, "token")));
  if (inference.beams > 1) words.push_back(fmt::format("{} beams", inference.beams));
  if (inference.return_sequences > 1) words.push_back(fmt::format("{} answers each", inference.return_sequences));
  if (inference.sampling) {
    const bool is_plain = *inference.sampling == Sampling{};
    words.push_back(is_plain ? "sampling" : "sampling by " + join(words_of(*inference.sampling)));
  }
  if (inference.key_value_cache_dtype)
    words.push_back(fmt::format("KV cache {}", name_of(*inference.key_value_cache_dtype)));
}

}  // namespace

std::vector<std::string> setting_of(const Report& report) {
  const RunSpec& run = report.run;
  std::vector<std::string> words;
  words.push_back("batch " + std::to_string(run.batch_size) + sample_words(report.model, run));
  if (run.target_sequence_length > 0) {  // of images the objects, or the tokens that are read from them
    const std::string targets = std::to_string(run.target_sequence_length);
    words.back() +=
        run.image_size > 0 ? ", " + targets + " " + plural(run.target_sequence_length, "target") : " to " + targets;
  }
  if (run.accumulation_steps() > 1) words.push_back(std::to_string(run.accumulation_steps()) + " micro-batches a step");
  if (run.task != usual_task(report.model) && !run.gives_one_score() && !run.uses_sentence_transformers())
    words.push_back(fmt::format("task {}", name_of(run.task)));
  words.emplace_back(name_of(run.precision));
  words.push_back(weights_text(report.model, run));
  const auto* training = std::get_if<Training>(&run.purpose);
  if (const Inference* inference = run.inference()) {
    add_inference(*inference, words);
  } else {
    words.push_back(rule_of(training->optimizer).title);
    if (training->max_grad_norm) words.push_back("clipping at " + format_exact(*training->max_grad_norm));
    words.emplace_back(title_of(training->loop));
    add_trainer(*training, words);
  }
  if (names_attention(report.model)) words.push_back("attention " + std::string(name_of(run.attention)));
  if (training != nullptr) add_savings(*training, run.task, words);
  const FineTuning& tuning = run.fine_tuning;
  if (tuning.lora) words.push_back(adapters_text(*tuning.lora));
  if (tuning.quantization != Quantization::kNone) {
    const bool leaves_experts = has_experts(report.model) && !is_native(tuning.quantization);
    words.push_back(std::string(name_of(tuning.quantization)) +
                    (leaves_experts ? " base, experts not packed" : " base"));
  }
  if (tuning.blocks_to_swap > 0) words.push_back(std::to_string(tuning.blocks_to_swap) + " blocks swapped");
  if (tuning.liger) words.emplace_back("Liger kernels");
  if (tuning.cut_cross_entropy) words.emplace_back("cut cross entropy");
  if (tuning.unsloth) words.emplace_back("Unsloth");
  if (!tuning.frozen.empty()) words.emplace_back("partly frozen");
  if (run.use_cache && training != nullptr) words.emplace_back("KV cache kept");
  if (run.padding) words.emplace_back("padded batch");
  if (training != nullptr && training->skipped_steps > 0) {
    words.push_back(training->skipped_steps == 1
                        ? "first step skipped"
                        : "first " + std::to_string(training->skipped_steps) + " steps skipped");
  }
  if (run.parallel.is_parallel()) {
    for (std::string& word : split_of(run.parallel)) words.push_back(std::move(word));
  }
  add_offloading(run.parallel, words);
  if (run.dropout) words.push_back("dropout " + format_exact(*run.dropout));
  if (run.expandable_segments) words.emplace_back("expandable segments");
  if (training != nullptr) add_job(*training, words);
  return words;
}

}  // namespace memcalc
