// config.json of dots.llm1, as transformers 5.17 reads it: models/dots1.
#include "memcalc/families/dots1/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// layer_types, else every layer from max_window_layers on, where there is a window.
std::vector<bool> sliding_layers(HfReader& config, const Dots1Spec& spec) {
  std::vector<bool> sliding = layer_types(config, spec.num_hidden_layers);
  if (!sliding.empty() || !spec.sliding_window) return sliding;
  const std::int64_t first = config.size({"max_window_layers"}, 62, {0, kSizeRange.max});
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) sliding.push_back(i >= first);
  return sliding;
}

Architecture dots1(HfReader& config) {
  Dots1Spec spec;
  read_decoder(config,
               {.vocab_size = 152064,
                .hidden_size = 4608,
                .intermediate_size = 10944,
                .num_hidden_layers = 62,
                .num_attention_heads = 32,
                .num_key_value_heads = 32,
                .max_position_embeddings = 2048},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_window(config, spec);
  spec.sliding_layers = sliding_layers(config, spec);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1408);
  // These have no default but None, with which the model cannot be built.
  const std::int64_t per_token = config.json().required_int("num_experts_per_tok", {1, 1023});
  const bool is_named = config.json().has("n_routed_experts");
  const std::int64_t count = config.json().required_int(is_named ? "n_routed_experts" : "num_local_experts", {1, 1023});
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, count, per_token, width, spec);
  spec.n_shared_experts = config.json().required_int("n_shared_experts", {1, 1023});
  spec.first_k_dense_replace = config.size({"first_k_dense_replace"}, 0, {0, kLayerRange.max});
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", false);
  return spec;
}

}  // namespace

const Family kDots1 = {
    .model_type = "dots1",
    .kind = FamilyKind::kDecoder,
    .read = dots1,
    .build = build_dots1,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kNormedDenseAndExpertsPlan,
    .dropout_is_module = false,
    .preset = R"("num_experts_per_tok": 6, "n_routed_experts": 128, "n_shared_experts": 2)",
    .told = "128 experts, of which a token takes 6, and 2 for all, as in dots.llm1",
};

}  // namespace memcalc::family
