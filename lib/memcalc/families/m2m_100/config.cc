// config.json of M2M-100 and NLLB, as transformers 5.17 reads it: models/m2m_100.
#include <string>

#include "memcalc/families/m2m_100/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture m2m_100(HfReader& config) {
  const BartSpec spec =
      bart_spec(config, {.vocab_size = 128112, .attention_dropout = 0.1, .activation = "relu", .layerdrop = 0.05});
  if (spec.d_model < 4 || spec.d_model % 2 != 0) {
    throw config.json().error("d_model",
                              "found " + std::to_string(spec.d_model) +
                                  "; accepted: an even number of 4 or more (sines and cosines are made of it)");
  }
  return spec;
}

}  // namespace

const Family kM2M100 = {
    .model_type = "m2m_100",
    .kind = FamilyKind::kEncoderDecoder,
    .read = m2m_100,
    .build = build_m2m_100,
    .size_keys = kSeq2SeqKeys,
    .measured = kSeq2SeqAlone,
    .special_tokens = {.has_decoder_start = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
    .skips_layers_at_random = true,
    .instructions_per_operator = 170,  // BART's, of whose layer its own is a copy
};

}  // namespace memcalc::family
