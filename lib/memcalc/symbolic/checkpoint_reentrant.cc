// torch/utils/checkpoint.py, CheckpointFunction (use_reentrant=True): the region runs without gradients; backward runs
// it again with them and calls backward() inside of backward().
#include <memory>

#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/host_work.h"

namespace memcalc {

namespace {

constexpr Operator kCheckpointFunction{"CheckpointFunctionBackward"};

void reentrant_backward(BackwardCall& call) {
  const auto& region = *static_cast<const ReentrantRegion*>(call.node.context);
  Tape& tape = call.tape;
  KeptTensors inputs;
  for (int i = 0; i < call.node.edge_count; ++i) {
    inputs.push_back(tape.detach(call.saved(i)));
    if (call.needs(i)) tape.require_gradient(inputs.back());
  }
  inputs.insert(inputs.end(), region.keywords.begin(), region.keywords.end());
  const bool recomputing_before = std::exchange(tape.recomputing, true);
  tape.grad_enabled = true;
  tape.autocast = region.autocast;
  record_host_work(tape, HostWork::kCheckpointBackward);
  Tensor output = region.run(inputs);
  tape.autocast.reset();
  tape.clear_cast_cache();
  tape.grad_enabled = false;
  tape.recomputing = recomputing_before;
  tape.backward(output, call.gradient());
  for (int i = 0; i < call.node.edge_count; ++i) {
    if (call.needs(i)) call.set(i, inputs[static_cast<std::size_t>(i)].impl()->grad);
  }
  inputs.clear();
}

}  // namespace

Tensor run_checkpointed_reentrant(const KeptTensors& kept, std::size_t positional_count,
                                  CheckpointFrame::Region region) {
  Tape& tape = kept.front().tape();
  std::array<const Tensor*, kMaxEdges> inputs{};
  int count = 0;
  for (std::size_t i = 0; i < positional_count && count < kMaxEdges; ++i) {
    if (kept[i].defined()) inputs[static_cast<std::size_t>(count++)] = &kept[i];
  }
  auto kept_region = std::make_shared<ReentrantRegion>();
  // The region still gets every argument in its place: undefined ones are those that the layer was not given.
  kept_region->autocast = tape.autocast;
  const std::size_t given = static_cast<std::size_t>(count);
  kept_region->keywords.assign(kept.begin() + static_cast<std::ptrdiff_t>(given), kept.end());
  kept_region->run = region;
  Node* node = tape.record(kCheckpointFunction, reentrant_backward, inputs.data(), count);
  if (node != nullptr) {
    node->context = kept_region.get();
    node->owner = kept_region;
    for (int i = 0; i < count; ++i) tape.save(*node, *inputs[static_cast<std::size_t>(i)]);
  }
  Tensor output;
  {
    const NoGrad no_grad(tape);
    record_host_work(tape, HostWork::kCheckpointForward);
    output = region(kept);
  }
  tape.set_history(node, output);
  return output;
}

}  // namespace memcalc
