#include "memcalc/train/compile/compiled_model.h"

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/compiled_code.h"

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

void CompiledModel::record_graphs(std::vector<GraphInput> batch) {
  if (!program_.graph.handed_over.empty()) throw refusal(rules::kBrokenGraphRecorded);
  graphs_.emplace(tape_);
  batch_ = std::move(batch);
  for (KernelList* kernels : {&program_.forward_kernels, &program_.backward_kernels}) {
    for (Kernel& kernel : *kernels) kernel.node = &kReplayedCode;
  }
}

Tensor CompiledModel::forward() {
  if (graphs_ && graphs_->will_record(CudaGraphs::Part::kForward)) {
    for (const GraphInput& each : batch_) graphs_->copy_input(each.bytes, each.is_whole);
  }
  return std::move(call(tape_, program_, parameters_, {}, graphs_ ? &*graphs_ : nullptr).read.front());
}

}  // namespace memcalc::compile
