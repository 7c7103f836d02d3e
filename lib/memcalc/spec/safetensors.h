// The header of a safetensors file: names, types and shapes of its tensors. Tensor data is never read; that it is
// there follows from the size of the file. Source of the format and of its limits: huggingface/safetensors,
// safetensors/src/tensor.rs and README.md. Covered by tests/unit/spec_safetensors_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"

namespace memcalc {

/// safetensors refuses a longer header, so that a hostile file cannot make a reader allocate what it likes.
inline constexpr std::int64_t kSafetensorsMaxHeaderBytes = 100'000'000;

/// An element type of safetensors.
struct StorageType {
  std::string_view name;       // as headers spell it: "BF16"
  int bits = 0;                // of one element
  std::optional<DType> dtype;  // where a training step can hold it
  bool operator==(const StorageType& other) const { return name == other.name; }
};

/// A tensor of a file.
struct WeightTensor {
  std::string name;
  StorageType type;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  Bytes bytes = 0;
};

/// The tensors of one file in the order of their names. Throws Error(kInput), one line that names the file, what was
/// found and what is accepted, for whatever safetensors itself would refuse: a header that is no JSON or longer than
/// the file, a type that does not exist, a shape that its bytes do not fit, bytes that overlap, leave a gap or lie
/// beyond the end of the file.
[[nodiscard]] std::vector<WeightTensor> read_safetensors_header(const std::string& path);

/// "[768, 3072]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace memcalc
