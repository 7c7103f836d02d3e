// The keys as spec/config_files/axolotl.cc reads them.
// MIRRORS(axolotl, "core/builders/base.py", "0.19.0")
#include "memcalc/plan/axolotl_settings.h"

#include <fmt/core.h>

#include "memcalc/base/error.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

std::string_view trainer_name(Optimizer optimizer) {
  for (const TrainerOptimizer& each : kTrainerOptimizers) {
    if (each.optimizer == optimizer) return each.name;
  }
  return "";
}

class Lines {
 public:
  void add(std::string_view key, std::string_view value) { text_ += fmt::format("{}: {}\n", key, value); }
  void add(std::string_view key, std::int64_t value) { add(key, std::to_string(value)); }
  void add_on(std::string_view key) { add(key, "true"); }
  [[nodiscard]] std::string text() const { return text_; }

 private:
  std::string text_;
};

void add_types(const RunSpec& run, Lines& yaml) {
  const bool is_tf32 = run.precision == Precision::kTf32;
  switch (run.precision) {
    case Precision::kAmpBf16: yaml.add("bf16", "true"); break;
    case Precision::kBf16: yaml.add("bf16", "full"); break;
    case Precision::kAmpFp16: yaml.add("fp16", "true"); break;
    case Precision::kFp16: yaml.add("float16", "true"); [[fallthrough]];
    case Precision::kFp32:
    case Precision::kTf32: yaml.add("bf16", "false"); break;
  }
  yaml.add("tf32", is_tf32 ? "true" : "false");
}

void add_adapter(const FineTuning& tuning, Lines& yaml) {
  if (!tuning.lora) return;
  const bool in_4bit = tuning.quantization == Quantization::kNf4 || tuning.quantization == Quantization::kNf4Double;
  yaml.add("adapter", in_4bit ? "qlora" : "lora");
  if (in_4bit) yaml.add_on("load_in_4bit");
  if (tuning.quantization == Quantization::kInt8) yaml.add_on("load_in_8bit");
  yaml.add("lora_r", tuning.lora->rank);
  yaml.add("lora_alpha", 2 * tuning.lora->rank);
  yaml.add("lora_dropout", format_exact(tuning.lora->dropout));
  if (tuning.lora->dora) yaml.add("peft_use_dora", "true");
  if (tuning.lora->in_base_dtype) yaml.add("peft_autocast_adapter_dtype", "false");
  if (tuning.lora->targets.empty()) {
    yaml.add_on("lora_target_linear");
  } else if (const std::string& first = tuning.lora->targets.front(); first.starts_with(kPatternPrefix)) {
    yaml.add("lora_target_modules", fmt::format("'{}'", first.substr(kPatternPrefix.size())));
  } else {
    yaml.add("lora_target_modules", fmt::format("[{}]", join(tuning.lora->targets)));
  }
}

void add_attention(Attention attention, Lines& yaml) {
  yaml.add_on(attention == Attention::kFlash   ? "flash_attention"
              : attention == Attention::kEager ? "eager_attention"
                                               : "sdp_attention");
}

void refuse_others(const RunSpec& run) {
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kUnsupported, std::string("axolotl: ") + why); };
  if (!run.trains()) refuse("it trains; this run is inference");
  if (run.parallel.gpus > 1) refuse("settings are written for one GPU");
  const Loop loop = run.training().loop;
  if (loop != Loop::kTrainer && loop != Loop::kTrlSft) refuse("settings are written for supervised training");
  const Quantization packing = run.fine_tuning.quantization;
  if (packing != Quantization::kNone && !run.fine_tuning.lora) refuse("packed weights are trained with adapters alone");
  if (is_prequantized(packing)) refuse("weights that were quantised beforehand have no key");
}

}  // namespace

std::string axolotl_settings(const ModelSpec& model, const RunSpec& run) {
  refuse_others(run);
  const Training& training = run.training();
  Lines yaml;
  yaml.add("base_model", model.reference.empty() ? model.name : model.reference);
  add_types(run, yaml);
  add_adapter(run.fine_tuning, yaml);
  yaml.add("sequence_len", run.sequence_length);
  yaml.add("sample_packing", "false");
  yaml.add("micro_batch_size", run.batch_size);
  yaml.add("gradient_accumulation_steps", training.accumulation_steps);
  if (const std::string_view name = trainer_name(training.optimizer); !name.empty()) yaml.add("optimizer", name);
  yaml.add("max_grad_norm", format_exact(training.max_grad_norm.value_or(0.0)));
  const bool checkpoints = run.checkpointing() != Checkpointing::kNone;
  yaml.add("gradient_checkpointing", checkpoints ? "true" : "false");
  if (checkpoints) {
    yaml.add("gradient_checkpointing_kwargs",
             fmt::format("{{use_reentrant: {}}}", run.checkpoints_reentrantly() ? "true" : "false"));
  }
  if (training.offload_activations) yaml.add_on("activation_offloading");
  add_attention(run.attention, yaml);
  if (run.fine_tuning.cut_cross_entropy) {
    yaml.add("plugins", "[axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]");
  }
  if (run.fine_tuning.liger) {
    yaml.add("plugins", "[axolotl.integrations.liger.LigerPlugin]");
    for (const char* key :
         {"liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_fused_linear_cross_entropy"}) {
      yaml.add_on(key);
    }
  }
  if (run.dataloader_workers > 0) {
    yaml.add("dataloader_num_workers", run.dataloader_workers);
    yaml.add("dataloader_prefetch_factor", run.prefetch_factor);
  }
  return yaml.text() + "datasets: []  # yours\n";
}

std::vector<std::string> beside_axolotl(const RunSpec& run) {
  std::vector<std::string> notes;
  if (!run.expandable_segments) {
    notes.emplace_back("axolotl sets expandable segments, with which a little less is reserved (--expandable)");
  }
  notes.emplace_back("axolotl may switch kernels of its own on for adapters, which keep less");
  const Quantization packing = run.fine_tuning.quantization;
  if (packing == Quantization::kNf4) notes.emplace_back("axolotl quantises the scales again (--quantize nf4-double)");
  if (trainer_name(run.training().optimizer).empty()) {
    notes.push_back("axolotl has no name for the optimizer " + std::string(name_of(run.training().optimizer)));
  }
  if (run.checkpointing() != Checkpointing::kNone && checkpointing_of(run) != "full") {
    notes.push_back("axolotl checkpoints every layer; " + checkpointing_of(run) + " has no key");
  }
  return notes;
}

}  // namespace memcalc
