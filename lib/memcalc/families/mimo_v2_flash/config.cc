// config.json of MiMo-V2-Flash, as transformers 5.17 reads it: models/mimo_v2_flash. The hub's own keys
// (hybrid_layer_pattern, swa_…, moe_layer_freq) are those of its remote code; transformers' class does not read them.
#include "memcalc/families/mimo_v2_flash/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// int(head_dim * partial_rotary_factor) of each kind of layer, which must be the same here.
std::int64_t rotary_dim_of_both(const HfReader& config, std::int64_t head_dim) {
  constexpr double kFactor = 0.334;
  std::vector<double> factors;
  if (const std::optional<JsonObject> rope = config.json().nullable_object("rope_parameters")) {
    for (const std::string_view type : {"full_attention", "sliding_attention"}) {
      if (const std::optional<JsonObject> each = rope->nullable_object(type)) {
        factors.push_back(each->nullable_double("partial_rotary_factor", {0, 1}).value_or(kFactor));
      }
    }
  }
  if (factors.empty()) factors.push_back(kFactor);
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * factors.front());
  if (factors.back() != factors.front()) {
    throw config.json().error("rope_parameters", "partial_rotary_factor differs between full and sliding layers",
                              ErrorCode::kUnsupported);
  }
  if (dim < 2 || dim % 2 != 0) {
    throw config.json().error("rope_parameters", "rotates " + std::to_string(dim) + " of " + std::to_string(head_dim) +
                                                     " numbers of a head; accepted: an even number of 2 or more");
  }
  return dim;
}

Architecture mimo_v2_flash(HfReader& config) {
  MiMoV2FlashSpec spec;
  read_decoder(config,
               {.vocab_size = 152576,
                .intermediate_size = 16384,
                .num_hidden_layers = 48,
                .num_attention_heads = 64,
                .num_key_value_heads = 4,
                .head_dim = 192,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.v_head_dim = config.size({"v_head_dim"}, 128);
  spec.rotary_dim = rotary_dim_of_both(config, spec.head_dim);
  config.divides("num_key_value_heads", 2 * spec.num_key_value_heads, "num_attention_heads", spec.num_attention_heads);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 256, 8, width, spec);
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  read_window(config, spec, 128);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since the model has sliding layers");
  }
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (spec.sliding_layers.empty()) {
    spec.sliding_layers = sliding_but_every(6, spec.num_hidden_layers);
    spec.sliding_layers.front() = false;
  }
  const std::int64_t dense = leading_dense_layers(config, spec.num_hidden_layers, 1);
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.dense_layers.push_back(i < dense);
  return spec;
}

}  // namespace

const Family kMiMoV2Flash = {
    .model_type = "mimo_v2_flash",
    .kind = FamilyKind::kDecoder,
    .read = mimo_v2_flash,
    .build = build_mimo_v2_flash,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.ends = false},
    .tp_plan = kDenseAndExpertsPlan,
    .is_eager = [](const Behaviors&) { return true; },  // _supports_sdpa is False: sinks
    .dropout_is_module = false,
};

}  // namespace memcalc::family
