// config.json of Pegasus, as transformers 5.17 reads it: models/pegasus.
#include "memcalc/families/pegasus/spec.h"

namespace memcalc::family {
namespace {}  // namespace

const Family kPegasus = {
    .model_type = "pegasus",
    .kind = FamilyKind::kEncoderDecoder,
    .read = bart,
    .build = build_pegasus,
    .size_keys = kSeq2SeqKeys,
    .measured = kSeq2SeqAlone,
    .special_tokens = {.begins = false, .has_decoder_start = true, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
    .skips_layers_at_random = true,
    .instructions_per_operator = 170,  // BART's, of whose layer its own is a copy
};

}  // namespace memcalc::family
