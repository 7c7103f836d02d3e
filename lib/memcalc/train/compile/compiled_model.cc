#include "memcalc/train/compile/compiled_model.h"

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/compiled_code.h"

namespace memcalc::compile {

bool compiles_again(const RunSpec& run, const Model& model) {
  if (!run.compiles() || run.training().compiled_parts != CompiledParts::kModel) return false;
  const bool is_of_transformers = !model.random_labels;  // torchvision's networks and recorded ones have them
  return run.task == Task::kSequenceClassification || (run.task == Task::kImageClassification && is_of_transformers);
}

CompiledModel::CompiledModel(Tape& tape, Autocast autocast, bool again, const Forward& forward) : tape_(tape) {
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
  program_.compiles_again = again;
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
