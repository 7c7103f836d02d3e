// config.json of DeepSeek-OCR 2's text model, as transformers 5.17 reads it: models/deepseek_ocr2.
#include "memcalc/families/deepseek_ocr2/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture deepseek_ocr2(HfReader& config) {
  DeepseekOcr2Spec spec;
  read_decoder(config, {.vocab_size = 102400, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  const std::int64_t dense = config.size({"first_k_dense_replace"}, 0, {0, kLayerRange.max});
  spec.first_k_dense_replace = leading_dense_layers(config, spec.num_hidden_layers, dense);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1407);
  // Without a default: None, with which the model cannot run.
  const std::int64_t per_token = config.json().required_int("num_experts_per_tok", {1, 1023});
  spec.experts = read_experts(config, {"n_routed_experts", "num_experts"}, 64, per_token, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 2);
  read_greedy_groups(config, spec);
  return spec;
}

}  // namespace

const Family kDeepseekOcr2Text = {
    .model_type = "deepseek_ocr2_text",
    .kind = FamilyKind::kDecoder,
    .read = deepseek_ocr2,
    .build = build_deepseek_ocr2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDenseAndExpertsPlan,
    .dropout_is_module = false,
    .preset = R"("num_experts_per_tok": 6)",  // transformers has no default, and no option says it
    .told = "num_experts_per_tok = 6, as in DeepSeek-OCR",
};

}  // namespace memcalc::family
