// MIRRORS(torch, "cuda/GroupMM.cu", "2.11.0")
// MIRRORS(transformers, "integrations/moe.py", "5.17.0")
// MIRRORS(torch, "cuda/GroupedBlas.cpp", "2.11.0")
#include "memcalc/symbolic/ops/grouped_mm.h"

#include <string>
#include <utility>

#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cuda/GroupedBlas.cpp, _grouped_mm_cuda: CUTLASS for bfloat16 on compute capability 9.x and 10.x; else a loop of
/// ordinary products, which first waits for the offsets.
bool takes_cutlass(const Tensor& x) {
  const DeviceSpec& device = x.tape().device;
  return x.dtype() == DType::kBFloat16 &&
         (is_of(device, CudaArchitecture::kHopper) || is_of(device, CudaArchitecture::kBlackwell));
}

/// cuda/GroupMM.cu: three pointers, three strides and three extents for each group; the number of pointers is even.
Bytes arguments_bytes(std::int64_t groups) { return round_up(groups, 2) * 3 * 8 + groups * (3 * 8 + 3 * 4); }

/// CUTLASS 3 (sm90_*_array_tma_warpspecialized): four TMA descriptors of 128 bytes for each multiprocessor. Measured
/// with 8, 16 and 32 groups, both tile shapes.
Bytes descriptors_bytes(const DeviceSpec& device) { return std::int64_t{4} * 128 * device.multiprocessors; }

/// GroupedMMUtils.h, _grouped_mm_fallback: for each group the end is selected and read on the host, and three operands
/// are cut out, all within C++, where a view takes half of what Python's takes: a call of eight groups took 140 us more
/// than CUTLASS's in a Mixtral's forward, 102 of them its products and the wait (expert_parts_h200.jsonl.gz).
std::int32_t views_of_loop(std::int64_t groups) { return static_cast<std::int32_t>(groups * 5 / 2); }

/// What is multiplied: rows by the matrix of their group, or a group's columns by its rows, which makes a matrix.
enum class Grouped : std::uint8_t { kRows, kMatrices };

/// The kernel for a result that exists. Every row is multiplied once, whatever group it is in.
void run_product(const Tensor& result, std::int64_t groups, std::int64_t rows, std::int64_t in, std::int64_t out,
                 Grouped what) {
  Tape& tape = result.tape();
  const bool at_once = takes_cutlass(result);
  if (at_once) {
    const Tensor arguments =
        tape.empty({arguments_bytes(groups)}, DType::kUInt8, aten::kGroupedMm, Category::kWorkspaces);
    tape.memory.scratch(descriptors_bytes(tape.device), aten::kGroupedMm, Category::kWorkspaces);
  } else {
    tape.kernels.synchronize(aten::kGroupedMm);
    tape.memory.use_cublas(false);
  }
  tape.kernels.grouped_product(aten::kGroupedMm, result.dtype(), groups, rows, in, out);
  // A kernel that writes the groups' arguments and the product, or a product for each group.
  Kernel* const kernel = tape.kernels.last();
  if (kernel == nullptr) return;
  kernel->launches = at_once ? 2 : static_cast<std::int32_t>(groups);
  if (!at_once) kernel->views += views_of_loop(groups);
  if (!at_once && what == Grouped::kMatrices) {
    kernel->work = work::Product{
        .batch = groups, .m = in, .n = out, .k = ceil_div(rows, groups), .transposed = Transposed::kFirst};
  }
}

/// a [rows, in] by b [groups, in, out]: [rows, out].
Tensor rows_by_matrices(const Tensor& a, const Tensor& b) {
  Tensor result = a.tape().empty({a.size(0), b.size(2)}, a.dtype(), aten::kGroupedMm);
  run_product(result, b.size(0), a.size(0), a.size(1), b.size(2), Grouped::kRows);
  return result;
}

/// a [m, rows] by b [rows, n], a matrix for each group of rows: [groups, m, n].
Tensor matrix_of_each_group(const Tensor& a, const Tensor& b, std::int64_t groups) {
  Tensor result = a.tape().empty({groups, a.size(0), b.size(1)}, a.dtype(), aten::kGroupedMm);
  run_product(result, groups, b.size(0), a.size(0), b.size(1), Grouped::kMatrices);
  return result;
}

struct GroupedMmPayload {
  bool column_major = false;  // the matrices are a transposed view
};

void grouped_mm_backward(BackwardCall& call) {  // inputs: self, mat2; saved: mat2 as needed, offs, self as needed
  const int offsets = was_recorded(call, 0) ? 1 : 0;
  const std::int64_t groups = call.saved(offsets).size(0);
  if (call.needs(1)) {
    const Tensor& self = call.saved(offsets + 1);
    Tensor gradient = call.payload<GroupedMmPayload>().column_major
                          ? transpose(matrix_of_each_group(t(call.gradient()), self, groups), 1, 2)
                          : matrix_of_each_group(t(self), call.gradient(), groups);
    call.set(1, std::move(gradient));
  }
  if (call.needs(0)) call.set(0, rows_by_matrices(call.gradient(), transpose(call.saved(0), 1, 2)));
}

/// check_valid_strides_and_return_transposed: rows of 16 bytes or a multiple.
void check_alignment(const Tensor& matrices) {
  const std::int64_t elements = 16 / size_of(matrices.dtype());
  for (const int dim : {1, 2}) {
    if (matrices.size(dim) % elements == 0) continue;
    throw refusal(rules::kGroupedExperts,
                  {std::to_string(elements), name_of(matrices.dtype()), std::to_string(matrices.size(dim))});
  }
}

}  // namespace

Tensor grouped_mm(Arg x, Arg matrices, const Tensor& offsets) {
  const OperatorCall call(x, matrices);
  check_alignment(*matrices);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x, &*matrices};
  Node* node = tape.autograd.record(aten::kGroupedMm, grouped_mm_backward, inputs, 2);
  if (node != nullptr) {
    node->payload.set(GroupedMmPayload{.column_major = matrices->strides()[1] == 1});
    if (x->requires_grad()) tape.autograd.save(*node, *matrices);
    tape.autograd.save(*node, offsets);
    if (matrices->requires_grad()) tape.autograd.save(*node, *x);
  }
  Tensor result = rows_by_matrices(*x, *matrices);
  tape.autograd.set_history(node, result);
  return result;
}

namespace {

/// Products of each group into `result`, once the host has read where the groups end.
void run_products(const Tensor& result, std::int64_t groups, std::int64_t rows, std::int64_t in, std::int64_t out,
                  Grouped what) {
  Tape& tape = result.tape();
  tape.kernels.add(aten::kZeros, OperatorClass::kMovement, result.dtype(), 0, static_cast<double>(result.bytes()));
  tape.memory.use_cublas(false);
  tape.kernels.grouped_product(aten::kMm, result.dtype(), groups, rows, in, out);
  Kernel* const kernel = tape.kernels.last();
  if (kernel == nullptr) return;
  kernel->launches = static_cast<std::int32_t>(groups);
  if (what == Grouped::kMatrices) {
    kernel->work = work::Product{
        .batch = groups, .m = in, .n = out, .k = ceil_div(rows, groups), .transposed = Transposed::kFirst};
  }
}

/// moe.py, _grouped_mm_fallback_backward: both gradients, whichever is needed.
void fallback_backward(BackwardCall& call) {  // inputs: x, matrices; saved: x, matrices, offsets
  const Tensor &x = call.saved(0), &matrices = call.saved(1);
  const std::int64_t groups = matrices.size(0), in = matrices.size(1), out = matrices.size(2);
  Tensor of_x = call.tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), aten::kZerosLike);
  Tensor of_matrices = call.tape.empty_strided(matrices.shape(), like_strides(matrices.shape(), matrices.strides()),
                                               matrices.dtype(), aten::kZerosLike);
  call.tape.kernels.synchronize(aten::kGroupedMmFallback);
  run_products(of_x, groups, x.size(0), out, in, Grouped::kRows);
  run_products(of_matrices, groups, x.size(0), in, out, Grouped::kMatrices);
  if (call.needs(0)) call.set(0, std::move(of_x));
  if (call.needs(1)) call.set(1, std::move(of_matrices));
}

}  // namespace

Tensor grouped_mm_fallback(const Tensor& x, const Tensor& matrices, const Tensor& offsets) {
  Tape& tape = x.tape();
  Node* node = record(aten::kGroupedMmFallback, fallback_backward, {&x, &matrices}, {&x, &matrices, &offsets});
  Tensor result = tape.empty({x.size(0), matrices.size(2)}, x.dtype(), aten::kZeros);
  tape.kernels.synchronize(aten::kGroupedMmFallback);
  run_products(result, matrices.size(0), x.size(0), x.size(1), matrices.size(2), Grouped::kRows);
  return finish(node, std::move(result));
}

void clamp_ids_in_place(const Tensor& x) {
  x.tape().kernels.add(aten::kClamp, OperatorClass::kElementwise, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()));
}

Tensor count_values(const Tensor& x, std::int64_t bins) {
  Tensor result = x.tape().empty({bins}, DType::kInt32, aten::kHistc);
  x.tape().kernels.add(aten::kHistc, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes()));
  return result;
}

}  // namespace memcalc
