// config.json of Qwen2, 2.5 and 3, as transformers 5.17 reads it: models/qwen2, models/qwen3.
#include "memcalc/families/qwen/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

constexpr DecoderDefaults kQwen = {
    .vocab_size = 151936, .intermediate_size = 22016, .num_key_value_heads = 32, .max_position_embeddings = 32768};

/// Qwen2 and Qwen3: sliding layers only where use_sliding_window is set, from max_window_layers on.
void read_qwen_window(HfReader& config, RotaryDecoderSpec& spec, std::vector<bool>& sliding) {
  if (!config.flag("use_sliding_window", false)) return;
  read_window(config, spec);
  sliding = layer_types(config, spec.num_hidden_layers);
  if (!sliding.empty() || !spec.sliding_window) return;
  const std::int64_t first = config.size({"max_window_layers"}, 28, {0, kSizeRange.max});
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) sliding.push_back(i >= first);
}

Architecture qwen2(HfReader& config) {
  Qwen2Spec spec;
  read_decoder(config, kQwen, spec);
  read_qwen_window(config, spec, spec.sliding_layers);
  return spec;
}

Architecture qwen3(HfReader& config) {
  Qwen3Spec spec;
  DecoderDefaults defaults = kQwen;
  defaults.head_dim = 128;
  read_decoder(config, defaults, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_qwen_window(config, spec, spec.sliding_layers);
  return spec;
}

}  // namespace

const Family kQwen2 = {
    .model_type = "qwen2",
    .kind = FamilyKind::kDecoder,
    .read = qwen2,
    .build = build_qwen2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 63,
    .liger = true,
    .sequence_parallel = true,
    .ulysses = true,
    .fp8_layers = true,
    .has_stages = true,
    .to_megatron = qwen2_to_megatron,
};

const Family kQwen3 = {
    .model_type = "qwen3",
    .kind = FamilyKind::kDecoder,
    .read = qwen3,
    .build = build_qwen3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kNormedDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 50,
    .liger = true,
    .ulysses = true,
    .float8 = true,
    .fp8_layers = true,
    .has_stages = true,
    .to_megatron = qwen3_to_megatron,
};

}  // namespace memcalc::family
