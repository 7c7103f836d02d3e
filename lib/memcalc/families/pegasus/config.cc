// config.json of Pegasus, as transformers 5.17 reads it: models/pegasus.
#include "memcalc/families/pegasus/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture pegasus(HfReader& config) {
  BartSpec spec;
  read_bart(config, {}, spec);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 1024);
  return spec;
}

constexpr Task kMeasured[] = {Task::kSeq2Seq};

}  // namespace

const Family kPegasus = {
    .model_type = "pegasus",
    .kind = FamilyKind::kEncoderDecoder,
    .read = pegasus,
    .build = build_pegasus,
    .size_keys = kSeq2SeqKeys,
    .measured = kMeasured,
    .special_tokens = {.begins = false, .has_decoder_start = true, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
};

}  // namespace memcalc::family
