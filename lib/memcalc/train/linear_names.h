// Which linear layers peft and bitsandbytes leave alone, by their names.
#pragma once

#include <string_view>

namespace memcalc {

/// The output embeddings: get_output_embeddings() of transformers' models with a language-model head.
[[nodiscard]] inline bool is_output_embedding(std::string_view name) {
  for (const std::string_view head : {"lm_head", "embed_out", "proj_out", "generator_lm_head", "vocab_projector"}) {
    if (name == head) return true;
  }
  return name.ends_with(".decoder");
}

}  // namespace memcalc
