// config.json of Dream, as its own configuration_dream.py reads it (Dream-org/Dream-v0-Base-7B; the copy that dllm
// trains, github.com/ZHZisZZ/dllm at ca176752, read 2026-11-29).
#include "memcalc/families/dream/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture dream(HfReader& config) {
  DreamSpec spec;
  read_decoder(
      config,
      {.vocab_size = 151936, .intermediate_size = 22016, .num_key_value_heads = 32, .max_position_embeddings = 32768},
      spec);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.head_dim = spec.hidden_size / spec.num_attention_heads;  // whatever head_dim says
  config.assume(
      "its class is remote code: its loss is that of the next token; trainers that weigh masked tokens by themselves "
      "make tensors of the same sizes");
  return spec;
}

}  // namespace

const Family kDream = {
    .model_type = "Dream",
    .kind = FamilyKind::kEncoder,
    .read = dream,
    .build = build_dream,
    .size_keys = kUnsizedHeadKeys,
    .tasks = kMaskedLmAlone,
    .measured = kMaskedLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
