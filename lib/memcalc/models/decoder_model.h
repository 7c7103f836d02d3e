// A decoder and what stands on it: the last part of transformers' …ForCausalLM and …ForSequenceClassification, which
// each of its modeling files spells out. A family says how its own …Model goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "memcalc/models/causal_lm_head.h"
#include "memcalc/models/model.h"
#include "memcalc/models/sequence_classifier.h"

namespace memcalc {

class DecoderModel : public Model {
 public:
  /// The decoder, then its head and the loss.
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 protected:
  /// Throws Error(kUnsupported) for an activation function that is not modelled; empty: the family has its own.
  DecoderModel(const RunSpec& run, std::string_view activation);

  /// What differs between the heads of families.
  struct HeadSizes {
    std::int64_t width = 0;  // of the hidden states
    std::int64_t vocabulary = 0;
    std::int64_t labels = 0;  // of a classifier
    bool tied = false;        // lm_head shares the embedding's weight
    bool bias = false;        // of lm_head
  };
  /// lm_head, or the classifier where the task asks for one. `embedding`: what a tied head shares.
  void build_head(ModuleBuilder& b, const Embedding& embedding, const HeadSizes& sizes);

  /// …Model.forward: [batch, tokens, width], behind the last norm.
  [[nodiscard]] virtual Tensor decode(const Batch& batch, KeyValueCache* cache) const = 0;

  RunSpec run_;
  CausalLmHead head_;
  std::optional<SequenceClassifier> classifier_;
  Linear lm_head_;
};

}  // namespace memcalc
