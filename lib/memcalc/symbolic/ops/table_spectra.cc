// Rows of the operator table over complex numbers and spectra. Sources: aten/src/ATen/native/ComplexHelper.h,
// cuda/SpectralOps.cpp and torch/csrc/autograd/FunctionsManual.cpp of torch 2.11. What a cuFFT plan takes for itself is
// not seen.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

bool is_complex(const Tensor& x) { return x.dtype() == DType::kComplex64; }

/// at::real, at::imag of a complex tensor: every second number of its storage.
Tensor part_of(const Tensor& x) { return select(view_as_real(x), x.rank()); }

void part_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(is_complex(x) ? part_of(x) : x);
}

void complex_row(RecordedCall& call) {  // real imag
  const Tensor &real = call.tensor(0), &imaginary = call.tensor(1);
  Node* node = record(aten::kComplex,
                      [](BackwardCall& back) {
                        const NoGrad no_grad(back.tape.modes);
                        for (const int i : {1, 0}) {
                          if (back.needs(i)) back.set(i, part_of(back.gradient()));
                        }
                      },
                      {&real, &imaginary}, {&real, &imaginary});  // for their types
  call.returns(finish(node, pointwise(aten::kComplex, {&real, &imaginary}, 1, DType::kComplex64)));
}

// --- transforms of one dimension
// --------------------------------------------------------------------------------------

struct TransformPayload {
  Shape input;
  int dim = 0;
  bool one_sided = false;
};

Tensor transformed(const Tensor& x, const Shape& shape, DType dtype, const Operator& op) {
  Tensor result = x.tape().empty(shape, dtype, op);
  x.tape().kernels.add(op, OperatorClass::kElementwise, DType::kFloat32, 10.0 * static_cast<double>(result.elements()),
                       static_cast<double>(x.bytes() + result.bytes()));
  return result;
}

/// fft_r2c_backward: of one side the gradient is filled up with zeros first; the real part of the whole transform.
void real_to_complex_backward(BackwardCall& call) {
  const auto& [input, dim, one_sided] = call.payload<TransformPayload>();
  Tensor whole = call.gradient();
  if (one_sided && whole.size(dim) != input[dim]) whole = filled(call.tape, input, whole.dtype(), aten::kNewZeros);
  const Tensor result = transformed(whole, input, DType::kComplex64, aten::kFftC2c);
  const NoGrad no_grad(call.tape.modes);
  call.set(0, part_of(result));
}

/// fft_c2r_backward: _fft_r2c of the gradient, whose middle is doubled in place.
void complex_to_real_backward(BackwardCall& call) {
  const Shape& input = call.payload<TransformPayload>().input;
  call.set(0, transformed(call.gradient(), input, DType::kComplex64, aten::kFftR2c));
}

void complex_to_complex_backward(BackwardCall& call) {
  call.set(0, transformed(call.gradient(), call.payload<TransformPayload>().input, DType::kComplex64, aten::kFftC2c));
}

/// Tensors of another length than the transform's are cut or padded before.
int transform_dim(const RecordedCall& call, std::int64_t length_of_input) {  // input n dim norm
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(2, x.rank(), -1);
  if (call.has(1) && call.integer(1) != length_of_input) call.refuse("another length than the input's");
  return dim;
}

template <bool one_sided>
Tensor of_real(const Tensor& x, int dim) {
  Node* node = record(aten::kFftR2c, real_to_complex_backward, {&x});
  if (node != nullptr) node->payload.set(TransformPayload{x.shape(), dim, one_sided});
  Shape shape = x.shape();
  if (one_sided) shape[dim] = shape[dim] / 2 + 1;
  return finish(node, transformed(x, shape, DType::kComplex64, aten::kFftR2c));
}

void rfft_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (x.dtype() != DType::kFloat32) call.refuse("another type than float32");
  call.returns(of_real<true>(x, transform_dim(call, x.size(call.dimension(2, x.rank(), -1)))));
}

void returns_real(RecordedCall& call, const Tensor& x, int dim, std::int64_t length) {
  if (!is_complex(x)) call.refuse("what is not complex64");
  if (length / 2 + 1 != x.size(dim)) call.refuse("another length than the input's");
  Node* node = record(aten::kFftC2r, complex_to_real_backward, {&x});
  if (node != nullptr) node->payload.set(TransformPayload{x.shape(), dim, true});
  Shape shape = x.shape();
  shape[dim] = length;
  Tensor result = transformed(x, shape, DType::kFloat32, aten::kFftC2r);
  { const Tensor copy = contiguous_copy(call.tape.detach(x)); }  // SpectralOps.cpp: cuFFT overwrites its input
  call.returns(finish(node, std::move(result)));
}

void irfft_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(2, x.rank(), -1);
  returns_real(call, x, dim, call.integer_or(1, 2 * (x.size(dim) - 1)));
}

/// Of the last two dimensions: one transform of cuFFT, whose spectrum is one-sided in the last.
/// The length that `s` gives the last one, else `usual`.
std::int64_t last_length(RecordedCall& call, std::int64_t usual) {  // input s dim norm
  const Tensor& x = call.tensor(0);
  if (call.has(2)) call.refuse("other dimensions than the last two");
  if (!call.has(1)) return usual;
  const std::vector<std::int64_t> sizes = call.integers(1);
  if (sizes.size() != 2 || sizes[0] != x.size(-2)) call.refuse("another length than the input's");
  return sizes[1];
}

void rfft2_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (x.dtype() != DType::kFloat32) call.refuse("another type than float32");
  if (last_length(call, x.size(-1)) != x.size(-1)) call.refuse("another length than the input's");
  Tensor result = of_real<true>(x, x.rank() - 1);
  if (!x.is_contiguous()) call.tape.memory.scratch(x.bytes(), aten::kClone);  // _exec_fft: input.reshape(batched_sizes)
  call.returns(std::move(result));
}

void irfft2_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  returns_real(call, x, x.rank() - 1, last_length(call, 2 * (x.size(-1) - 1)));
}

/// fft and ifft of one dimension.
void fft_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int dim = transform_dim(call, x.size(call.dimension(2, x.rank(), -1)));
  if (x.dtype() == DType::kFloat32) return call.returns(of_real<false>(x, dim));
  if (!is_complex(x)) call.refuse("another type than float32 and complex64");
  Node* node = record(aten::kFftC2c, complex_to_complex_backward, {&x});
  if (node != nullptr) node->payload.set(TransformPayload{x.shape(), dim, false});
  call.returns(finish(node, transformed(x, x.shape(), DType::kComplex64, aten::kFftC2c)));
}

constexpr OperatorRow kRows[] = {
    {"complex", "real imag", complex_row},
    {"real", "input", part_row},
    {"imag", "input", part_row},
    {"rfft", "input n dim norm", rfft_row},
    {"fft_rfft", "input n dim norm", rfft_row},
    {"irfft", "input n dim norm", irfft_row},
    {"fft_irfft", "input n dim norm", irfft_row},
    {"rfft2", "input s dim norm", rfft2_row},
    {"fft_rfft2", "input s dim norm", rfft2_row},
    {"irfft2", "input s dim norm", irfft2_row},
    {"fft_irfft2", "input s dim norm", irfft2_row},
    {"fft", "input n dim norm", fft_row},
    {"fft_fft", "input n dim norm", fft_row},
    {"ifft", "input n dim norm", fft_row},
    {"fft_ifft", "input n dim norm", fft_row},
};

}  // namespace

std::span<const OperatorRow> spectrum_rows() { return kRows; }

}  // namespace memcalc
