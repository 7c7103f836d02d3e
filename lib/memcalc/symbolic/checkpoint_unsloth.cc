// MIRRORS(unsloth_zoo, "gradient_checkpointing.py", "2026.10.9")
#include <array>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {

constexpr Operator kUnslothCheckpoint{"UnslothCheckpointFunctionBackward"}, kInputBuffer{"unsloth::gpu_buffer"};
constexpr Bytes kLeastOffloaded = 2 * kMiB;  // MINIMUM_SIZE
constexpr Bytes kFirstBuffer = 2 * kMiB;     // INITIAL_GPU_BUFFER_SIZE of 16-bit numbers

struct OffloadedRegion {
  CheckpointFrame::Region run;
  std::optional<DType> autocast;
  Shape shape;
  DType dtype = DType::kBFloat16;
  bool waits_on_host = false;
  std::size_t buffer = 0;
};

/// buffer.resize_(): the larger one is made before the smaller one dies.
void grow_buffer(Tape& tape, Tensor& buffer, Bytes bytes) {
  if (buffer.defined() && buffer.bytes() >= bytes) return;
  buffer = tape.empty({bytes / 2}, DType::kBFloat16, kInputBuffer);
}

/// What the checkpoint of a layer does before the layer runs: which buffer its input comes back to.
std::size_t begin_offload(Tape& tape, UnslothBuffers& kept, Bytes bytes) {
  for (Tensor& each : kept.inputs) {
    if (!each.defined()) grow_buffer(tape, each, kFirstBuffer);
  }
  if (kept.begins_pass) {
    kept.begins_pass = false;
    kept.takes_turns = !kept.first_pass;  // where 512 MiB are free (DOUBLE_BUFFER_HEADROOM)
  }
  grow_buffer(tape, kept.inputs[0], bytes);
  if (kept.takes_turns) grow_buffer(tape, kept.inputs[1], bytes);
  const auto turn = static_cast<std::size_t>(kept.turn);
  kept.turn = 1 - kept.turn;
  return turn;
}

void unsloth_checkpoint_backward(BackwardCall& call) {
  const auto& region = call.payload<OffloadedRegion>();
  Tape& tape = call.tape;
  UnslothBuffers& kept = tape.modes.unsloth;
  Tensor input;
  if (region.waits_on_host) {
    const Tensor& buffer = kept.inputs[kept.takes_turns ? region.buffer : 0];
    input = tape.alias(buffer, region.shape, contiguous_strides(region.shape), false);
  } else {
    input = tape.detach(call.saved(0));
  }
  kept.begins_pass = true;
  kept.first_pass = false;
  kept.layer = 0;
  tape.autograd.require_gradient(input);
  Tensor output;
  {
    const EnableGrad enable_grad(tape.modes);
    const Recomputing recomputing(tape.moment);
    const Autocasting autocasting(tape.modes.autocast, region.autocast);
    record_host_work(tape, HostWork::kCheckpointBackward);
    output = region.run({input});
  }
  tape.autograd.backward(output, call.gradient());
  if (call.needs(0)) call.set(0, input.impl()->grad);
}

}  // namespace

Tensor run_checkpointed_by_unsloth(const Tensor& input, CheckpointFrame::Region region) {
  Tape& tape = input.tape();
  UnslothBuffers& kept = tape.modes.unsloth;
  const Tensor* inputs[] = {&input};
  Node* node = tape.autograd.record(kUnslothCheckpoint, unsloth_checkpoint_backward, inputs, 1);
  if (node != nullptr) {
    if (kept.first_pass) ++kept.layers;
    ++kept.layer;
    OffloadedRegion payload{
        .run = region, .autocast = tape.modes.autocast.dtype, .shape = input.shape(), .dtype = input.dtype()};
    payload.waits_on_host = input.bytes() > kLeastOffloaded && (kept.first_pass || kept.layer != kept.layers);
    if (payload.waits_on_host) payload.buffer = begin_offload(tape, kept, input.bytes());
    const bool keeps = !payload.waits_on_host;
    node->payload.set(std::move(payload));
    if (keeps) tape.autograd.save(*node, input);
  }
  Tensor output;
  {
    const NoGrad no_grad(tape.modes);
    record_host_work(tape, HostWork::kCheckpointForward);
    output = region({input});
  }
  tape.autograd.set_history(node, output);
  return output;
}

}  // namespace memcalc
