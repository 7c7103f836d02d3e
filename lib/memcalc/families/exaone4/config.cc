// config.json of EXAONE 4, as transformers 5.17 reads it: models/exaone4.
#include <algorithm>

#include "memcalc/families/exaone4/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture exaone4(HfReader& config) {
  Exaone4Spec spec;
  read_decoder(
      config,
      {.vocab_size = 102400, .intermediate_size = 16384, .num_key_value_heads = 32, .max_position_embeddings = 2048},
      spec);
  read_window(config, spec);
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (spec.sliding_layers.empty() && spec.sliding_window) {
    spec.sliding_layers = sliding_but_every(config.size({"sliding_window_pattern"}, 4), spec.num_hidden_layers);
  }
  const bool slides =
      std::find(spec.sliding_layers.begin(), spec.sliding_layers.end(), true) != spec.sliding_layers.end();
  if (!spec.sliding_window && (slides || spec.sliding_layers.empty())) {
    throw config.json().error("sliding_window", "null; accepted with it: layer_types that are all full_attention");
  }
  return spec;
}

}  // namespace

const Family kExaone4 = {
    .model_type = "exaone4",
    .kind = FamilyKind::kDecoder,
    .read = exaone4,
    .build = build_exaone4,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kNormedDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 53,
    .fp8_layers = true,
};

}  // namespace memcalc::family
