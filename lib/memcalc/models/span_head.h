// The head that tells where an answer begins and where it ends: transformers modeling_layers.py,
// GenericForQuestionAnswering, which encoders and older decoders spell out in their own files. Covered by
// tests/unit/span_head_test.cc, tests/measured/program_test.cc and tests/measured/jobs_test.py.
// MIRRORS(transformers, "modeling_layers.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/models/model.h"

namespace memcalc {

/// Two numbers of each token: how likely an answer begins with it, and ends with it.
[[nodiscard]] inline Linear span_head(ModuleBuilder& b, std::int64_t width) { return {b, "qa_outputs", width, 2}; }

/// Where the loss is computed, whose variables die there: in the module's own forward, or in the function that
/// GenericForQuestionAnswering calls (loss/loss_utils.py, ForQuestionAnsweringLoss).
enum class SpanLoss : std::uint8_t { kInForward, kByFunction };

/// Sets the starts as logits, the ends behind them, and the loss of a batch that says where answers begin (its labels)
/// and where they end (the first of its others). Lets go of the hidden states.
void predict_spans(const Linear& head, Tensor& hidden_states, const Batch& batch, ModelOutput& output,
                   SpanLoss loss = SpanLoss::kInForward);

}  // namespace memcalc
