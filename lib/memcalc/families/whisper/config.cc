// config.json of Whisper, as transformers 5.17 reads it: models/whisper.
#include "memcalc/families/whisper/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture whisper(HfReader& config) {
  WhisperSpec spec;
  read_bart(config, {.vocab_size = 51865, .d_model = 384, .layers = 4, .heads = 6, .ffn_dim = 1536, .dropout = 0.0},
            spec);
  spec.num_mel_bins = config.size({"num_mel_bins"}, 80);
  spec.max_source_positions = config.size({"max_source_positions"}, 1500);
  spec.max_position_embeddings = config.size({"max_target_positions"}, 448);
  config.only_flag("apply_spec_augment", false);
  return spec;
}

constexpr Task kWhisperMeasured[] = {Task::kSpeech};

}  // namespace

const Family kWhisper = {
    .model_type = "whisper",
    .kind = FamilyKind::kSpeech,
    .read = whisper,
    .build = build_whisper,
    .size_keys = with(kSeq2SeqKeys, 7, {"max_target_positions", ""}),
    .measured = kWhisperMeasured,
    .special_tokens = {.has_decoder_start = true},
    .dropout_is_module = false,
    .skips_layers_at_random = true,
    .instructions_per_operator = 155,
};

}  // namespace memcalc::family
