// A decoder and what stands on it: the last part of transformers' …ForCausalLM and …ForSequenceClassification, which
// each of its modeling files spells out. A family says how its own …Model goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

  /// `outputs` of a loop over blocks that return their attention weights beside the hidden states: the loop holds it
  /// until the next block has returned, and after the last one.
  struct BlockOutputs {
    Tensor hidden_states, returned, attn_weights;
  };
  /// `call(block, kept, weights)`: a block's forward on {hidden states, keywords...}, which sets its weights.
  template <typename Block, typename Call>
  [[nodiscard]] BlockOutputs run_blocks(const std::vector<Block>& blocks, Tensor hidden_states,
                                        const KeptTensors& keywords, KeyValueCache* cache, const Call& call) const {
    BlockOutputs outputs{.hidden_states = std::move(hidden_states), .returned = {}, .attn_weights = {}};
    for (const Block& block : blocks) {
      Tensor made;
      Byproducts byproducts(cache);
      byproducts.shared = {&made};
      Tensor result = checkpointed(
          run_, {outputs.hidden_states}, keywords,
          [&block, call, weights = &made](const KeptTensors& kept) { return call(block, kept, *weights); }, byproducts);
      outputs.attn_weights = std::move(made);
      outputs.returned = result;
      outputs.hidden_states = std::move(result);
    }
    return outputs;
  }

  RunSpec run_;
  CausalLmHead head_;
  std::optional<SequenceClassifier> classifier_;
  Linear lm_head_;
};

}  // namespace memcalc
