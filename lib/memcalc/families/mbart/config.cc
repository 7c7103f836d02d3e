// config.json of mBART, as transformers 5.17 reads it: models/mbart.
#include "memcalc/families/mbart/spec.h"

namespace memcalc::family {
namespace {}  // namespace

const Family kMbart = {
    .model_type = "mbart",
    .kind = FamilyKind::kEncoderDecoder,
    .read = bart,
    .build = build_mbart,
    .size_keys = kSeq2SeqKeys,
    .measured = kSeq2SeqAlone,
    .special_tokens = {.has_decoder_start = false, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
    .skips_layers_at_random = true,
    .instructions_per_operator = 170,  // BART's, of whose layer its own is a copy
};

}  // namespace memcalc::family
