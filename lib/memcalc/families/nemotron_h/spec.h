// Nemotron-H: transformers models/nemotron_h.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Nemotron-H (models/nemotron_h): each layer is a mixer alone: Mamba-2, attention without positions,
/// an MLP, or experts without a gate beside an MLP that every token takes.
struct NemotronHSpec : RotaryDecoderSpec {
  enum class Mixer : std::uint8_t { kMamba, kAttention, kMlp, kExperts };

  std::vector<Mixer> layers;
  std::vector<bool> dense_layers;  // one for each layer: it has no experts
  ExpertsSpec experts;
  std::int64_t shared_expert_intermediate_size = 0;
  std::int64_t moe_latent_size = 0;  // of what the experts take and give; 0: hidden_size
  std::int64_t n_group = 0, topk_group = 0;
  bool norm_topk_prob = true;
  Mamba2MixerSpec mamba;
  std::string mamba_hidden_act;
  bool mlp_bias = false;
};

BuildFamily build_nemotron_h;
void nemotron_h_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kNemotronH;
}  // namespace family

}  // namespace memcalc
