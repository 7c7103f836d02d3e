// What stands on the hidden states of a decoder: the head over the vocabulary and its loss as transformers writes them,
// Liger's and cut_cross_entropy's that never hold the logits, or TRL's that returns numbers of each token in their
// place. Covered by tests/measured/jobs_test.py.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/models/sequence_classifier.h"

namespace memcalc {

/// What is done to the logits before the loss.
enum class LogitsChange {
  kNone,
  kSoftcapped,            // Gemma: final_logit_softcapping
  kDivided,               // Granite: by logits_scaling
  kMultiplied,            // Cohere: by logit_scale
  kFloat32,               // Mamba-2, Nemotron-H: .float()
  kMultipliedSoftcapped,  // Muse Glimmer: by output_multiplier, then as Gemma
  kStatesDivided,         // MiniCPM 3: what lm_head gets, by logits_scaling
};

/// How a family's head differs from self.lm_head(hidden_states) and self.loss_function(logits, labels).
struct CausalLmHead {
  LogitsChange logits = LogitsChange::kNone;
  bool liger = false;                                  // lce_forward: in training the logits are never made
  bool unsloth = false;                                // fused_linear_cross_entropy: likewise
  bool loss_breaks_graph = false;                      // loss_function warns that it knows no loss of this class's name
  const std::vector<Tensor>* router_logits = nullptr;  // of mixtures of experts, where they were recorded
  std::int64_t experts_per_token = 0;
};

/// Sets loss and logits of `output`; of a batch with a fused head its `fused` numbers and the loss. A classifier lets
/// go of the hidden states.
void predict(const std::optional<SequenceClassifier>& classifier, const Linear& lm_head, Tensor& hidden_states,
             const Batch& batch, ModelOutput& output, CausalLmHead head = {});

}  // namespace memcalc
