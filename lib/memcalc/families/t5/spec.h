// T5, FLAN-T5 and mT5: transformers models/t5, models/mt5.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// T5, FLAN-T5 (models/t5) and mT5 (models/mt5): encoder-decoder with relative positions and a norm before each layer.
struct T5Spec {
  std::int64_t vocab_size = 0;
  std::int64_t d_model = 0;
  std::int64_t d_kv = 0;
  std::int64_t d_ff = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_decoder_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t relative_attention_num_buckets = 0;
  std::string dense_act_fn;  // what follows "gated-" in feed_forward_proj, or all of it
  bool is_gated_act = false;
  double dropout_rate = 0;
  bool scale_decoder_outputs = true;  // T5 1.0: before the head
  bool tie_word_embeddings = true;
  bool tied_by_transformers = false;  // the config says otherwise; releases before 5.0 followed it

  [[nodiscard]] std::int64_t trained_context() const { return 512; }  // of the paper; positions are relative
};

BuildFamily build_t5;
void t5_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kT5, kMt5;
}  // namespace family

}  // namespace memcalc
