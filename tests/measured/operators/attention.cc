// F.scaled_dot_product_attention: the backend that torch chose on the H100, and those it was forced to take, which
// memcalc takes on a card that has nothing better.
#include "memcalc/symbolic/ops/attention.h"

#include "measured/operators/op_case.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

DeviceSpec with_compute_capability(int major, int minor) {
  DeviceSpec device = test::h100();
  device.compute_capability_major = major;
  device.compute_capability_minor = minor;
  return device;
}

/// [B, H, S, D] as a transposed [B, S, H, D], or as it is.
Tensor heads_input(TapeBench& bench, const OpCase& each, DType dtype, const Shape& s) {
  const bool needs_gradient = !each.has("grad") || each.flag("grad");
  if (each.text("layout") == "bhsd") return bench.input(s, dtype, needs_gradient);
  // "qkv": a third of a fused projection's rows.
  const std::int64_t row = s[1] * s[3] * (each.text("layout") == "qkv" ? 3 : 1);
  return bench.strided_input(s, {s[2] * row, s[3], row, 1}, dtype, needs_gradient);
}

Tensor mask_input(TapeBench& bench, const OpCase& each, DType dtype) {
  const std::string kind = each.text("mask");
  if (kind.empty()) return {};
  const auto has = [&](const char* part) { return kind.find(part) != std::string::npos; };
  const Shape shape{has("one") ? 1 : each.integer("B"), 1, each.integer("Sq"), each.integer("Sk")};
  Shape strides{shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
  if (has("exp")) strides = {shape[3], shape[3], 0, 1};
  return bench.strided_input(shape, strides, has("bool") ? DType::kBool : dtype, false);
}

Prepare attention(std::optional<DType> forced_dtype = std::nullopt) {
  return [forced_dtype](TapeBench& bench, const OpCase& each) {
    const DType dtype = forced_dtype.value_or(each.dtype());
    const std::int64_t batch = each.integer("B"), dim = each.integer("D"), value_dim = each.integer_or("Dv", dim);
    const Shape query{batch, each.integer("Hq"), each.integer("Sq"), dim};
    const Shape key{batch, each.integer("Hkv"), each.integer("Sk"), dim};
    const Shape value{batch, key[1], key[2], value_dim};
    const Tensor q = heads_input(bench, each, dtype, query);
    const Tensor k = heads_input(bench, each, dtype, key);
    const Tensor v = heads_input(bench, each, dtype, value);
    const Tensor mask = mask_input(bench, each, dtype);
    const SdpaOptions options{.dropout = each.number("drop"), .causal = each.flag("causal")};
    Operation operation;
    operation.forward = [=] { return scaled_dot_product_attention(q, k, v, mask, options); };
    operation.gradient = [&bench, &each](const Tensor& output) {  // [B, S, H, D] transposed, or as the output
      if (each.text("layout") == "bhsd") return Tensor{};
      const Shape& s = output.shape();
      return bench.strided_input(s, {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, output.dtype(), false);
    };
    return operation;
  };
}

Outcome run_math(const OpCase& each) {
  const bool half = is_half(each.dtype());
  if (!half && each.integer("Hq") == each.integer("Hkv")) {
    return {.skipped = "math forced in float32: with as many key heads torch takes the memory-efficient kernel"};
  }
  return compare(each, with_compute_capability(7, 5), attention(half ? std::optional(DType::kBFloat16) : std::nullopt));
}

}  // namespace

std::vector<Runner> attention_runners() {
  return {
      ordinary("sdpa", attention()),
      // Volta and Turing in float16 have neither cuDNN's nor the flash kernel.
      {"sdpa:EFFICIENT_ATTENTION",
       [](const OpCase& each) { return compare(each, with_compute_capability(7, 5), attention(DType::kFloat16)); }},
      {"sdpa:FLASH_ATTENTION",
       [](const OpCase& each) { return compare(each, with_compute_capability(8, 0), attention()); }},
      {"sdpa:MATH", run_math},
  };
}

}  // namespace memcalc::measured
