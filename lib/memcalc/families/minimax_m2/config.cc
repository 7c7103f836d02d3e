// config.json of MiniMax-M2, as transformers 5.17 reads it: models/minimax_m2.
#include "memcalc/families/minimax_m2/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture minimax_m2(HfReader& config) {
  MiniMaxM2Spec spec;
  read_decoder(config,
               {.vocab_size = 200064,
                .hidden_size = 3072,
                .intermediate_size = 1536,
                .num_hidden_layers = 62,
                .num_attention_heads = 48,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 196608},
               spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 1, spec.head_dim);  // the key rotary_dim is not read
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 256, 8, spec.intermediate_size, spec);
  refuse_auxiliary_loss(config);
  refuse_router_noise(config);
  return spec;
}

}  // namespace

const Family kMiniMaxM2 = {
    .model_type = "minimax_m2",
    .kind = FamilyKind::kDecoder,
    .read = minimax_m2,
    .build = build_minimax_m2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .has_stages = true,
};

}  // namespace memcalc::family
