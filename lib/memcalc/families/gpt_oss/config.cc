// config.json of gpt-oss, as transformers 5.17 reads it: models/gpt_oss.
#include "memcalc/families/gpt_oss/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture gpt_oss(HfReader& config) {
  GptOssSpec spec;
  read_decoder(config,
               {.vocab_size = 201088,
                .hidden_size = 2880,
                .intermediate_size = 2880,
                .num_hidden_layers = 36,
                .num_attention_heads = 64,
                .num_key_value_heads = 8,
                .head_dim = 64,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", true);
  spec.yarn_positions = has_yarn_positions(config, true);
  read_window(config, spec, 128);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since the model has sliding layers");
  }
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (spec.sliding_layers.empty()) spec.sliding_layers = sliding_but_every(2, spec.num_hidden_layers);
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 128, 4, spec.intermediate_size, spec);
  refuse_auxiliary_loss(config);
  return spec;
}

constexpr std::string_view kGptOssPlan[] = {"lm_head"};

}  // namespace

const Family kGptOss = {
    .model_type = "gpt_oss",
    .kind = FamilyKind::kDecoder,
    .read = gpt_oss,
    .build = build_gpt_oss,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kGptOssPlan,
    .is_eager = [](const Behaviors&) { return true; },  // attention sinks; others are kernels of the hub
    .dropout_is_module = false,
    .has_router_loss = true,
    .has_stages = true,
};

}  // namespace memcalc::family
