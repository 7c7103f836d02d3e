// BART's class, and the encoder-decoders that were made of it: mBART, Pegasus, M2M-100, Marian. Their configurations
// have the same names, so that one spec holds them all; a plan says what differs in their forward passes.
#pragma once

#include <memory>

#include "memcalc/families/bart/spec.h"
#include "memcalc/models/model.h"

namespace memcalc {

enum class BartPositions {
  kLearned,   // BartLearnedPositionalEmbedding: two rows more than there are positions
  kSinusoid,  // PegasusSinusoidalPositionalEmbedding: a weight that is not trained
  kOfTokens,  // M2M100SinusoidalPositionalEmbedding: a buffer, read at positions that skip padding
};

/// …ForConditionalGeneration; the defaults are BART's.
struct BartPlan {
  BartPositions positions = BartPositions::kLearned;
  bool norm_before = false;              // of each half of a layer; else behind it
  bool embedding_norm = true;            // layernorm_embedding
  bool last_norm = false;                // layer_norm behind the layers of each stack
  bool keeps_mask_of_ones = false;       // the decoder calls its causal mask by another name
  bool overwrites_position_ids = false;  // by their embeddings
  bool logits_bias = true;               // final_logits_bias
  bool wraps_labels = false;             // the decoder starts with the last token of the labels
  bool caches_with_labels = false;       // use_cache stays as it is where labels are given
};

[[nodiscard]] std::unique_ptr<Model> build_bart(const BartSpec& spec, const RunSpec& run, ModuleBuilder& builder,
                                                const BartPlan& plan);

}  // namespace memcalc
