// config.json of Arcee's AFM, as transformers 5.17 reads it: models/arcee.
#include "memcalc/families/arcee/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture arcee(HfReader& config) {
  ArceeSpec spec;
  read_decoder(
      config, {.hidden_size = 2560, .intermediate_size = 18432, .activation = "relu2", .max_position_embeddings = 4096},
      spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  return spec;
}

constexpr std::string_view kArceePlan[] = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kArcee = {
    .model_type = "arcee",
    .kind = FamilyKind::kDecoder,
    .read = arcee,
    .build = build_arcee,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kArceePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 59,
};

}  // namespace memcalc::family
