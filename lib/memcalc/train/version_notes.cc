#include "memcalc/train/version_notes.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/model_kind.h"

namespace memcalc {
namespace {

struct Felt {
  const ModelSpec& model;
  const RunSpec& run;
  const DeviceSpec& device;
};

bool shards_by_fsdp2(const Felt& f) { return f.run.parallel.data_parallel == DataParallel::kFsdp2; }
bool is_type(const Felt& f, std::string_view type) { return f.model.model_type == type; }

bool adapts_packed_experts(const Felt& f) {
  return f.run.fine_tuning.lora && has_experts(f.model) && f.run.profile.behaviors.experts != ExpertForm::kLoop;
}

/// In which runs a behaviour of this name can be felt.
struct Concern {
  std::string_view behavior;
  bool (*concerns)(const Felt& felt);
};

// Those that a rule refuses (compile.read, load.by-conversion, trl.trainers-read, deepseek.caches-latent,
// checkpointing.every-n) need no word.
constexpr Concern kConcerns[] = {
    {"sdpa.prefers-cudnn",
     [](const Felt& f) {
       return f.run.attention == Attention::kSdpa &&
              (is_of(f.device, CudaArchitecture::kHopper) || is_of(f.device, CudaArchitecture::kBlackwell));
     }},
    {"cublas.workspace", [](const Felt& f) { return architecture_of(f.device) >= CudaArchitecture::kBlackwell; }},
    {"indexing.open-slices", [](const Felt& f) { return f.run.trains() && is_of_transformers(f.model); }},
    {"checkpointing.inside-hooks",
     [](const Felt& f) { return shards_by_fsdp2(f) && f.run.checkpointing() != Checkpointing::kNone; }},
    {"gemma2.eager", [](const Felt& f) { return is_type(f, "gemma2"); }},
    {"clip.text-mask", [](const Felt& f) { return is_type(f, "clip"); }},
    {"experts.mixtral-rebinds", [](const Felt& f) { return is_type(f, "mixtral"); }},
    {"electra.eager", [](const Felt& f) { return is_type(f, "electra"); }},
    {"experts.form", [](const Felt& f) { return has_experts(f.model); }},
    {"gpt2.buffers", [](const Felt& f) { return is_type(f, "gpt2"); }},
    {"decoding.packs-queries",
     [](const Felt& f) {
       const Inference* inference = f.run.inference();
       return inference != nullptr && inference->new_tokens > 0 && f.run.padding;
     }},
    {"load.float32",
     [](const Felt& f) {
       const bool stored_in_half = f.model.checkpoint_dtype && is_half(*f.model.checkpoint_dtype);
       return is_of_transformers(f.model) && stored_in_half && !f.run.weights_dtype &&
              f.run.precision != Precision::kBf16 && f.run.precision != Precision::kFp16;
     }},
    {"fsdp2.upcasts", [](const Felt& f) { return f.run.uses_trainer() && shards_by_fsdp2(f); }},
    {"fsdp2.wraps-ends", [](const Felt& f) { return f.run.uses_trainer() && shards_by_fsdp2(f); }},
    {"kbit.empties-cache", [](const Felt& f) { return f.run.fine_tuning.prepares_for_kbit; }},
    {"experts.adapters", adapts_packed_experts},
    {"experts.adapter-names", adapts_packed_experts},
    {"sft.loss", [](const Felt& f) { return f.run.trains() && f.run.training().loop == Loop::kTrlSft; }},
    {"nf4.keeps-inputs",
     [](const Felt& f) {
       const Quantization kind = f.run.fine_tuning.quantization;
       return kind == Quantization::kNf4 || kind == Quantization::kNf4Double;
     }},
};

/// "4.57.6" of a program that was recorded from a class of transformers; else nothing.
std::string recorded_under(const ModelSpec& model) {
  constexpr std::string_view kBefore = ", transformers ";
  const std::size_t at = model.source.find(kBefore);
  if (!is_program(model) || !runs_transformers(model) || at == std::string::npos) return {};
  const std::size_t begin = at + kBefore.size();
  return model.source.substr(begin, model.source.find(',', begin) - begin);
}

bool is_felt(const Behavior& row, const Felt& felt) {
  const auto found = std::find_if(std::begin(kConcerns), std::end(kConcerns),
                                  [&](const Concern& c) { return c.behavior == row.name; });
  return found != std::end(kConcerns) && found->concerns(felt);
}

}  // namespace

void tell_about_versions(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, SymbolicRun& result) {
  if (run.parallel.framework() == Framework::kMegatron) return;
  const Profile today;
  const Felt felt{.model = model, .run = run, .device = device};
  for (const std::size_t i : differences(run.profile, today)) {
    const Behavior& row = behavior_table()[i];
    const Evidence evidence = evidence_of(row, run.profile.behaviors);
    if (evidence == Evidence::kMeasured || !is_felt(row, felt)) continue;
    result.assumptions.push_back(fmt::format("{} {}: {} is '{}' by {} alone ({}), not validated on a card",
                                             name_of(row.software), wheel_of(run.profile, row.software), row.name,
                                             row.values[row.get(run.profile.behaviors)],
                                             kEvidenceNames[static_cast<std::size_t>(evidence)], row.source));
  }
  const bool other_torch = run.profile.version(Software::kTorch) != today.version(Software::kTorch);
  if (other_torch || run.profile.other_cuda) {
    result.assumptions.push_back(
        fmt::format("torch {} follows its sources: its choice of an attention kernel, of cuBLAS's workspace and of "
                    "slices; all else "
                    "is as in 2.11 (not validated on a card)",
                    wheel_of(run.profile, Software::kTorch)));
  }
  const bool loops = has_experts(model) && run.profile.behaviors.experts == ExpertForm::kLoop;
  if (loops && !is_program(model)) {
    result.assumptions.emplace_back(
        "tokens choose experts as a router without training lets them: the fullest of a layer gets about twice the "
        "mean, "
        "the emptiest a fifth (models/token_shares.h)");
  }
  const std::string recorded = recorded_under(model);
  if (!recorded.empty() && recorded != text_of(run.profile.version(Software::kTransformers))) {
    result.assumptions.push_back(
        fmt::format("the program's forward pass is that of transformers {}, under which it was recorded; the Trainer, "
                    "checkpointing and loading are those of {}",
                    recorded, text_of(run.profile.version(Software::kTransformers))));
  }
}

}  // namespace memcalc
