// config.json of Phi-1 to 2, as transformers 5.17 reads it: models/phi.
#include "memcalc/families/phi/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture phi(HfReader& config) {
  PhiSpec spec;
  read_decoder(config,
               {.vocab_size = 51200,
                .hidden_size = 2048,
                .intermediate_size = 8192,
                .num_hidden_layers = 24,
                .activation = "gelu_new",
                .max_position_embeddings = 2048},
               spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.5, spec.head_dim);
  spec.qk_layernorm = config.flag("qk_layernorm", false);
  spec.resid_pdrop = config.probability("resid_pdrop", 0);
  spec.embd_pdrop = config.probability("embd_pdrop", 0);
  return spec;
}

constexpr std::string_view kPhiPlan[] = {"q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "lm_head"};

}  // namespace

const Family kPhi = {
    .model_type = "phi",
    .kind = FamilyKind::kDecoder,
    .read = phi,
    .build = build_phi,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kPhiPlan,
    .instructions_per_operator = 77,
    .fp8_layers = true,
};

}  // namespace memcalc::family
