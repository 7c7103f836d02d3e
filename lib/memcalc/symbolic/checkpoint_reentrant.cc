// torch/utils/checkpoint.py, CheckpointFunction (use_reentrant=True): the region runs without gradients; backward runs
// it again with them and calls backward() inside of backward().
// MIRRORS(torch, "utils/checkpoint.py", "2.11.0")
#include <array>
#include <cstddef>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

constexpr Operator kCheckpointFunction{"CheckpointFunctionBackward"};

void record_region(Tape& tape, HostWork work) {
  const std::size_t before = tape.kernels.size();
  record_host_work(tape, work);
  if (tape.kernels.size() > before) tape.kernels.last()->node = &kReentrantRegion;
}

void reentrant_backward(BackwardCall& call) {
  const auto& region = call.payload<ReentrantRegion>();
  Tape& tape = call.tape;
  KeptTensors inputs;
  std::array<std::size_t, kMaxEdges> places{};  // of each edge's input among the arguments
  int edge = 0;
  for (const bool given : region.given) {
    if (given) {
      places[static_cast<std::size_t>(edge)] = inputs.size();
      inputs.push_back(tape.detach(call.saved(edge)));
      if (call.needs(edge)) tape.autograd.require_gradient(inputs.back());
      ++edge;
    } else {
      inputs.emplace_back();
    }
  }
  inputs.insert(inputs.end(), region.keywords.begin(), region.keywords.end());
  Tensor output;
  {
    const EnableGrad enable_grad(tape.modes);
    const Recomputing recomputing(tape.moment);
    const Autocasting autocasting(tape.modes.autocast, region.autocast);
    record_region(tape, HostWork::kCheckpointBackward);
    output = region.run(inputs);
  }
  tape.autograd.backward(output, call.gradient());
  for (int i = 0; i < call.node.edge_count; ++i) {
    if (call.needs(i)) call.set(i, inputs[places[static_cast<std::size_t>(i)]].impl()->grad);
  }
  inputs.clear();
}

}  // namespace

Tensor run_checkpointed_reentrant(const KeptTensors& kept, std::size_t positional_count,
                                  CheckpointFrame::Region region) {
  Tape& tape = kept.front().tape();
  std::array<const Tensor*, kMaxEdges> inputs{};
  int count = 0;
  ReentrantRegion kept_region;
  for (std::size_t i = 0; i < positional_count && count < kMaxEdges; ++i) {
    kept_region.given.push_back(kept[i].defined());
    if (kept[i].defined()) inputs[static_cast<std::size_t>(count++)] = &kept[i];
  }
  kept_region.autocast = tape.modes.autocast.dtype;
  kept_region.keywords.assign(kept.begin() + static_cast<std::ptrdiff_t>(kept_region.given.size()), kept.end());
  // Backward runs from the region's result into the graph of a keyword, which is not detached, once for each region.
  for (const Tensor& keyword : kept_region.keywords) {
    if (!keyword.defined() || !keyword.requires_grad() || keyword.impl()->grad_fn == kNoNode) continue;
    throw Error(ErrorCode::kUnsupported,
                "reentrant checkpoints of layers that get a tensor with a graph of its own by keyword: backward goes "
                "through that graph once a layer, and PyTorch stops at the second; accepted: --no-reentrant",
                "--reentrant");
  }
  kept_region.run = region;
  Node* node = tape.autograd.record(kCheckpointFunction, reentrant_backward, inputs.data(), count);
  if (node != nullptr) {
    node->payload.set(std::move(kept_region));
    for (int i = 0; i < count; ++i) tape.autograd.save(*node, *inputs[static_cast<std::size_t>(i)]);
  }
  Tensor output;
  {
    const NoGrad no_grad(tape.modes);
    record_region(tape, HostWork::kCheckpointForward);
    output = region(kept);
  }
  tape.autograd.set_history(node, output);
  return output;
}

}  // namespace memcalc
