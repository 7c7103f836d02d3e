// config.json of Phi-3 and Phi-4, as transformers 5.17 reads it: models/phi3.
#include "memcalc/families/phi3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture phi3(HfReader& config) {
  Phi3Spec spec;
  read_decoder(config,
               {.vocab_size = 32064, .hidden_size = 3072, .intermediate_size = 8192, .max_position_embeddings = 4096},
               spec);
  if (config.json().has("sliding_window")) read_window(config, spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 1.0, spec.head_dim);
  spec.resid_pdrop = config.probability("resid_pdrop", 0);
  return spec;
}

constexpr std::string_view kPhi3Plan[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kPhi3 = {
    .model_type = "phi3",
    .kind = FamilyKind::kDecoder,
    .read = phi3,
    .build = build_phi3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kPhi3Plan,
    .fp8_layers = true,
    .has_stages = true,
};

}  // namespace memcalc::family
