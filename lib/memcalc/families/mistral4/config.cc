// config.json of Mistral 4's text model, as transformers 5.17 reads it: models/mistral4/configuration_mistral4.py.
// MIRRORS(transformers, "models/mistral4/configuration_mistral4.py", "5.17.0")
#include "memcalc/families/mistral4/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"

namespace memcalc::family {
namespace {

constexpr LatentAttentionSpec kMistral4Latent = {
    .q_lora_rank = 1024, .kv_lora_rank = 256, .qk_nope_head_dim = 64, .qk_rope_head_dim = 64, .v_head_dim = 128};

Architecture mistral4(HfReader& config) {
  Mistral4Spec spec;
  read_deepseek(config,
                {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 36,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 1048576},
                spec, kMistral4Latent);
  spec.yarn_positions = has_yarn_positions(config, true);
  spec.first_k_dense_replace = config.size({"first_k_dense_replace"}, 0, {0, kLayerRange.max});
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 128, 4, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.rope_interleave = config.flag("rope_interleave", true);
  return spec;
}

}  // namespace

const Family kMistral4 = {
    .model_type = "mistral4",
    .kind = FamilyKind::kDecoder,
    .read = mistral4,
    .build = build_mistral4,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .has_latent_attention = true,
};

}  // namespace memcalc::family
