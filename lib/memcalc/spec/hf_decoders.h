// Internal to spec/hf_*.cc: the readers of decoder families with rotary positions, and of OPT. As those in
// hf_config.cc, one function a family.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::hf {

/// What the rotary decoders share; the fallbacks that differ.
struct DecoderDefaults {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::optional<std::int64_t> num_key_value_heads;  // absent: as many as attention heads
  std::optional<std::int64_t> head_dim;             // absent: hidden_size / num_attention_heads
  std::optional<std::int64_t> fixed_head_dim;       // whatever config.json says
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  std::int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
};

void read_decoder(HfReader& config, const DecoderDefaults& defaults, RotaryDecoderSpec& spec);

/// layer_types, true for sliding ones, where config.json has them; else nothing.
[[nodiscard]] std::vector<bool> layer_types(HfReader& config, std::int64_t layers);

/// Every layer but each `pattern`-th is sliding.
[[nodiscard]] std::vector<bool> sliding_but_every(std::int64_t pattern, std::int64_t layers);

/// sliding_window, unless it is null.
void read_window(HfReader& config, RotaryDecoderSpec& spec, std::int64_t fallback = 4096);

[[nodiscard]] Architecture deepseek_v2(HfReader& config);
[[nodiscard]] Architecture deepseek_v3(HfReader& config);
[[nodiscard]] Architecture gemma(HfReader& config);
[[nodiscard]] Architecture gemma2(HfReader& config);
[[nodiscard]] Architecture gemma3_text(HfReader& config);
[[nodiscard]] Architecture gpt_neox(HfReader& config);
[[nodiscard]] Architecture gpt_oss(HfReader& config);
[[nodiscard]] Architecture llama(HfReader& config);
[[nodiscard]] Architecture mistral(HfReader& config);
[[nodiscard]] Architecture mixtral(HfReader& config);
[[nodiscard]] Architecture olmo2(HfReader& config);
[[nodiscard]] Architecture opt(HfReader& config);
[[nodiscard]] Architecture phi(HfReader& config);
[[nodiscard]] Architecture phi3(HfReader& config);
[[nodiscard]] Architecture qwen2(HfReader& config);
[[nodiscard]] Architecture qwen3(HfReader& config);
[[nodiscard]] Architecture qwen3_moe(HfReader& config);

}  // namespace memcalc::hf
