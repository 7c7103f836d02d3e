// A model that can be cut into the stages of a pipeline, as torch.distributed.pipelining's users cut theirs: modules
// are taken out of the whole model, the rest of it dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The modules of one stage.
struct ModelStage {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embeds = false;    // the first
  bool predicts = false;  // the last: final norm and head

  /// "model.layers.3.mlp.up_proj.weight": whether it belongs here.
  [[nodiscard]] bool holds(const std::string& parameter) const;
};

/// Layers shared out evenly, the earlier stages take one more where they do not divide. Pre: stages <= layers.
[[nodiscard]] std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t stages);

/// Stages of so many layers each, in their order.
[[nodiscard]] std::vector<ModelStage> model_stages(const std::vector<std::int64_t>& layers);

class PipelineStages {
 public:
  virtual ~PipelineStages() = default;
  /// Keeps the modules of these stages, whose parameters come in the stages' order; the others die with the result.
  [[nodiscard]] virtual std::shared_ptr<void> keep_stages(const std::vector<ModelStage>& stages) = 0;
  /// `x`: token ids [B, S] of the first stage, else hidden states [B, S, h]. Hidden states, or the last one's logits.
  [[nodiscard]] virtual Tensor forward_stage(const ModelStage& stage, const Tensor& x) = 0;
};

}  // namespace memcalc
