// The torch functions ("linear", "softmax", "__getitem__") that a recorded program calls (models/program.cc). Each row
// has the signature, by which arguments are put in their places, and what calls the operators (symbolic/aten.h).
// `memcalc programs --opaque` counts the names that are missing. Covered by tests/measured/program_test.cc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "memcalc/symbolic/ops/recorded_call.h"

namespace memcalc {

struct OperatorRow {
  std::string_view name;
  /// Parameters in their order, parted by spaces: "input dim keepdim". "*sizes" takes all further positional numbers.
  std::string_view signature;
  void (*rule)(RecordedCall& call) = nullptr;

  /// The rule; where it does not model these arguments, the operator is opaque like one that the table does not have:
  /// if its results' sizes were recorded, or follow because it changes its first argument in place.
  void run(RecordedCall& call) const;
};

/// "add_", "__setitem__": whether the function of that name changes its first argument.
[[nodiscard]] bool changes_in_place(std::string_view name);

/// Null: there is no such operator.
[[nodiscard]] const OperatorRow* find_operator(std::string_view name);

/// The names of all rows, sorted.
[[nodiscard]] std::vector<std::string_view> operator_names();

/// An operator that the table does not have: its results as they were recorded (RecordedCall::given). Where one of its
/// tensors is differentiated, all of them and the results are kept for backward, which makes a gradient of each that
/// needs one. What it holds for a moment is not seen. Takes any arguments.
void opaque_row(RecordedCall& call);

/// Whether opaque_row() has made the operator: its kernels stand for calls whose inside is not modelled.
[[nodiscard]] bool is_opaque(const Operator& op);

/// The rows of each group, one file each.
[[nodiscard]] std::span<const OperatorRow> pointwise_rows();
[[nodiscard]] std::span<const OperatorRow> function_rows();
[[nodiscard]] std::span<const OperatorRow> loss_rows();
[[nodiscard]] std::span<const OperatorRow> place_rows();
[[nodiscard]] std::span<const OperatorRow> product_rows();
[[nodiscard]] std::span<const OperatorRow> scan_rows();
[[nodiscard]] std::span<const OperatorRow> shape_rows();
[[nodiscard]] std::span<const OperatorRow> spectrum_rows();
[[nodiscard]] std::span<const OperatorRow> system_rows();
[[nodiscard]] std::span<const OperatorRow> factorisation_rows();
[[nodiscard]] std::span<const OperatorRow> region_rows();
[[nodiscard]] std::span<const OperatorRow> view_rows();
[[nodiscard]] std::span<const OperatorRow> reduction_rows();
[[nodiscard]] std::span<const OperatorRow> factory_rows();
[[nodiscard]] std::span<const OperatorRow> layer_rows();
[[nodiscard]] std::span<const OperatorRow> norm_rows();
[[nodiscard]] std::span<const OperatorRow> image_rows();
[[nodiscard]] std::span<const OperatorRow> recurrent_rows();
[[nodiscard]] std::span<const OperatorRow> scatter_rows();

/// Ways of calling an operator that stand in another file than its row: clamp(x, min=tensor), number ** tensor,
/// lerp(a, b, tensor), loss of labels that are smoothed, weighted or not reduced.
void clamp_by_tensor(RecordedCall& call, int bound);
void power_of_number(RecordedCall& call);
void lerp_by_tensor(RecordedCall& call);

}  // namespace memcalc
