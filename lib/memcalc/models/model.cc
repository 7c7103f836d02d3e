#include "memcalc/models/model.h"

#include <type_traits>

#include "memcalc/symbolic/checkpoint.h"

namespace memcalc {

double dropout_probability(const RunSpec& run, double configured) { return run.dropout.value_or(configured); }

std::unique_ptr<Model> build_model(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  ModuleBuilder builder(tape, dtype);
  std::unique_ptr<Model> model = std::visit(
      [&](const auto& architecture) {
        using T = std::decay_t<decltype(architecture)>;
        if constexpr (std::is_same_v<T, BertSpec>) {
          return build_bert(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, Gpt2Spec>) {
          return build_gpt2(architecture, run, builder);
        } else {
          return build_llama(architecture, run, builder);
        }
      },
      spec.architecture);
  model->parameters = std::move(builder.parameters);
  return model;
}

Tensor checkpointed(const RunSpec& run, const Tensor& hidden_states, std::function<Tensor(const Tensor&)> layer) {
  if (run.checkpointing == Checkpointing::kNone) return layer(hidden_states);
  Tape& tape = hidden_states.tape();
  const auto autocast = tape.autocast;
  const auto frame = std::make_shared<CheckpointFrame>([layer, autocast, hidden_states](Tape& tape_again) {
    // A second forward opens autocast regions of its own, with a weight cache of its own.
    tape_again.autocast = autocast;
    try {
      const Tensor result = layer(hidden_states);
    } catch (...) {
      tape_again.autocast.reset();
      tape_again.clear_cast_cache();
      throw;
    }
    tape_again.autocast.reset();
    tape_again.clear_cast_cache();
  });
  const CheckpointScope scope(tape, frame);
  return layer(hidden_states);
}

}  // namespace memcalc
