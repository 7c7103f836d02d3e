// Granite's embedding, whose vectors are multiplied by a number.
#pragma once

#include "memcalc/models/module.h"

namespace memcalc {

/// embed_tokens(input_ids) * embedding_multiplier
struct MultipliedEmbedding : Embedding {
  using Embedding::Embedding;
  [[nodiscard]] Tensor operator()(const Tensor& input_ids) const {
    const Tensor inputs_embeds = Embedding::operator()(input_ids);
    return multiply_scalar(inputs_embeds);
  }
};

}  // namespace memcalc
