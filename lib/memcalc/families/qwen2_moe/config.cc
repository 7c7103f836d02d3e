// config.json of Qwen1.5-MoE and Qwen2-MoE, as transformers 5.17 reads it: models/qwen2_moe.
#include "memcalc/families/qwen2_moe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/qwen_moe_defaults.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// Every other layer of those before max_window_layers, where use_sliding_window is set.
void read_qwen2_moe_window(HfReader& config, Qwen2MoeSpec& spec) {
  if (!config.flag("use_sliding_window", false)) return;
  read_window(config, spec);
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (!spec.sliding_layers.empty() || !spec.sliding_window) return;
  const std::int64_t first = config.size({"max_window_layers"}, 28, {0, kSizeRange.max});
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.sliding_layers.push_back(i % 2 == 0 && i < first);
}

Architecture qwen2_moe(HfReader& config) {
  Qwen2MoeSpec spec;
  read_decoder(config, qwen_moe_defaults(32768), spec);
  spec.qkv_bias = config.flag("qkv_bias", true);
  read_qwen2_moe_window(config, spec);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1408);
  spec.experts = read_experts(config, {"num_experts"}, 60, 4, width, spec);
  spec.shared_expert_intermediate_size = config.size({"shared_expert_intermediate_size"}, 5632);
  spec.norm_topk_prob = config.flag("norm_topk_prob", false);
  refuse_auxiliary_loss(config);
  spec.dense_layers = read_dense_layers(config, spec.num_hidden_layers);
  return spec;
}

}  // namespace

const Family kQwen2Moe = {
    .model_type = "qwen2_moe",
    .kind = FamilyKind::kDecoder,
    .read = qwen2_moe,
    .build = build_qwen2_moe,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .has_stages = true,
};

}  // namespace memcalc::family
