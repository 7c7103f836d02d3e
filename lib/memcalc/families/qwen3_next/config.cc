// config.json of Qwen3-Next and Qwen3.5, as transformers 5.17 reads it: models/qwen3_next, models/qwen3_5,
// models/qwen3_5_moe.
#include "memcalc/families/qwen3_next/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

/// What all of them have beside the sizes of their decoder.
void read_hybrid(HfReader& config, Qwen35Spec& spec) {
  spec.attention_bias = config.flag("attention_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.25, spec.head_dim);
  spec.linear_layers = linear_but_every_interval(config, spec.num_hidden_layers);
  spec.delta = read_gated_delta_net(config);
  spec.dense_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), true);
  assume_torch_path(config, "flash-linear-attention and causal-conv1d");
}

void read_mixture(HfReader& config, std::int64_t experts, std::int64_t per_token, Qwen3NextSpec& spec) {
  const std::int64_t width = config.size({"moe_intermediate_size"}, 512);
  spec.experts = read_experts(config, {"num_experts"}, experts, per_token, width, spec);
  spec.shared_expert_intermediate_size = config.size({"shared_expert_intermediate_size"}, 512);
  refuse_auxiliary_loss(config);
}

/// mrope_section of rope_parameters: numbers of time's, height's and width's positions.
void read_grids(HfReader& config, Qwen35Spec& spec) {
  spec.mrope_section = {11, 11, 10};
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (!rope || !rope->has("mrope_section")) continue;
    const std::vector<std::int64_t> sections = rope->required_ints("mrope_section", kSizeRange);
    if (sections.size() != 3) throw rope->error_found("mrope_section", "three numbers");
    spec.mrope_section = {sections[0], sections[1], sections[2]};
    return;
  }
}

Architecture qwen3_next(HfReader& config) {
  Qwen3NextSpec spec;
  read_decoder(config,
               {.vocab_size = 151936,
                .hidden_size = 2048,
                .intermediate_size = 5632,
                .num_hidden_layers = 48,
                .num_attention_heads = 16,
                .num_key_value_heads = 2,
                .head_dim = 256,
                .max_position_embeddings = 32768},
               spec);
  read_hybrid(config, spec);
  read_mixture(config, 512, 10, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.dense_layers = read_dense_layers(config, spec.num_hidden_layers);
  return spec;
}

Architecture qwen3_5_text(HfReader& config) {
  Qwen35Spec spec;
  read_decoder(config,
               {.vocab_size = 248320,
                .hidden_size = 4096,
                .intermediate_size = 12288,
                .num_hidden_layers = 32,
                .num_attention_heads = 16,
                .num_key_value_heads = 4,
                .head_dim = 256,
                .max_position_embeddings = 32768},
               spec);
  read_hybrid(config, spec);
  read_grids(config, spec);
  spec.delta.projects_separately = true;
  return spec;
}

Architecture qwen3_5_moe_text(HfReader& config) {
  Qwen3NextSpec spec;
  read_decoder(config,
               {.vocab_size = 248320,
                .hidden_size = 2048,
                .intermediate_size = 512,  // it has no dense layers
                .num_hidden_layers = 40,
                .num_attention_heads = 16,
                .num_key_value_heads = 2,
                .head_dim = 256,
                .max_position_embeddings = 32768},
               spec);
  read_hybrid(config, spec);
  read_grids(config, spec);
  read_mixture(config, 256, 8, spec);
  spec.delta.projects_separately = true;
  spec.dense_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), false);
  return spec;
}

/// text_config alone, as AutoModelForCausalLM makes it.
Architecture text_of(HfReader& config, std::string_view type, ReadFamily& read) {
  const JsonObject text_config = config.json().required_object("text_config");
  HfReader text(text_config, std::string(type));
  Architecture architecture = read(text);
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  config.assume(std::string(type) +
                " alone (text_config), as AutoModelForCausalLM makes it: no vision tower, no images");
  return architecture;
}

Architecture qwen3_5(HfReader& config) { return text_of(config, "qwen3_5_text", qwen3_5_text); }
Architecture qwen3_5_moe(HfReader& config) { return text_of(config, "qwen3_5_moe_text", qwen3_5_moe_text); }

constexpr Family family_of(std::string_view model_type, ReadFamily* read, std::span<const Task> measured,
                           SizeKeysOfFamily size_keys = kDecoderKeys) {
  return {
      .model_type = model_type,
      .kind = FamilyKind::kDecoder,
      .read = read,
      .build = build_qwen3_next,
      .size_keys = size_keys,
      .measured = measured,
      .special_tokens = {.begins = false, .ends = false},
      .dropout_is_module = false,
      .compiled_whole_alone = true,
  };
}

}  // namespace

const Family kQwen3Next = family_of("qwen3_next", qwen3_next, kCausalLmAlone);
const Family kQwen35 = family_of("qwen3_5", qwen3_5, {}, {});
const Family kQwen35Moe = family_of("qwen3_5_moe", qwen3_5_moe, {}, {});
const Family kQwen35MoeText = family_of("qwen3_5_moe_text", qwen3_5_moe_text, kCausalLmAlone);
const Family kQwen35Text = family_of("qwen3_5_text", qwen3_5_text, kCausalLmAlone);

}  // namespace memcalc::family
