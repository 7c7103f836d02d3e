// config.json of the mixtures of experts: transformers models/{mixtral,qwen3_moe,gpt_oss,deepseek_v2,deepseek_v3}/
// configuration_*.py (5.17). Parts that transformers' models do not use (auxiliary losses by sequence, the layout of
// expert parallelism, multi-token prediction) are not read.
#include <array>
#include <string>
#include <string_view>

#include "memcalc/spec/hf_decoders.h"

namespace memcalc::hf {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

ExpertsSpec read_experts(HfReader& config, std::initializer_list<std::string_view> count_names, std::int64_t count,
                         std::int64_t per_token, std::int64_t intermediate_size, const RotaryDecoderSpec& spec) {
  constexpr IntRange range = {1, 1023};  // torch's grouped_mm takes fewer than 1024 groups
  ExpertsSpec experts;
  experts.count = config.size(count_names, count, range);
  experts.per_token = config.size({"num_experts_per_tok"}, per_token, range);
  experts.intermediate_size = intermediate_size;
  if (experts.per_token > experts.count) {
    throw config.json().error("num_experts_per_tok", "found " + text(experts.per_token) + "; accepted: up to " +
                                                         std::string(*count_names.begin()) + " (" +
                                                         text(experts.count) + ")");
  }
  config.check_parameter_count([&] {
    const std::int64_t expert = checked_multiply(3, linear_parameters(spec.hidden_size, intermediate_size));
    return checked_multiply(checked_multiply(expert, experts.count), spec.num_hidden_layers);
  });
  return experts;
}

/// The router's auxiliary loss is off by default.
void refuse_auxiliary_loss(const HfReader& config) { config.only_flag("output_router_logits", false); }

/// rope_type of rope_parameters, or of its older name rope_scaling, where that may be called type.
bool has_yarn_positions(const HfReader& config, bool fallback) {
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (!rope) continue;
    for (const std::string_view key : {"rope_type", "type"}) {
      if (const std::optional<std::string> type = rope->nullable_string(key)) return *type == "yarn";
    }
    return false;
  }
  return fallback;
}

/// What V2 and V3 share beside the numbers of their defaults.
void read_deepseek(HfReader& config, const DecoderDefaults& usual, std::int64_t dense_layers, DeepseekSpec& spec) {
  LatentAttentionSpec& latent = spec.latent;
  latent.kv_lora_rank = config.size({"kv_lora_rank"}, 512);
  latent.qk_nope_head_dim = config.size({"qk_nope_head_dim"}, 128);
  latent.qk_rope_head_dim = config.size({"qk_rope_head_dim"}, 64);
  latent.v_head_dim = config.size({"v_head_dim"}, 128);
  if (!config.json().is_null("q_lora_rank")) {
    latent.q_lora_rank = config.size({"q_lora_rank"}, 1536);
  }
  DecoderDefaults defaults = usual;
  defaults.fixed_head_dim = latent.qk_rope_head_dim;
  read_decoder(config, defaults, spec);
  if (spec.num_key_value_heads != spec.num_attention_heads) {
    throw config.json().error("num_key_value_heads", "found " + text(spec.num_key_value_heads) +
                                                         "; accepted: " + text(spec.num_attention_heads) +
                                                         " (num_attention_heads), since latent attention makes keys "
                                                         "and values for every head");
  }
  spec.attention_bias = config.flag("attention_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  spec.first_k_dense_replace = config.size({"first_k_dense_replace"}, dense_layers, {0, kLayerRange.max});
}

/// n_group groups of experts, of which a token takes topk_group.
void read_groups(HfReader& config, std::int64_t groups, std::int64_t chosen, std::int64_t fewest, DeepseekSpec& spec) {
  spec.n_group = config.size({"n_group"}, groups);
  spec.topk_group = config.size({"topk_group"}, chosen);
  config.divides("n_group", spec.n_group, "n_routed_experts", spec.experts.count);
  if (spec.experts.count / spec.n_group < fewest) {
    throw config.json().error("n_group", "leaves " + text(spec.experts.count / spec.n_group) +
                                             " experts for each group; accepted: a number that leaves " + text(fewest) +
                                             " or more");
  }
  if (spec.topk_group > spec.n_group) {
    throw config.json().error(
        "topk_group", "found " + text(spec.topk_group) + "; accepted: up to n_group (" + text(spec.n_group) + ")");
  }
}

}  // namespace

Architecture mixtral(HfReader& config) {
  MixtralSpec spec;
  read_decoder(config, {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072}, spec);
  if (config.json().has("sliding_window")) read_window(config, spec);
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 8, 2, spec.intermediate_size, spec);
  refuse_auxiliary_loss(config);
  if (config.json().optional_double("router_jitter_noise", {0, 1}).value_or(0) != 0) {
    throw config.json().error("router_jitter_noise", "noise before the router is not modelled; accepted: 0",
                              ErrorCode::kUnsupported);
  }
  return spec;
}

Architecture qwen3_moe(HfReader& config) {
  Qwen3MoeSpec spec;
  read_decoder(config,
               {.vocab_size = 151936,
                .hidden_size = 2048,
                .intermediate_size = 6144,
                .num_hidden_layers = 24,
                .num_key_value_heads = 4,
                .max_position_embeddings = 32768},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  if (config.flag("use_sliding_window", false)) read_window(config, spec);
  const std::int64_t step = config.size({"decoder_sparse_step"}, 1);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 768);
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 128, 8, width, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", false);
  refuse_auxiliary_loss(config);
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.dense_layers.push_back((i + 1) % step != 0);
  if (config.json().has("mlp_only_layers") && !config.json().is_null("mlp_only_layers")) {
    for (const std::int64_t layer : config.json().required_ints("mlp_only_layers", {0, kLayerRange.max})) {
      if (layer < spec.num_hidden_layers) spec.dense_layers[static_cast<std::size_t>(layer)] = true;
    }
  }
  return spec;
}

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

Architecture deepseek_v2(HfReader& config) {
  DeepseekV2Spec spec;
  read_deepseek(config, {.vocab_size = 102400, .intermediate_size = 11008, .max_position_embeddings = 2048},
                /*dense_layers=*/0, spec);
  spec.mlp_bias = config.flag("mlp_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1407);
  // Without a default: None, with which the model cannot run.
  const std::int64_t per_token = config.json().required_int("num_experts_per_tok", {1, 1023});
  spec.experts = read_experts(config, {"n_routed_experts", "num_experts"}, 64, per_token, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 2);
  constexpr std::array<std::string_view, 2> methods = {"greedy", "group_limited_greedy"};
  const std::string method = config.json().optional_choice("topk_method", methods).value_or("greedy");
  if (method == "group_limited_greedy") {
    spec.n_group = config.json().required_int("n_group", {1, 1023});
    read_groups(config, spec.n_group, config.json().required_int("topk_group", {1, 1023}), 1, spec);
  }
  return spec;
}

Architecture deepseek_v3(HfReader& config) {
  DeepseekV3Spec spec;
  read_deepseek(config,
                {.vocab_size = 129280,
                 .hidden_size = 7168,
                 .intermediate_size = 18432,
                 .num_hidden_layers = 61,
                 .num_attention_heads = 128,
                 .num_key_value_heads = 128,
                 .max_position_embeddings = 4096},
                /*dense_layers=*/3, spec);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 256, 8, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  read_groups(config, 8, 4, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.rope_interleave = config.flag("rope_interleave", true);
  return spec;
}

}  // namespace memcalc::hf
