// config.json of Mixtral, as transformers 5.17 reads it: models/mixtral.
#include "memcalc/families/mixtral/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture mixtral(HfReader& config) {
  MixtralSpec spec;
  read_decoder(config, {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072}, spec);
  if (config.json().has("sliding_window")) read_window(config, spec);
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 8, 2, spec.intermediate_size, spec);
  refuse_auxiliary_loss(config);
  refuse_router_noise(config);
  return spec;
}

constexpr Renaming kMixtralRenamings[] = {{".block_sparse_moe.", ".mlp."}};

}  // namespace

const Family kMixtral = {
    .model_type = "mixtral",
    .kind = FamilyKind::kDecoder,
    .read = mixtral,
    .build = build_mixtral,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .renamings = kMixtralRenamings,
    .loads_by_checkpoint_names = true,
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 61,
    .has_router_loss = true,
    .fp8_layers = true,
    .has_stages = true,
    .loops_over_experts = true,
    .to_megatron = mixtral_to_megatron,
};

}  // namespace memcalc::family
