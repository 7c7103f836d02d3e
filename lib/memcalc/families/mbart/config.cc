// config.json of mBART, as transformers 5.17 reads it: models/mbart.
#include "memcalc/families/mbart/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture mbart(HfReader& config) {
  BartSpec spec;
  read_bart(config, {}, spec);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 1024);
  return spec;
}

constexpr Task kMeasured[] = {Task::kSeq2Seq};

}  // namespace

const Family kMbart = {
    .model_type = "mbart",
    .kind = FamilyKind::kEncoderDecoder,
    .read = mbart,
    .build = build_mbart,
    .size_keys = kSeq2SeqKeys,
    .measured = kMeasured,
    .special_tokens = {.has_decoder_start = false, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
};

}  // namespace memcalc::family
