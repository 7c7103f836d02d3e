// The head that tells where an answer begins and where it ends: transformers modeling_layers.py,
// GenericForQuestionAnswering, which encoders and older decoders spell out in their own files.
// MIRRORS(transformers, "modeling_layers.py", "5.17.0")
#pragma once

#include <optional>
#include <string_view>

#include "memcalc/models/model.h"

namespace memcalc {

/// Two numbers of each token: how likely an answer begins with it, and ends with it.
class SpanHead {
 public:
  SpanHead(ModuleBuilder& b, std::int64_t width, std::string_view name = "qa_outputs")
      : qa_outputs_(b, std::string(name), width, 2) {}

  /// Sets the loss, the starts as logits and the ends behind them.
  void forward(const Tensor& hidden_states, const Batch& batch, ModelOutput& output) const;

 private:
  Linear qa_outputs_;
};

/// The head where the run's task asks for one, else none.
[[nodiscard]] inline std::optional<SpanHead> span_head(ModuleBuilder& b, const RunSpec& run, std::int64_t width,
                                                       std::string_view name = "qa_outputs") {
  if (run.task != Task::kQuestionAnswering) return std::nullopt;
  return SpanHead(b, width, name);
}

}  // namespace memcalc
