// config.json of ERNIE 4.5 with experts, as transformers 5.17 reads it: models/ernie4_5_moe.
#include "memcalc/families/ernie4_5_moe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture ernie4_5_moe(HfReader& config) {
  Ernie45MoeSpec spec;
  read_decoder(config,
               {.vocab_size = 103424,
                .hidden_size = 2560,
                .intermediate_size = 12288,
                .num_hidden_layers = 28,
                .num_attention_heads = 20,
                .num_key_value_heads = 4,
                .max_position_embeddings = 131072,
                .tie_word_embeddings = true},
               spec);
  spec.attention_dropout = 0;  // whatever config.json says
  spec.use_bias = config.flag("use_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1536);
  constexpr IntRange chosen = {1, 1023};
  spec.experts.count = config.size({"moe_num_experts", "num_experts"}, 64, chosen);
  spec.experts.per_token = config.size({"moe_k", "num_experts_per_tok"}, 6, {1, spec.experts.count});
  spec.experts.intermediate_size = width;
  config.check_parameter_count([&] {
    const std::int64_t expert = checked_multiply(3, linear_parameters(spec.hidden_size, width));
    return checked_multiply(checked_multiply(expert, spec.experts.count), spec.num_hidden_layers);
  });
  spec.moe_num_shared_experts = config.size({"moe_num_shared_experts"}, 2, {0, 1023});
  const std::int64_t first = config.size({"moe_layer_start_index"}, 1, {0, kLayerRange.max});
  const std::int64_t last = config.json().optional_int("moe_layer_end_index", {-1, kLayerRange.max}).value_or(-1);
  const std::int64_t step = config.size({"moe_layer_interval"}, 1);
  refuse_auxiliary_loss(config);
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
    spec.dense_layers.push_back((i + 1) % step != 0 || i < first || (last != -1 && i > last));
  }
  return spec;
}

}  // namespace

const Family kErnie45Moe = {
    .model_type = "ernie4_5_moe",
    .kind = FamilyKind::kDecoder,
    .read = ernie4_5_moe,
    .build = build_ernie4_5_moe,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDenseAndExpertsPlan,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
