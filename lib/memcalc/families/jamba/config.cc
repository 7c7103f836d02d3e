// config.json of Jamba, as transformers 5.17 reads it: models/jamba.
#include "memcalc/families/jamba/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

/// Every `period`-th layer from `offset` on.
std::vector<bool> every(HfReader& config, std::string_view period_key, std::int64_t period, std::string_view offset_key,
                        std::int64_t offset, std::int64_t layers) {
  const std::int64_t step = config.size({period_key}, period);
  const std::int64_t first = config.size({offset_key}, offset, {0, kLayerRange.max});
  if (first >= step) {
    throw config.json().error(offset_key, "found " + std::to_string(first) + "; accepted: less than " +
                                              std::string(period_key) + " (" + std::to_string(step) + ")");
  }
  std::vector<bool> chosen;
  for (std::int64_t i = 0; i < layers; ++i) chosen.push_back(i % step == first);
  return chosen;
}

Architecture jamba(HfReader& config) {
  JambaSpec spec;
  read_decoder(
      config,
      {.vocab_size = 65536, .intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 262144},
      spec);
  spec.linear_layers = every(config, "attn_layer_period", 8, "attn_layer_offset", 4, spec.num_hidden_layers);
  spec.linear_layers.flip();
  spec.dense_layers = every(config, "expert_layer_period", 2, "expert_layer_offset", 1, spec.num_hidden_layers);
  spec.dense_layers.flip();
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 16, 2, spec.intermediate_size, spec);
  if (spec.experts.count == 1) spec.dense_layers.assign(spec.dense_layers.size(), true);
  spec.state_size = config.size({"mamba_d_state"}, 16);
  spec.conv_kernel = config.size({"mamba_d_conv"}, 4);
  spec.mixer_width = checked_multiply(config.size({"mamba_expand"}, 2), spec.hidden_size);
  spec.conv_bias = config.flag("mamba_conv_bias", true);
  spec.projection_bias = config.flag("mamba_proj_bias", false);
  const bool named = config.json().has("mamba_dt_rank") && !config.json().is_string("mamba_dt_rank");
  spec.time_step_rank = named ? config.size({"mamba_dt_rank"}, 0) : (spec.hidden_size + 15) / 16;  // "auto"
  config.only_flag("use_mambapy", false);
  refuse_auxiliary_loss(config);
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  config.assume("without --seq 64 tokens are taken, not the trained context: this code runs its mixers token by token");
  return spec;
}

}  // namespace

const Family kJamba = {
    .model_type = "jamba",
    .kind = FamilyKind::kDecoder,
    .read = jamba,
    .build = build_jamba,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
