// config.json of MiniMax-Text-01 and M1, as transformers 5.17 reads it: models/minimax.
#include "memcalc/families/minimax/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture minimax(HfReader& config) {
  MiniMaxSpec spec;
  read_decoder(config, {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072}, spec);
  if (config.json().has("sliding_window")) config.only_absent("sliding_window");
  spec.block_size = config.size({"block_size"}, 256);
  for (const std::string& type : mixer_types(config, "layer_types", spec.num_hidden_layers)) {
    spec.linear_layers.push_back(type == "linear_attention");
  }
  if (spec.linear_layers.empty()) {
    for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.linear_layers.push_back((i + 1) % 2 == 0);
  }
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 8, 2, spec.intermediate_size, spec);
  refuse_auxiliary_loss(config);
  refuse_router_noise(config);
  return spec;
}

}  // namespace

const Family kMiniMax = {
    .model_type = "minimax",
    .kind = FamilyKind::kDecoder,
    .read = minimax,
    .build = build_minimax,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .answers_questions = true,
};

}  // namespace memcalc::family
