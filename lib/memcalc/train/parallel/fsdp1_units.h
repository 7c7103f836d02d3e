// What FSDP1 makes of a model's parameters: the modules that it wraps, and the flat parameter of each.
// Covered by tests/unit/fsdp1_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/parallel/holdings.h"

namespace memcalc {

/// Where each parameter begins in the flat one, and how long that is: _init_flat_param_and_metadata.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t elements = 0;  // a multiple of the ranks
};
[[nodiscard]] FlatLayout flat_layout_of(const std::vector<Parameter*>& parameters, const RunSpec& run,
                                        std::int64_t ranks);

/// 4-bit weights are flattened as what they are stored as: [bytes / 2, 1] bfloat16.
[[nodiscard]] bool is_flattened_packed(const Tensor& tensor);
[[nodiscard]] std::int64_t flattened_elements(const Tensor& tensor, const RunSpec& run);
[[nodiscard]] DType flattened_dtype(const Tensor& tensor, const RunSpec& run);

/// Elements of a parameter that begins at `offset` in the shard of `rank`.
[[nodiscard]] std::int64_t elements_in_shard(std::int64_t offset, std::int64_t elements, std::int64_t shard,
                                             std::int64_t rank);

/// Modules that FSDP1 wraps: layers, of a model with adapters each module without children whose weight trains, and
/// what is left, the root's.
struct Fsdp1Units {
  std::vector<std::vector<Parameter*>> layers;
  /// Inside of a layer, whose number it has, or of none.
  struct Leaf {
    std::vector<Parameter*> parameters;
    std::size_t layer = 0;
  };
  std::vector<Leaf> leaves;  // as the modules follow each other
  std::vector<Parameter*> rest;
};
[[nodiscard]] Fsdp1Units fsdp1_units_of(Model& model, bool has_adapters);

/// Throws Error(kUnsupported) for parameters that cannot be one flat parameter.
void check_fsdp1_unit(const std::vector<Parameter*>& parameters, const RunSpec& run);

/// Elements of each parameter in a rank's shards, for each rank.
[[nodiscard]] std::vector<Holding> fsdp1_holdings(Model& model, const RunSpec& run, std::int64_t ranks);

}  // namespace memcalc
