// The classifier that stands on a decoder in place of its language-model head: transformers modeling_layers.py,
// GenericForSequenceClassification, which GPT-2, OPT and GPT-NeoX spell out in their own files.
// MIRRORS(transformers, "modeling_layers.py", "5.17.0")
#pragma once

#include <cstdint>
#include <optional>

#include "memcalc/models/model.h"

namespace memcalc {

/// Scores every token and keeps the scores of each sequence's last token that is not padding.
class SequenceClassifier {
 public:
  enum class Score : std::uint8_t {
    kOneLayer,   // nn.Linear without bias
    kTwoLayers,  // nn.Sequential of nn.Linear, nn.ReLU, nn.Linear (Qwen's reward models)
  };

  SequenceClassifier(ModuleBuilder& b, std::int64_t width, std::int64_t num_labels, Score score)
      : hidden_(score == Score::kTwoLayers ? Linear(b, "score.0", width, width) : Linear()),
        score_(score == Score::kTwoLayers ? Linear(b, "score.2", width, num_labels)
                                          : Linear(b, "score", width, num_labels, false)) {}

  /// Sets logits and loss, and lets go of the hidden states.
  void forward(Tensor& hidden_states, const Batch& batch, ModelOutput& output) const;

 private:
  [[nodiscard]] Tensor scored(const Tensor& hidden_states) const;

  Linear hidden_;  // of two layers, the first
  Linear score_;
};

/// The classifier where the run's task asks for one, else none.
[[nodiscard]] inline std::optional<SequenceClassifier> sequence_classifier(
    ModuleBuilder& b, const RunSpec& run, std::int64_t width, std::int64_t num_labels,
    SequenceClassifier::Score score = SequenceClassifier::Score::kOneLayer) {
  if (run.task != Task::kSequenceClassification) return std::nullopt;
  return SequenceClassifier(b, width, num_labels, score);
}

}  // namespace memcalc
