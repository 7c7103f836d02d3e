// config.json of Granite's mixtures of experts, as transformers 5.17 reads it: models/granitemoe.
#include "memcalc/families/granitemoe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture granitemoe(HfReader& config) {
  refuse_auxiliary_loss(config);
  GraniteMoeSpec spec;
  read_decoder(config, {.intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.experts = read_experts(config, {"num_local_experts"}, 8, 2, spec.intermediate_size, spec);
  return spec;
}

}  // namespace

const Family kGraniteMoe = {
    .model_type = "granitemoe",
    .kind = FamilyKind::kDecoder,
    .read = granitemoe,
    .build = build_granitemoe,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .instructions_per_operator = 59,
};

}  // namespace memcalc::family
