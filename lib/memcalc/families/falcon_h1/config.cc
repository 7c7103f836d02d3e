// config.json of Falcon-H1, as transformers 5.17 reads it: models/falcon_h1.
#include "memcalc/families/falcon_h1/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

/// mamba_d_ssm is the mixer's width; without it mamba_expand times hidden_size.
Mamba2MixerSpec read_mixer(HfReader& config, std::int64_t hidden_size) {
  Mamba2MixerSpec mixer;
  const std::int64_t width = config.json().has("mamba_d_ssm") && config.json().is_null("mamba_d_ssm")
                                 ? config.size({"mamba_expand"}, 2) * hidden_size
                                 : config.size({"mamba_d_ssm"}, 1024);
  mixer.num_heads = config.size({"mamba_n_heads"}, 128);
  config.divides("mamba_n_heads", mixer.num_heads, "mamba_d_ssm", width);
  mixer.head_dim = width / mixer.num_heads;
  mixer.state_size = config.size({"mamba_d_state"}, 256);
  mixer.n_groups = config.size({"mamba_n_groups"}, 1);
  mixer.conv_kernel = config.size({"mamba_d_conv"}, 4);
  mixer.chunk_size = config.size({"mamba_chunk_size"}, 256);
  mixer.conv_bias = config.flag("mamba_conv_bias", true);
  mixer.projection_bias = config.flag("mamba_proj_bias", false);
  mixer.output_bias = config.flag("projectors_bias", false);
  mixer.has_norm = false;
  if (config.flag("mamba_rms_norm", false)) {
    throw config.json().error("mamba_rms_norm", "true is not modelled for falcon_h1; accepted: false",
                              ErrorCode::kUnsupported);
  }
  config.divides("mamba_n_groups", mixer.n_groups, "mamba_n_heads", mixer.num_heads);
  return mixer;
}

Architecture falcon_h1(HfReader& config) {
  FalconH1Spec spec;
  read_decoder(
      config,
      {.vocab_size = 128000, .intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 8192},
      spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  spec.mamba = read_mixer(config, spec.hidden_size);
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  return spec;
}

}  // namespace

const Family kFalconH1 = {
    .model_type = "falcon_h1",
    .kind = FamilyKind::kDecoder,
    .read = falcon_h1,
    .build = build_falcon_h1,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .instructions_per_operator = 58,
    .cut_cross_entropy = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
