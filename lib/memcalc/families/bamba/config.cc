// config.json of Bamba, as transformers 5.17 reads it: models/bamba.
#include "memcalc/families/bamba/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

Architecture bamba(HfReader& config) {
  BambaSpec spec;
  read_decoder(
      config,
      {.vocab_size = 128000, .intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 262144},
      spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.linear_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), true);
  if (config.json().has("attn_layer_indices") && !config.json().is_null("attn_layer_indices")) {
    for (const std::int64_t layer : config.json().required_ints("attn_layer_indices", {0, kLayerRange.max})) {
      if (layer < spec.num_hidden_layers) spec.linear_layers[static_cast<std::size_t>(layer)] = false;
    }
  }
  spec.rotary_dim = spec.head_dim / 4 * 2;  // transformers sets partial_rotary_factor to 0.5 whatever config.json says
  spec.mamba = read_mamba_d(config, spec.hidden_size);
  if (config.json().nullable_double("z_loss_coefficient", {0, 1e9}).value_or(0) > 0) {
    throw config.json().error("z_loss_coefficient", "the loss of the logits' size is not modelled; accepted: 0",
                              ErrorCode::kUnsupported);
  }
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  return spec;
}

}  // namespace

const Family kBamba = {
    .model_type = "bamba",
    .kind = FamilyKind::kDecoder,
    .read = bamba,
    .build = build_bamba,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
