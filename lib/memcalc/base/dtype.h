// DType: the element types that appear in a training step, named as PyTorch names them.
#pragma once

#include <cstdint>
#include <string_view>

namespace memcalc {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kUInt8, kBool, kComplex64 };

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kUInt8:
    case DType::kBool: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
}

/// float16 and bfloat16: the types that tensor cores take without TF32.
[[nodiscard]] constexpr bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

/// "float32", "bfloat16", …: torch's spelling.
[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"float32", "float16", "bfloat16", "float64",  "int64",
                                        "int32",   "uint8",   "bool",     "complex64"};
  return names[static_cast<int>(dtype)];
}

}  // namespace memcalc
