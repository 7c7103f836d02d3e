#include "support/tape_bench.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/layout.h"
#include "support/paths.h"

namespace memcalc::test {

namespace {

constexpr Operator kInput{"input"};
constexpr Operator kGradient{"gradient"};

struct CapturePayload {
  std::vector<Tensor>* gradients = nullptr;  // where they go
  std::size_t index = 0;                     // which of them this is
};

void capture(BackwardCall& call) {
  const auto& [gradients, index] = call.payload<CapturePayload>();
  (*gradients)[index] = call.gradient();
}

}  // namespace

const DeviceSpec& h100() {
  static const DeviceSpec device = SpecRegistry(specs_dir().string()).device("h100-sxm");
  return device;
}

std::string dump(const Trace& trace, std::size_t first_event) {
  std::string text;
  for (std::size_t i = first_event; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (!text.empty()) text += "; ";
    if (event.kind == EventKind::kEmptyCache) {
      text += "empty_cache";
      continue;
    }
    const std::string bytes = std::to_string(trace.blocks[static_cast<std::size_t>(event.block)].requested);
    if (event.kind == EventKind::kFree) {
      text += "-" + bytes;
      continue;
    }
    const std::string_view name = event.op->name;
    const std::size_t colon = name.rfind(':');
    text += "+" + bytes + " ";
    text += colon == std::string_view::npos ? name : name.substr(colon + 1);
  }
  return text;
}

void TapeBench::warm_up() {
  const Phase before = std::exchange(tape.moment.phase, Phase::kForward);
  tape.memory.use_cublas(true);
  tape.moment.phase = Phase::kBackward;
  tape.memory.use_cublas(true);
  tape.moment.phase = before;
}

Tensor TapeBench::input(const Shape& shape, DType dtype, bool needs_gradient) {
  return strided_input(shape, contiguous_strides(shape), dtype, needs_gradient);
}

Tensor TapeBench::strided_input(const Shape& shape, const Shape& strides, DType dtype, bool needs_gradient) {
  Tensor tensor = tape.empty_strided(shape, strides, dtype, kInput);
  held_.push_back(tensor);
  if (!needs_gradient) return tensor;
  if (!source_.defined()) {
    source_ = tape.empty({}, DType::kFloat32, kInput);
    source_.impl()->requires_grad = true;
  }
  const Tensor* inputs[] = {&source_};
  Node* node = tape.autograd.record(kInput, capture, inputs, 1);
  node->payload.set(CapturePayload{.gradients = &gradients, .index = gradients.size()});
  gradients.emplace_back();
  tape.autograd.set_history(node, tensor);
  return tensor;
}

std::vector<Bytes> TapeBench::requests() const {
  std::vector<Bytes> result;
  for (std::size_t i = first_event_; i < tape.memory.trace.events.size(); ++i) {
    const Event& event = tape.memory.trace.events[i];
    const Bytes bytes = tape.memory.trace.blocks[static_cast<std::size_t>(event.block)].requested;
    result.push_back(event.kind == EventKind::kFree ? -bytes : bytes);
  }
  return result;
}

void TapeBench::backward(const Tensor& output, Tensor gradient) {
  if (!gradient.defined()) {
    gradient = tape.empty_strided(output.shape(), output.strides(), output.dtype(), kGradient);
  }
  start();
  const Phase before = std::exchange(tape.moment.phase, Phase::kBackward);
  tape.autograd.backward(output, gradient);
  tape.moment.phase = before;
  held_.push_back(std::move(gradient));
}

}  // namespace memcalc::test
