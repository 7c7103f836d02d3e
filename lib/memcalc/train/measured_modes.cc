#include "memcalc/train/measured_modes.h"

#include "memcalc/spec/run_names.h"

namespace memcalc {

namespace {

bool trains(const RunSpec& run) { return run.trains(); }

template <Quantization kind, bool infers>
bool packs(const RunSpec& run) {
  return run.fine_tuning.quantization == kind && run.trains() != infers;
}

constexpr Mode kModes[] = {
    // Fine-tuning
    {"lora", [](const RunSpec& r) { return r.fine_tuning.lora.has_value(); }, true},
    {"lora dropout", [](const RunSpec& r) { return r.fine_tuning.lora && r.fine_tuning.lora->dropout > 0; }, true},
    {"dora", [](const RunSpec& r) { return r.fine_tuning.lora && r.fine_tuning.lora->dora; }, true},
    {"lora modules to save", [](const RunSpec& r) { return r.fine_tuning.lora && !r.fine_tuning.lora->saved.empty(); },
     true},
    {"lora dtype base",
     [](const RunSpec& r) {
       return r.fine_tuning.lora && r.fine_tuning.lora->in_base_dtype && is_half(weights_dtype_of(r));
     },
     true},
    {"quantize nf4", &packs<Quantization::kNf4, false>, true},
    {"quantize nf4-double", &packs<Quantization::kNf4Double, false>, true},
    {"quantize int8", &packs<Quantization::kInt8, false>, true},
    {"quantize fp8-cast", &packs<Quantization::kFp8Cast, false>, true},
    {"quantize fp8-scaled", &packs<Quantization::kFp8Scaled, false>, true},
    {"blocks to swap", [](const RunSpec& r) { return r.fine_tuning.blocks_to_swap > 0; }, true},
    {"quantize head", [](const RunSpec& r) { return r.fine_tuning.packs_head; }, true},
    {"quantised experts", [](const RunSpec& r) { return r.fine_tuning.packs_experts; }, true},
    {"bitsandbytes before 0.43.2",
     [](const RunSpec& r) {
       return r.fine_tuning.quantization != Quantization::kNone && r.profile.behaviors.keeps_packed_inputs;
     },
     false},
    {"prepare_model_for_kbit_training", [](const RunSpec& r) { return r.fine_tuning.prepares_for_kbit; }, true},
    {"freeze", [](const RunSpec& r) { return !r.fine_tuning.frozen.empty(); }, true},
    {"liger", [](const RunSpec& r) { return r.fine_tuning.liger; }, true},
    {"liger-kernel 0.8.1 and 0.8.2",
     [](const RunSpec& r) {
       return r.fine_tuning.liger && r.profile.behaviors.liger_loss == LigerLoss::kFloat32InPlace;
     },
     false},
    {"cut cross entropy", [](const RunSpec& r) { return r.fine_tuning.cut_cross_entropy; }, true},
    {"whole logits", [](const RunSpec& r) { return trains(r) && r.training().whole_logits; }, true},
    // Saving memory
    {"checkpointing full",
     [](const RunSpec& r) { return r.checkpointing() == Checkpointing::kFull && r.training().checkpoint_every == 1; },
     true},
    {"checkpointing every-N",
     [](const RunSpec& r) { return r.checkpointing() == Checkpointing::kFull && r.training().checkpoint_every > 1; },
     true},
    {"checkpointing selective", [](const RunSpec& r) { return r.checkpointing() == Checkpointing::kSelective; }, true},
    {"activation offload", [](const RunSpec& r) { return trains(r) && r.training().offload_activations; }, true},
    {"optimizer offload", [](const RunSpec& r) { return trains(r) && r.training().offload_optimizer; }, true},
    {"an optimizer within backward", [](const RunSpec& r) { return trains(r) && r.training().optimizer_in_backward; },
     true},
    {"gradient offload", [](const RunSpec& r) { return trains(r) && r.training().offload_gradients; }, true},
    {"expandable segments", [](const RunSpec& r) { return trains(r) && r.expandable_segments; }, true},
    {"compile", [](const RunSpec& r) { return r.compiles(); }, true},
    {"compile mode reduce-overhead", [](const RunSpec& r) { return r.records_graphs(); }, true},
    // Inference
    {"forward pass", [](const RunSpec& r) { return r.inference() && r.inference()->new_tokens == 0; }, true},
    {"generation", [](const RunSpec& r) { return r.inference() && r.inference()->new_tokens > 0; }, true},
    {"beam search", [](const RunSpec& r) { return r.inference() && r.inference()->beams > 1; }, true},
    {"several answers", [](const RunSpec& r) { return r.inference() && r.inference()->return_sequences > 1; }, true},
    {"expandable segments in inference", [](const RunSpec& r) { return !r.trains() && r.expandable_segments; }, true},
    {"inference with offloaded parameters",
     [](const RunSpec& r) { return !r.trains() && r.parallel.offload_parameters == OffloadTo::kHost; }, true},
    {"inference with quantize nf4", &packs<Quantization::kNf4, true>, true},
    {"inference with quantize nf4-double", &packs<Quantization::kNf4Double, true>, true},
    {"inference with quantize int8", &packs<Quantization::kInt8, true>, true},
    {"inference with quantize gptq4", &packs<Quantization::kGptq4, true>, false},
    {"inference with quantize gptq8", &packs<Quantization::kGptq8, true>, false},
    {"inference with quantize awq4", &packs<Quantization::kAwq4, true>, false},
    {"inference with quantize mxfp4", &packs<Quantization::kMxfp4, true>, true},
    {"inference with quantize fp8", &packs<Quantization::kFp8, true>, true},
};

}  // namespace

std::span<const Mode> modes() { return kModes; }

std::vector<std::string_view> unmeasured_modes(const RunSpec& run) {
  std::vector<std::string_view> names;
  for (const Mode& mode : kModes) {
    if (!mode.is_measured && mode.is_taken(run)) names.push_back(mode.name);
  }
  return names;
}

}  // namespace memcalc
