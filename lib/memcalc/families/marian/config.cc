// config.json of Marian, as transformers 5.17 reads it: models/marian.
#include <string>

#include "memcalc/families/marian/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture marian(HfReader& config) {
  const BartSpec spec = bart_spec(config, {.vocab_size = 58101});
  config.only_flag("share_encoder_decoder_embeddings", true);
  if (config.nullable_size("decoder_vocab_size").value_or(spec.vocab_size) != spec.vocab_size) {
    throw config.json().error("decoder_vocab_size",
                              "found another size than vocab_size; accepted: " + std::to_string(spec.vocab_size) +
                                  ", since encoder and decoder share their embeddings");
  }
  return spec;
}

}  // namespace

const Family kMarian = {
    .model_type = "marian",
    .kind = FamilyKind::kEncoderDecoder,
    .read = marian,
    .build = build_marian,
    .size_keys = kSeq2SeqKeys,
    .measured = kSeq2SeqAlone,
    .special_tokens = {.begins = false, .has_decoder_start = true, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
    .skips_layers_at_random = true,
    .instructions_per_operator = 170,  // BART's, of whose layer its own is a copy
};

}  // namespace memcalc::family
