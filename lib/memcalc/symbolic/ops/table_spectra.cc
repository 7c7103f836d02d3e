// Rows of the operator table over complex numbers and spectra. Sources: aten/src/ATen/native/ComplexHelper.h,
// cuda/SpectralOps.cpp and torch/csrc/autograd/FunctionsManual.cpp of torch 2.11. What a cuFFT plan takes
// beyond its work area is not seen.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/padding.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

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

// --- transforms ----------------------------------------------------------------------------------------------------

struct TransformPayload {
  Shape input;
  std::array<int, kMaxDims> dims{};
  int count = 0;
  bool one_sided = false;

  [[nodiscard]] std::span<const int> transformed() const { return {dims.data(), static_cast<std::size_t>(count)}; }
};

using Dims = std::vector<int>;

TransformPayload payload_of(const Shape& input, const Dims& dims, bool one_sided = false) {
  TransformPayload payload{.input = input, .count = static_cast<int>(dims.size()), .one_sided = one_sided};
  std::copy(dims.begin(), dims.end(), payload.dims.begin());
  return payload;
}

bool has_large_prime_factor(std::int64_t n) {
  for (const std::int64_t prime : {2, 3, 5, 7}) {
    while (n % prime == 0) n /= prime;
  }
  return n != 1;
}

/// What cuFFT's plan takes beside its operands, as seen of 40 transforms on an H200
/// (tests/measured/operator_streams_h200.jsonl.gz), not derived: as many bytes as the transform has where a length has
/// a prime factor that no kernel of cuFFT is for, and where one side of two or three dimensions is real, unless the
/// last one is short or a power of two.
bool takes_work_area(const Shape& lengths, std::span<const int> dims, bool between_complex) {
  constexpr std::int64_t kShort = 64;
  const std::int64_t last = lengths[dims.back()];
  if (dims.size() > 1 && !between_complex && last > kShort && (last & (last - 1)) != 0) return true;
  return std::any_of(dims.begin(), dims.end(), [&](int dim) { return has_large_prime_factor(lengths[dim]); });
}

/// _exec_fft (native/cuda/SpectralOps.cpp): the result is asked for first. Batch dimensions come first, by their
/// strides, and are collapsed into one, which copies what is no view. The result lies in that order.
Tensor executed(const Tensor& x, const Shape& shape, std::span<const int> dims, DType dtype, const Operator& op,
                bool copies = false) {
  Tape& tape = x.tape();
  std::vector<int> order;
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (std::find(dims.begin(), dims.end(), dim) == dims.end()) order.push_back(dim);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  const auto batch_dims = order;
  order.insert(order.end(), dims.begin(), dims.end());
  Shape strides = shape;
  std::int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = step;
    step *= shape[*dim];
  }
  Tensor result = tape.empty_strided(shape, strides, dtype, op);
  tape.kernels.add(op, OperatorClass::kElementwise, DType::kFloat32, 10.0 * static_cast<double>(result.elements()),
                   static_cast<double>(x.bytes() + result.bytes()));
  Tensor operand = x;
  if (copies) operand = contiguous_copy(tape.detach(x));  // cuFFT overwrites its input
  bool collapses = true;
  for (std::size_t i = 0; i + 1 < batch_dims.size(); ++i) {
    const int outer = batch_dims[i], inner = batch_dims[i + 1];
    collapses &= operand.size(outer) == 1 || operand.size(inner) == 1 ||
                 operand.strides()[outer] == operand.size(inner) * operand.strides()[inner];
  }
  Tensor collapsed;
  if (!collapses) collapsed = tape.empty(operand.shape(), operand.dtype(), aten::kClone);
  Shape lengths = shape;
  for (int dim = 0; dim < shape.rank; ++dim) lengths[dim] = std::max(shape[dim], x.size(dim));
  const bool two_sided = shape == lengths && x.shape() == lengths && dtype == DType::kComplex64;
  if (takes_work_area(lengths, dims, is_complex(x) && dtype == DType::kComplex64)) {
    Bytes bytes = size_of(two_sided ? DType::kComplex64 : DType::kFloat32);
    for (int dim = 0; dim < lengths.rank; ++dim) bytes = checked_multiply(bytes, lengths[dim]);
    tape.memory.scratch(bytes, op);
  }
  return result;
}

Tensor to_real(const Tensor& x, const Shape& shape, std::span<const int> dims) {
  return executed(x, shape, dims, DType::kFloat32, aten::kFftC2r, true);
}

/// use_optimized_cufft_path: otherwise the last dimension is transformed, then the others into a second tensor.
Tensor of_real(const Tensor& x, const Shape& shape, const Dims& dims) {
  const bool at_once = dims.size() < 2 || dims[0] != 0 || dims[1] != 1;
  if (at_once) return executed(x, shape, dims, DType::kComplex64, aten::kFftR2c);
  const Dims last{dims.back()};
  const Tensor first = executed(x, shape, last, DType::kComplex64, aten::kFftR2c);
  return executed(first, shape, std::span(dims).first(dims.size() - 1), DType::kComplex64, aten::kFftC2c);
}

/// fft_r2c_backward: of one side the gradient is filled up with zeros first; the real part of the whole transform.
void real_to_complex_backward(BackwardCall& call) {
  const TransformPayload payload = call.payload<TransformPayload>();
  const int last = payload.transformed().back();
  Tensor whole = call.gradient();
  if (payload.one_sided && whole.size(last) != payload.input[last])
    whole = filled(call.tape, payload.input, whole.dtype(), aten::kNewZeros);
  const Tensor result = executed(whole, payload.input, payload.transformed(), DType::kComplex64, aten::kFftC2c);
  const NoGrad no_grad(call.tape.modes);
  call.set(0, part_of(result));
}

/// fft_c2r_backward: _fft_r2c of the gradient, whose middle is doubled in place.
void complex_to_real_backward(BackwardCall& call) {
  const TransformPayload payload = call.payload<TransformPayload>();
  call.set(0, executed(call.gradient(), payload.input, payload.transformed(), DType::kComplex64, aten::kFftR2c));
}

void complex_to_complex_backward(BackwardCall& call) {
  const TransformPayload payload = call.payload<TransformPayload>();
  call.set(0, executed(call.gradient(), payload.input, payload.transformed(), DType::kComplex64, aten::kFftC2c));
}

/// _fft_r2c of dimensions, of one side or both.
Tensor spectrum_of(const Tensor& x, const Dims& dims, bool one_sided) {
  Shape shape = x.shape();
  if (one_sided) shape[dims.back()] = shape[dims.back()] / 2 + 1;
  // derivatives.yaml asks self.sym_size(dim.back()), which the generator does not know: the input is saved whole
  Node* node = record(aten::kFftR2c, real_to_complex_backward, {&x}, {&x});
  if (node != nullptr) node->payload.set(payload_of(x.shape(), dims, one_sided));
  return finish(node, of_real(x, shape, dims));
}

enum class Transform { kOfReal, kToReal, kComplex };

/// Dimensions of the call (slot 2), all or the last `usual` ones where it has none.
Dims dims_of(const RecordedCall& call, const Tensor& x, int usual) {
  Dims dims;
  if (call.has(2)) {
    for (const std::int64_t dim : call.integers(2)) dims.push_back(static_cast<int>(dim < 0 ? dim + x.rank() : dim));
  } else {
    const int count = call.has(1) && usual == 0 ? static_cast<int>(call.integers(1).size()) : usual;
    for (int dim = count == 0 ? 0 : x.rank() - count; dim < x.rank(); ++dim) dims.push_back(dim);
  }
  for (const int dim : dims) {
    if (dim < 0 || dim >= x.rank()) call.refuse("a dimension that its input lacks");
    if (std::count(dims.begin(), dims.end(), dim) > 1) call.refuse("a dimension twice");
  }
  return dims;
}

/// resize_fft_input: cut to the lengths of the call or filled up with zeros.
Tensor resized(Tensor x, const Dims& dims, const std::vector<std::int64_t>& lengths) {
  Shape padded = x.shape();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (lengths[i] < x.size(dims[i])) x = slice(x, dims[i], 0, lengths[i]);
    padded[dims[i]] = lengths[i];
  }
  return padded == x.shape() ? x : pad_to(x, padded);
}

/// torch.fft.*: input, lengths, dimensions, norm. `usual`: how many dimensions where none are named, 0: all.
template <Transform transform, int usual>
void transform_row(RecordedCall& call) {
  Tensor x = call.tensor(0);
  if (x.dtype() != DType::kFloat32 && !is_complex(x)) call.refuse("another type than float32 and complex64");
  const Dims dims = dims_of(call, x, usual);
  if (dims.empty() || dims.size() > 3) call.refuse("no dimension or more than three");
  std::vector<std::int64_t> lengths;
  for (const int dim : dims) lengths.push_back(x.size(dim));
  if (transform == Transform::kToReal) lengths.back() = 2 * (lengths.back() - 1);
  if (call.has(1)) {
    const std::vector<std::int64_t> asked = call.integers(1);
    if (asked.size() != dims.size()) call.refuse("lengths of other dimensions");
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (asked[i] > 0) lengths[i] = asked[i];
    }
  }
  if (*std::min_element(lengths.begin(), lengths.end()) < 1) call.refuse("a length below 1");
  const std::int64_t last = lengths.back();
  if (transform == Transform::kToReal) lengths.back() = last / 2 + 1;
  if (!is_complex(x) && transform == Transform::kToReal) call.refuse("what is not complex64");
  if (is_complex(x) && transform == Transform::kOfReal) call.refuse("another type than float32");
  x = resized(std::move(x), dims, lengths);
  Shape shape = x.shape();
  if (transform == Transform::kToReal) {
    shape[dims.back()] = last;
    Node* node = record(aten::kFftC2r, complex_to_real_backward, {&x});
    if (node != nullptr) node->payload.set(payload_of(x.shape(), dims, true));
    return call.returns(finish(node, to_real(x, shape, dims)));
  }
  if (is_complex(x)) {
    Node* node = record(aten::kFftC2c, complex_to_complex_backward, {&x});
    if (node != nullptr) node->payload.set(payload_of(x.shape(), dims));
    return call.returns(finish(node, executed(x, shape, dims, DType::kComplex64, aten::kFftC2c)));
  }
  call.returns(spectrum_of(x, dims, transform == Transform::kOfReal));
}

/// SpectralOps.cpp, stft: the signal is reflected at its ends, seen as overlapping frames, which a window multiplies.
void stft_row(RecordedCall& call) {
  // input n_fft hop_length win_length window center pad_mode normalized onesided return_complex align_to_window
  Tensor x = call.tensor(0);
  const Tensor& given = call.tensor_or_none(4);
  if (x.dtype() != DType::kFloat32 || x.rank() < 1 || x.rank() > 2)
    call.refuse("another type than float32 or other than one or two dimensions");
  if (given.defined() && is_followed(given)) call.refuse("a window that is differentiated");
  const bool is_vector = x.rank() == 1;
  const std::int64_t size = call.integer(1), hop = call.integer_or(2, size / 4), length = call.integer_or(3, size);
  if (size < 1 || hop < 1 || length < 1 || length > size) call.refuse("a frame, a hop or a window of such a length");
  if (is_vector) x = unsqueeze(x, 0);
  if (call.boolean_or(5, true)) {
    Shape padded = x.shape();
    padded[-1] = checked_add(padded[-1], size / 2 * 2);
    x = padded_by_mode(x, padded);
  }
  if (x.size(1) < size) call.refuse("a signal that is shorter than a frame");
  Tensor window = given;
  if (length < size) window = filled(call.tape, {size}, DType::kFloat32, aten::kZeros);
  Tensor frames = as_strided(x, {x.size(0), 1 + (x.size(1) - size) / hop, size},
                             {x.strides()[0], hop * x.strides()[1], x.strides()[1]});
  if (window.defined()) frames = multiply(frames, window);
  Tensor result = transpose(spectrum_of(frames, {2}, call.boolean_or(8, true)), 1, 2);
  if (is_vector) result = squeeze(std::move(result), 0);
  call.returns(call.boolean_or(9, false) ? result : view_as_real(result));
}

/// TensorFactories.cpp: a window that repeats is made with one number more.
void window_row(RecordedCall& call) {  // window_length periodic
  const std::int64_t length = call.integer(0);
  if (length < 1) call.refuse("a length below 1");
  const bool repeats = call.boolean_or(1, true);
  const Tensor whole = filled(call.tape, {checked_add(length, repeats ? 1 : 0)}, DType::kFloat32, aten::kArange);
  call.returns(repeats ? slice(whole, 0, 0, length) : whole);
}

constexpr auto* rfft_row = transform_row<Transform::kOfReal, 1>;
constexpr auto* rfft2_row = transform_row<Transform::kOfReal, 2>;
constexpr auto* rfftn_row = transform_row<Transform::kOfReal, 0>;
constexpr auto* irfft_row = transform_row<Transform::kToReal, 1>;
constexpr auto* irfft2_row = transform_row<Transform::kToReal, 2>;
constexpr auto* irfftn_row = transform_row<Transform::kToReal, 0>;
constexpr auto* fft_row = transform_row<Transform::kComplex, 1>;
constexpr auto* fft2_row = transform_row<Transform::kComplex, 2>;
constexpr auto* fftn_row = transform_row<Transform::kComplex, 0>;

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
    {"fft2", "input s dim norm", fft2_row},
    {"fft_fft2", "input s dim norm", fft2_row},
    {"ifft2", "input s dim norm", fft2_row},
    {"fft_ifft2", "input s dim norm", fft2_row},
    {"fftn", "input s dim norm", fftn_row},
    {"fft_fftn", "input s dim norm", fftn_row},
    {"ifftn", "input s dim norm", fftn_row},
    {"fft_ifftn", "input s dim norm", fftn_row},
    {"rfftn", "input s dim norm", rfftn_row},
    {"fft_rfftn", "input s dim norm", rfftn_row},
    {"irfftn", "input s dim norm", irfftn_row},
    {"fft_irfftn", "input s dim norm", irfftn_row},
    {"stft",
     "input n_fft hop_length win_length window center pad_mode normalized onesided return_complex align_to_window",
     stft_row},
    {"hann_window", "window_length periodic dtype layout device requires_grad", window_row},
    {"hamming_window", "window_length periodic alpha beta dtype layout device requires_grad", window_row},
    {"hfft", "input n dim norm", irfft_row},
    {"fft_hfft", "input n dim norm", irfft_row},
};

}  // namespace

std::span<const OperatorRow> spectrum_rows() { return kRows; }

}  // namespace memcalc
