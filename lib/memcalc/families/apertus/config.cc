// config.json of Apertus, as transformers 5.17 reads it: models/apertus.
#include "memcalc/families/apertus/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture apertus(HfReader& config) {
  ApertusSpec spec;
  read_decoder(
      config,
      {.vocab_size = 131072, .intermediate_size = 14336, .activation = "xielu", .max_position_embeddings = 65536},
      spec);
  if (spec.hidden_act == "xielu") {
    spec.hidden_act.clear();
    config.assume("xIELU is computed by transformers' own code, which the xielu package would take the place of");
  }
  spec.attention_bias = config.flag("attention_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  return spec;
}

constexpr std::string_view kApertusPlan[] = {"q_proj", "k_proj",  "v_proj",    "q_norm", "k_norm",
                                             "o_proj", "up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kApertus = {
    .model_type = "apertus",
    .kind = FamilyKind::kDecoder,
    .read = apertus,
    .build = build_apertus,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kApertusPlan,
    .dropout_is_module = false,
    .instructions_per_operator = 41,
};

}  // namespace memcalc::family
