// config.json of DeepSeek-V3.2 and GLM-5, as transformers 5.17 reads it: models/deepseek_v32, models/glm_moe_dsa.
#include <algorithm>
#include <string>

#include "memcalc/families/deepseek_v32/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// What both read, beside DeepSeek-V3's sizes and their defaults.
void read_sparse(HfReader& config, std::int64_t dense, std::int64_t heads, DeepseekV32Spec& spec) {
  if (!spec.latent.q_lora_rank) {
    throw config.json().error("q_lora_rank",
                              "null; accepted: a number, since the indexer reads the compressed queries");
  }
  spec.first_k_dense_replace = leading_dense_layers(
      config, spec.num_hidden_layers, config.size({"first_k_dense_replace"}, dense, {0, kLayerRange.max}));
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts", "num_experts"}, 256, 8, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.float32_correction = true;
  spec.index_n_heads = config.size({"index_n_heads"}, heads);
  spec.index_head_dim = config.size({"index_head_dim"}, 128);
  spec.index_topk = config.size({"index_topk"}, 2048);
  if (spec.index_head_dim <= spec.latent.qk_rope_head_dim) {
    throw config.json().error("index_head_dim", "found " + std::to_string(spec.index_head_dim) +
                                                    "; accepted: more than qk_rope_head_dim (" +
                                                    std::to_string(spec.latent.qk_rope_head_dim) + ")");
  }
}

Architecture deepseek_v32(HfReader& config) {
  DeepseekV32Spec spec;
  read_deepseek(config,
                {.vocab_size = 129280,
                 .hidden_size = 7168,
                 .intermediate_size = 18432,
                 .num_hidden_layers = 61,
                 .num_attention_heads = 128,
                 .num_key_value_heads = 128,
                 .max_position_embeddings = 4096},
                spec);
  read_sparse(config, 3, 64, spec);
  const ExpertGroups groups = read_groups(config, 8, 4, 2, spec.experts);
  spec.n_group = groups.n_group;
  spec.topk_group = groups.topk_group;
  return spec;
}

/// indexer_types, else index_topk_pattern, else every index_topk_freq-th layer from index_skip_topk_offset on has its
/// own indexer.
std::vector<bool> shared_indexers(HfReader& config, std::int64_t layers) {
  std::vector<bool> shared;
  const JsonObject& json = config.json();
  if (json.has("indexer_types") && !json.is_null("indexer_types")) {
    for (const std::string& type : json.optional_strings("indexer_types")) shared.push_back(type == "shared");
  } else if (const std::optional<std::string> pattern = json.nullable_string("index_topk_pattern")) {
    for (const char letter : *pattern) shared.push_back(letter == 'S');
  } else {
    const std::int64_t every = std::max<std::int64_t>(config.size({"index_topk_freq"}, 1, {0, kLayerRange.max}), 1);
    const std::int64_t first = every == 1 ? 0 : config.size({"index_skip_topk_offset"}, 2, {0, kLayerRange.max});
    for (std::int64_t i = 0; i < layers; ++i) {
      shared.push_back(std::max<std::int64_t>(i - first + 1, 0) % every != 0);
    }
  }
  if (static_cast<std::int64_t>(shared.size()) != layers || shared[0]) {
    throw json.error("indexer_types", "found " + std::to_string(shared.size()) +
                                          "; accepted: \"full\" or \"shared\" for each of " + std::to_string(layers) +
                                          " layers, \"full\" for the first");
  }
  return shared;
}

Architecture glm_moe_dsa(HfReader& config) {
  DeepseekV32Spec spec;
  read_deepseek(config,
                {.vocab_size = 154880,
                 .hidden_size = 6144,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 78,
                 .num_attention_heads = 64,
                 .num_key_value_heads = 64,
                 .max_position_embeddings = 202752},
                spec, glm_latent(2048));
  read_sparse(config, 3, 32, spec);
  take_groups(config, 1, 1, 2, spec);
  spec.index_interleaves = true;
  spec.shared_indexers = shared_indexers(config, spec.num_hidden_layers);
  return spec;
}

}  // namespace

const Family kDeepseekV32 = {
    .model_type = "deepseek_v32",
    .kind = FamilyKind::kDecoder,
    .read = deepseek_v32,
    .build = build_deepseek_v32,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kBothMlpsPlan,
    .dropout_is_module = false,
    .has_latent_attention = true,
    .compiled_whole_alone = true,
};

const Family kGlmMoeDsa = {
    .model_type = "glm_moe_dsa",
    .kind = FamilyKind::kDecoder,
    .read = glm_moe_dsa,
    .build = build_deepseek_v32,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kBothMlpsPlan,
    .dropout_is_module = false,
    .has_latent_attention = true,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
