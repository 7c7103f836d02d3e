// Weights on disk: one safetensors file, or the shards that an index names; described by their headers alone.
// Covered by tests/unit/spec_weights_test.cc.
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/safetensors.h"

namespace memcalc {

struct Weights {
  std::string path;                   // of the file or of the index
  std::vector<std::string> files;     // the file itself, or the shards sorted by name
  std::vector<WeightTensor> tensors;  // file by file, sorted by name within one
  std::int64_t parameters = 0;        // elements of all tensors: copies of tied weights and buffers, if any, included
  Bytes bytes = 0;
};

/// What of the weights has one element type.
struct WeightTypeTotal {
  StorageType type;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  Bytes bytes = 0;
};

/// Sorted by bytes, the largest first.
[[nodiscard]] std::vector<WeightTypeTotal> totals_by_type(const Weights& weights);

/// The type in which transformers 5.17 loads them where config.json names none: that of the first tensor that is
/// floating-point of 16 bits or more (modeling_utils.py, _get_dtype and get_state_dict_dtype).
[[nodiscard]] std::optional<DType> loading_dtype(const Weights& weights);

/// Whether a path is named like weights: "x.safetensors", "x.safetensors.index.json".
[[nodiscard]] bool is_named_like_weights(std::string_view path);

/// What transformers would load from a directory: model.safetensors, else model.safetensors.index.json.
[[nodiscard]] std::optional<std::string> find_weights(const std::string& directory);

/// Whether a directory holds any safetensors file.
[[nodiscard]] bool holds_weights(const std::string& directory);

/// `path`: a safetensors file, an index, or a directory that holds weights as find_weights() looks for them or a single
/// safetensors file. Throws Error(kInput) as read_safetensors_header() does, and for an index that is none, names a
/// file that is not there or lies elsewhere, or disagrees with its shards.
[[nodiscard]] Weights read_weights(const std::string& path);

}  // namespace memcalc
