// config.json of Nemotron-H, as transformers 5.17 reads it: models/nemotron_h.
#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/families/nemotron_h/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

using Mixer = NemotronHSpec::Mixer;

Mixer mixer_of(const HfReader& config, char letter) {
  switch (letter) {
    case 'M': return Mixer::kMamba;
    case '*': return Mixer::kAttention;
    case '-': return Mixer::kMlp;
    case 'E': return Mixer::kExperts;
    default: break;
  }
  throw config.json().error("hybrid_override_pattern",
                            std::string("'") + letter + "' is no kind of layer; accepted: M, *, - and E");
}

void read_nemotron_experts(HfReader& config, NemotronHSpec& spec) {
  const std::int64_t width = config.size({"moe_intermediate_size"}, 7688);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 8, 2, width, spec);
  spec.shared_expert_intermediate_size = config.size({"moe_shared_expert_intermediate_size"}, 7688);
  spec.moe_latent_size = config.nullable_size("moe_latent_size").value_or(0);
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
}

/// layers_block_type, of which layer_types is another name, else hybrid_override_pattern. num_hidden_layers is how long
/// they are, whatever config.json says.
std::vector<Mixer> read_layers(HfReader& config) {
  std::vector<Mixer> layers;
  for (const std::string_view key : {"layers_block_type", "layer_types"}) {
    if (!config.json().has(key) || config.json().is_null(key)) continue;
    const auto count = static_cast<std::int64_t>(config.json().optional_strings(key).size());
    for (const std::string& type : mixer_types(config, key, count, {"mlp", "moe"})) {
      layers.push_back(type == "mlp"                ? Mixer::kMlp
                       : type == "moe"              ? Mixer::kExperts
                       : type == "linear_attention" ? Mixer::kMamba
                                                    : Mixer::kAttention);
    }
    return layers;
  }
  for (const char letter : config.json().required_string("hybrid_override_pattern")) {
    layers.push_back(mixer_of(config, letter));
  }
  return layers;
}

Architecture nemotron_h(HfReader& config) {
  NemotronHSpec spec;
  read_decoder(config,
               {.vocab_size = 131072,
                .hidden_size = 4096,
                .intermediate_size = 21504,
                .num_hidden_layers = 4,  // as many as are named
                .num_attention_heads = 32,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .activation_key = "mlp_hidden_act",
                .activation = "relu2",
                .max_position_embeddings = 4096},
               spec);
  spec.layers = read_layers(config);
  if (spec.layers.empty()) throw config.json().error("hybrid_override_pattern", "names no layer");
  spec.num_hidden_layers = static_cast<std::int64_t>(spec.layers.size());
  for (const Mixer mixer : spec.layers) spec.dense_layers.push_back(mixer != Mixer::kExperts);
  spec.mlp_bias = config.flag("mlp_bias", false);
  if (std::find(spec.layers.begin(), spec.layers.end(), Mixer::kExperts) != spec.layers.end()) {
    read_nemotron_experts(config, spec);
  }
  spec.mamba_hidden_act = config.activation("mamba_hidden_act", "silu");
  Mamba2MixerSpec& mamba = spec.mamba;
  mamba.num_heads = config.size({"mamba_num_heads"}, 128);
  mamba.head_dim = config.size({"mamba_head_dim"}, 64);
  mamba.state_size = config.size({"ssm_state_size"}, 128);
  mamba.n_groups = config.size({"mamba_n_groups", "n_groups"}, 8);
  mamba.conv_kernel = config.size({"mamba_d_conv", "conv_kernel"}, 4);
  mamba.chunk_size = config.size({"mamba_chunk_size", "chunk_size"}, 128);
  mamba.conv_bias = config.flag(config.json().has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias", true);
  mamba.projection_bias = config.flag("use_bias", false);
  mamba.output_bias = mamba.projection_bias;
  mamba.norm_by_group = true;
  config.divides("n_groups", mamba.n_groups, "mamba_num_heads", mamba.num_heads);
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  return spec;
}

}  // namespace

const Family kNemotronH = {
    .model_type = "nemotron_h",
    .kind = FamilyKind::kDecoder,
    .read = nemotron_h,
    .build = build_nemotron_h,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
    .to_megatron = nemotron_h_to_megatron,
};

}  // namespace memcalc::family
