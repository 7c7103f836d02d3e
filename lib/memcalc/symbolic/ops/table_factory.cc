// Rows of the operator table that make tensors of nothing. One without a device is made on the host, and takes no
// memory of the card.
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

bool on_card(const RecordedCall& call, int device) { return call.text_or(device, "cpu").starts_with("cuda"); }

/// A tensor on the host: no storage on the card.
Tensor on_host(Tape& tape, const Shape& shape, DType dtype) {
  const OnMetaDevice on_meta(tape.memory);
  return tape.empty(shape, dtype, aten::kToCopy);
}

Tensor made(RecordedCall& call, const Shape& shape, DType dtype, const Operator& op, bool card) {
  if (!card) return on_host(call.tape, shape, dtype);
  Tensor result = call.tape.empty(shape, dtype, op);
  call.tape.kernels.add(op, OperatorClass::kMovement, dtype, 0, static_cast<double>(result.bytes()));
  return result;
}

void zeros_row(RecordedCall& call) {  // *size dtype device
  call.returns(made(call, call.shape(0), call.dtype(1).value_or(DType::kFloat32), aten::kZeros, on_card(call, 2)));
}

DType dtype_of_number(const RecordedCall& call, int i) {
  switch (call.slot(i).kind) {
    case BoundArgument::Kind::kNumber: return DType::kFloat32;
    case BoundArgument::Kind::kBool: return DType::kBool;
    default: return DType::kInt64;
  }
}

void full_row(RecordedCall& call) {  // size fill_value dtype device
  call.returns(
      made(call, call.shape(0), call.dtype(2).value_or(dtype_of_number(call, 1)), aten::kZeros, on_card(call, 3)));
}

void arange_row(RecordedCall& call) {                                 // start end step dtype device
  if (call.is_tensor(0) || call.is_tensor(1) || call.is_tensor(2)) {  // the host reads them: the size was recorded
    call.tape.kernels.synchronize(aten::kArange);
    return call.returns(made(call, call.given().shape, call.given().dtype, aten::kArange, on_card(call, 4)));
  }
  const auto is_real = [&](int i) { return call.has(i) && call.slot(i).kind == BoundArgument::Kind::kNumber; };
  const bool real = is_real(0) || is_real(1) || is_real(2);
  const double start = call.has(1) ? call.number_or(0, 0) : 0;
  const double end = call.has(1) ? call.number_or(1, 0) : call.number_or(0, 0);
  const double step = call.number_or(2, 1);
  if (step == 0) call.refuse("a step of 0");
  const auto count = static_cast<std::int64_t>((end - start) / step + (step > 0 ? 0.999999 : 0.999999));
  const DType dtype = call.dtype(3).value_or(real ? DType::kFloat32 : DType::kInt64);
  call.returns(made(call, {std::max<std::int64_t>(count, 0)}, dtype, aten::kArange, on_card(call, 4)));
}

void linspace_row(RecordedCall& call) {  // start end steps dtype device
  call.returns(made(call, {call.integer(2)}, call.dtype(3).value_or(DType::kFloat32), aten::kArange, on_card(call, 4)));
}

/// torch.tensor(data, dtype, device): a number or nested lists of them.
void tensor_row(RecordedCall& call) {
  Shape shape;
  const BoundArgument* at = &call.slot(0);
  while (at->kind == BoundArgument::Kind::kList && shape.rank < kMaxDims) {
    shape.dims[static_cast<std::size_t>(shape.rank++)] = static_cast<std::int64_t>(at->items.size());
    if (at->items.empty()) break;
    at = &at->items.front();
  }
  DType dtype = DType::kFloat32;
  if (at->kind == BoundArgument::Kind::kInteger) dtype = DType::kInt64;
  if (at->kind == BoundArgument::Kind::kBool) dtype = DType::kBool;
  if (RecordedCall::is_tensor(*at)) dtype = call.tensor(*at).dtype();
  call.returns(made(call, shape, call.dtype(1).value_or(dtype), aten::kToCopy, on_card(call, 2)));
}

/// torch.as_tensor(data, dtype, device): of another tensor a copy where its type or device is another (the recorder
/// drops the call where it is not); of numpy's array, whose size was recorded, a tensor on the host.
void as_tensor_row(RecordedCall& call) {
  const bool is_tensor = call.is_tensor(0);
  if (!is_tensor && call.given_count() == 0) return tensor_row(call);
  const bool card = call.has(2) || !is_tensor ? on_card(call, 2) : !RecordedCall::on_host(call.tensor(0));
  const Shape& shape = is_tensor ? call.tensor(0).shape() : call.given().shape;
  const DType kept = is_tensor ? call.tensor(0).dtype() : call.given().dtype;
  call.returns(made(call, shape, call.dtype(1).value_or(kept), aten::kToCopy, card));
}

Tensor like(RecordedCall& call, const Tensor& x, std::optional<DType> dtype) {
  Tensor result = call.tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), dtype.value_or(x.dtype()),
                                          aten::kZerosLike);
  call.tape.kernels.add(aten::kZerosLike, OperatorClass::kMovement, result.dtype(), 0,
                        static_cast<double>(result.bytes()));
  return result;
}

void zeros_like_row(RecordedCall& call) { call.returns(like(call, call.tensor(0), call.dtype(1))); }
void full_like_row(RecordedCall& call) { call.returns(like(call, call.tensor(0), call.dtype(2))); }

void randint_like_row(RecordedCall& call) { call.returns(like(call, call.tensor(0), call.dtype(3))); }

void new_zeros_row(RecordedCall& call) {  // input *size dtype
  call.returns(made(call, call.shape(1), call.dtype(2).value_or(call.tensor(0).dtype()), aten::kNewZeros, true));
}

void new_full_row(RecordedCall& call) {                                   // input size value dtype
  if (call.is_tensor(2)) call.tape.kernels.synchronize(aten::kNewZeros);  // the host reads the value
  call.returns(made(call, call.shape(1), call.dtype(3).value_or(call.tensor(0).dtype()), aten::kNewZeros, true));
}

void new_tensor_row(RecordedCall& call) {  // input data dtype
  call.returns(made(call, {}, call.dtype(2).value_or(call.tensor(0).dtype()), aten::kToCopy, true));
}

void rand_row(RecordedCall& call) {
  call.returns(made(call, call.shape(0), call.dtype(1).value_or(DType::kFloat32), aten::kRand, on_card(call, 2)));
}

/// functional/one_hot: zeros, into which ones are scattered.
void one_hot_row(RecordedCall& call) {
  Shape shape = call.tensor(0).shape();
  if (!call.has(1) || call.integer(1) < 0) call.refuse("a number of classes that is not known");
  shape.dims[static_cast<std::size_t>(shape.rank++)] = call.integer(1);
  call.returns(made(call, shape, DType::kInt64, aten::kOneHot, true));
}

/// torch.scalar_tensor(number), which ATen makes within functions that it composes: on the card.
void scalar_tensor_row(RecordedCall& call) {  // s dtype device
  const bool card = !call.has(2) || on_card(call, 2);
  call.returns(made(call, {}, call.dtype(1).value_or(DType::kFloat32), aten::kScalarTensor, card));
}

/// torch.randint(high, size), torch.randint(low, high, size)
void randint_row(RecordedCall& call) {  // low high size dtype device
  const bool from_zero = call.slot(1).kind == BoundArgument::Kind::kList;
  call.returns(
      made(call, call.shape(from_zero ? 1 : 2), call.dtype(3).value_or(DType::kInt64), aten::kRand, on_card(call, 4)));
}

/// torch.bernoulli(x): as large as its probabilities, which have no gradient of it.
void bernoulli_row(RecordedCall& call) {  // input generator
  if (call.has(1)) call.refuse("a probability beside the input");
  call.returns(like(call, call.tensor(0), std::nullopt));
}

void cpu_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(on_host(call.tape, x.shape(), x.dtype()));
}

constexpr OperatorRow kRows[] = {
    {"zeros", "*size dtype device layout requires_grad pin_memory", zeros_row},
    {"ones", "*size dtype device layout requires_grad pin_memory", zeros_row},
    {"empty", "*size dtype device layout requires_grad pin_memory memory_format", zeros_row},
    {"rand", "*size dtype device layout requires_grad pin_memory generator", rand_row},
    {"randn", "*size dtype device layout requires_grad pin_memory generator", rand_row},
    {"full", "size fill_value dtype device layout requires_grad", full_row},
    {"arange", "start end step dtype device layout requires_grad", arange_row},
    {"linspace", "start end steps dtype device layout requires_grad", linspace_row},
    {"tensor", "data dtype device requires_grad pin_memory", tensor_row},
    {"as_tensor", "data dtype device", as_tensor_row},
    {"zeros_like", "input dtype device layout requires_grad memory_format", zeros_like_row},
    {"ones_like", "input dtype device layout requires_grad memory_format", zeros_like_row},
    {"empty_like", "input dtype device layout requires_grad memory_format", zeros_like_row},
    {"rand_like", "input dtype device layout requires_grad memory_format", zeros_like_row},
    {"randn_like", "input dtype device layout requires_grad memory_format", zeros_like_row},
    {"randint_like", "input low high dtype device layout requires_grad memory_format", randint_like_row},
    {"full_like", "input fill_value dtype device layout requires_grad memory_format", full_like_row},
    {"new_zeros", "input *size dtype device layout requires_grad", new_zeros_row},
    {"new_ones", "input *size dtype device layout requires_grad", new_zeros_row},
    {"new_empty", "input *size dtype device layout requires_grad", new_zeros_row},
    {"new_full", "input size fill_value dtype device layout requires_grad", new_full_row},
    {"new_tensor", "input data dtype device requires_grad", new_tensor_row},
    {"one_hot", "input num_classes", one_hot_row},
    {"scalar_tensor", "s dtype device layout requires_grad", scalar_tensor_row},
    {"randint", "low high size dtype device layout requires_grad generator", randint_row},
    {"bernoulli", "input generator", bernoulli_row},
    {"cpu", "input memory_format", cpu_row},
};

}  // namespace

std::span<const OperatorRow> factory_rows() { return kRows; }

}  // namespace memcalc
