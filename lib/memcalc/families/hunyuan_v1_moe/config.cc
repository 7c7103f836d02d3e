// config.json of Hunyuan V1 with experts, as transformers 5.17 reads it: models/hunyuan_v1_moe.
#include <algorithm>

#include "memcalc/families/hunyuan_v1_moe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

/// A number, or a list of it for each layer.
std::int64_t same_of_all_layers(const HfReader& config, std::string_view key) {
  const NumberOrList read = number_or_list(config.json(), key, 1, {1, 1023});
  if (std::all_of(read.numbers.begin(), read.numbers.end(), [&](auto each) { return each == read.numbers.front(); })) {
    return read.numbers.front();
  }
  throw config.json().error(key, "differs between layers, which is not modelled; accepted: one number",
                            ErrorCode::kUnsupported);
}

Architecture hunyuan_v1_moe(HfReader& config) {
  HunyuanMoeSpec spec;
  read_decoder(config, {.vocab_size = 290943, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.experts = {.count = same_of_all_layers(config, "num_experts"),
                  .per_token = same_of_all_layers(config, "moe_topk"),
                  .intermediate_size = spec.intermediate_size};
  if (spec.experts.per_token > spec.experts.count) {
    throw config.json().error("moe_topk", "found " + std::to_string(spec.experts.per_token) +
                                              "; accepted: up to num_experts (" + std::to_string(spec.experts.count) +
                                              ")");
  }
  return spec;
}

}  // namespace

const Family kHunyuanV1Moe = {
    .model_type = "hunyuan_v1_moe",
    .kind = FamilyKind::kDecoder,
    .read = hunyuan_v1_moe,
    .build = build_hunyuan_moe,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
