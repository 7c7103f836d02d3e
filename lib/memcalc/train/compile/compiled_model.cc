#include "memcalc/train/compile/compiled_model.h"

namespace memcalc::compile {

CompiledModel::CompiledModel(Tape& tape, Autocast autocast, const Forward& forward) : tape_(tape) {
  program_ = trace(tape, autocast, {}, [&](const KeptTensors&) {
    ModelOutput output = forward();
    FunctionResults results{{output.loss}, {}, {output.logits}};
    output.past_key_values.for_each([&](const Tensor& tensor) { results.dropped.push_back(tensor); });
    results.dropped.push_back(output.encoder_last_hidden_state);
    for (Tensor& other : output.others) results.dropped.push_back(std::move(other));
    return results;
  });
  cut(program_, tape.device);
  parameters_ = trained_parameters(program_);
}

}  // namespace memcalc::compile
