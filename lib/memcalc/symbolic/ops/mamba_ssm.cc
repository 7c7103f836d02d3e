#include "memcalc/symbolic/ops/mamba_ssm.h"

#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kScan{"mamba_ssm::mamba_split_conv1d_scan_combined"};
constexpr Operator kScanNode{"MambaSplitConv1dScanCombinedFnBackward"};
constexpr Operator kGroupNorm{"mamba_ssm::layernorm_fn"}, kGroupNormNode{"LayerNormFnBackward"};

/// Sizes of what the scan makes between its kernels.
struct ScanShapes {
  Shape convolved, by_head, states, products;

  ScanShapes(const MambaScan& s, const Tensor& zxbcdt) {
    const std::int64_t batch = zxbcdt.size(0), tokens = zxbcdt.size(1), chunks = (tokens + s.chunk - 1) / s.chunk;
    convolved = {batch, tokens, s.conv_width()};
    by_head = {batch, s.heads, chunks, s.chunk};
    states = {batch, chunks, s.heads, s.head_dim, s.state};
    products = {batch, chunks, s.groups, s.chunk, s.chunk};
  }
};

/// FLOPs of one pass: products within a chunk, and into and out of the states.
double scan_flops(const MambaScan& s, const Tensor& zxbcdt) {
  const auto tokens = static_cast<double>(zxbcdt.size(0) * zxbcdt.size(1));
  const auto chunk = static_cast<double>(s.chunk), width = static_cast<double>(s.width());
  return tokens * (2 * chunk * static_cast<double>(s.groups * s.state) + 2 * chunk * width +
                   4 * width * static_cast<double>(s.state));
}

struct ScanPayload {
  MambaScan scan;
};

void scan_backward(BackwardCall& call) {  // saved: zxbcdt, the scan's result before the gate
  const MambaScan& s = call.payload<ScanPayload>().scan;
  Tape& tape = call.tape;
  const Tensor& zxbcdt = call.saved(0);
  const DType dtype = zxbcdt.dtype();
  const ScanShapes shapes(s, zxbcdt);
  const auto make = [&](const Shape& shape, DType type) { return tape.empty(shape, type, kScan); };
  const std::int64_t batch = zxbcdt.size(0), tokens = zxbcdt.size(1);
  const Shape of_group{batch, tokens, s.groups, s.state};
  const Tensor convolved = make(shapes.convolved, dtype);
  Tensor gradient = make(zxbcdt.shape(), dtype);
  const Tensor of_convolved = make(shapes.convolved, dtype);
  {  // _mamba_chunk_scan_combined_bwd
    const Tensor dt_in = make({batch, tokens, s.heads}, dtype);
    const Tensor sums = make(shapes.by_head, DType::kFloat32), dt = make(shapes.by_head, DType::kFloat32);
    const Tensor products = make(shapes.products, DType::kFloat32);
    Tensor states = make(shapes.states, DType::kFloat32);
    states = make(shapes.states, DType::kFloat32);  // passed from chunk to chunk
    const Tensor before_gate = make({batch, tokens, s.width()}, dtype);
    Tensor of_states = make(shapes.states, DType::kFloat32);
    {
      const Tensor passed = make(shapes.states, dtype), converted = make(shapes.states, dtype);
      of_states = passed;
      states = converted;
    }
    const Tensor of_dt = make(shapes.by_head, DType::kFloat32);
    const Tensor of_b = make(of_group, DType::kFloat32), next = make(shapes.by_head, DType::kFloat32);
    const Tensor of_c = make(of_group, DType::kFloat32), before = make(shapes.by_head, DType::kFloat32);
    const Tensor of_products = make(shapes.products, DType::kFloat32);
    const Tensor of_sums = make(shapes.by_head, DType::kFloat32);
  }
  const Tensor of_input = make(shapes.convolved, dtype);  // causal_conv1d_bwd, copied into its part of the gradient
  tape.kernels.add(kScan, OperatorClass::kElementwise, dtype, 3 * scan_flops(s, zxbcdt),
                   6 * static_cast<double>(zxbcdt.bytes()));
  call.set(0, std::move(gradient));
}

void group_norm_backward(BackwardCall& call) {  // saved: x, reciprocals
  const Tensor& x = call.saved(0);
  Tensor gradient = call.tape.empty(x.shape(), x.dtype(), kGroupNorm);
  const Tensor of_weight = call.tape.empty({call.tape.device.multiprocessors, x.size(-1)}, DType::kFloat32, kGroupNorm);
  call.tape.kernels.add(kGroupNorm, OperatorClass::kNormalization, x.dtype(), 8 * static_cast<double>(x.elements()),
                        3 * static_cast<double>(x.bytes()));
  call.set(0, std::move(gradient));
}

}  // namespace

Tensor mamba_split_conv_scan(const MambaScan& scan, const Tensor& zxbcdt) {
  Tape& tape = zxbcdt.tape();
  const Tensor* inputs[] = {&zxbcdt};
  Node* node = tape.autograd.record(kScanNode, scan_backward, inputs, 1);
  const DType dtype = zxbcdt.dtype();
  const ScanShapes shapes(scan, zxbcdt);
  const auto make = [&](const Shape& shape, DType type) { return tape.empty(shape, type, kScan); };
  const Shape output{zxbcdt.size(0), zxbcdt.size(1), scan.width()};
  const Tensor convolved = make(shapes.convolved, dtype);
  const Tensor dt = make(shapes.by_head, DType::kFloat32), sums = make(shapes.by_head, DType::kFloat32);
  Tensor states = make(shapes.states, DType::kFloat32);
  states = make(shapes.states, dtype);  // passed from chunk to chunk
  const Tensor products = make(shapes.products, DType::kFloat32);
  Tensor result = make(output, dtype);
  const Tensor before_gate = make(output, dtype);
  tape.kernels.add(kScan, OperatorClass::kElementwise, dtype, scan_flops(scan, zxbcdt),
                   2 * static_cast<double>(zxbcdt.bytes()));
  if (node != nullptr) {
    node->payload.set(ScanPayload{scan});
    tape.autograd.save(*node, zxbcdt);
    tape.autograd.save(*node, before_gate);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor mamba_group_norm(const Tensor& x, std::int64_t groups) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kGroupNormNode, group_norm_backward, inputs, 1);
  Tensor result = tape.empty(x.shape(), x.dtype(), kGroupNorm);
  const Tensor reciprocal = tape.empty({groups * (x.elements() / x.size(-1))}, DType::kFloat32, kGroupNorm);
  tape.kernels.add(kGroupNorm, OperatorClass::kNormalization, x.dtype(), 4 * static_cast<double>(x.elements()),
                   2 * static_cast<double>(x.bytes()));
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, reciprocal);
  }
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
