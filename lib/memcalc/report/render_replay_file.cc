#include "memcalc/report/render_replay_file.h"

#include <array>
#include <string_view>
#include <variant>

#include "memcalc/cost/cost.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/missing_rates.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/device_rates.h"

namespace memcalc {

namespace {

std::string_view type_of(const Kernel& kernel) {
  if (kernel.dtype == DType::kBFloat16) return "bf16";
  if (kernel.dtype == DType::kFloat16) return "fp16";
  return allows_tf32(kernel) ? "tf32" : "fp32";
}

/// The columns m, n, k and batch: what a kernel's shape is made of.
struct SizesOf {
  using Sizes = std::array<std::int64_t, 4>;

  Sizes operator()(const work::Rows& rows) const { return {rows.count, rows.width, 0, 0}; }
  Sizes operator()(const work::Resize& resize) const { return {resize.planes, resize.to_width, resize.from_width, 0}; }
  Sizes operator()(const work::EmbeddingGradient& gradient) const {
    return {gradient.indices, gradient.width, gradient.table_rows, 0};
  }
  Sizes operator()(const work::TensorList& list) const { return {list.tensors, 0, 0, 0}; }
  Sizes operator()(const work::Product& product) const { return {product.m, product.n, product.k, product.batch}; }
  Sizes operator()(const work::Attention& attention) const {
    return {attention.queries, attention.keys, attention.width, attention.heads};
  }
  Sizes operator()(const work::Convolution& convolution) const {
    return {convolution.pixels, convolution.channels, convolution.depth, convolution.groups};
  }
  Sizes operator()(const work::Wait& wait) const { return {wait.kernels, 0, 0, 0}; }
  Sizes operator()(const work::Communication& communication) const { return {0, 0, communication.distance, 0}; }
  template <typename Other>
  Sizes operator()(const Other& /*other*/) const {
    return {};
  }
};

void append_kernel(const Kernel& kernel, double seconds, std::string& out) {
  constexpr std::array<std::string_view, 4> kTransposed = {"none", "first", "second", "both"};
  out.append("k ").append(name_of(kernel.kind)).append(" ").append(type_of(kernel));
  const auto* product = kernel.as<work::Product>();
  const Transposed transposed = product != nullptr ? product->transposed : Transposed::kNone;
  out.append(" ").append(kTransposed.at(static_cast<std::size_t>(transposed)));
  for (const std::int64_t size : std::visit(SizesOf{}, kernel.work)) out += " " + std::to_string(size);
  out += " " + format_fixed(kernel.elements, 0) + " " + format_fixed(kernel.bytes, 0);
  out += " " + std::to_string(kernel.repeats) + " " + format_fixed(seconds * 1e6, 3) + " ";
  out.append(kernel.op->name).append("\n");
}

}  // namespace

std::string render_replay_file(const SymbolicRun& symbolic, const ReplayResult& memory, const DeviceSpec& device) {
  std::string out = "memcalc-replay 1\n";
  out += "p peak_allocated_bytes " + std::to_string(memory.peak_allocated) + "\n";
  out += "p peak_reserved_bytes " + std::to_string(memory.peak_reserved) + "\n";
  const bool timed = device.rates != nullptr && missing_rates(symbolic.kernels, device).empty();
  if (timed) {
    const StepTime time = cost(symbolic.kernels, device, *device.rates);
    out += "p step_seconds " + format_exact(time.step_seconds) + "\n";
  }
  for (const Event& event : symbolic.trace.events) {
    if (event.kind == EventKind::kEmptyCache) {
      out += "e\n";
      continue;
    }
    out += (event.kind == EventKind::kAllocate ? "a " : "f ") + std::to_string(event.block);
    if (event.kind == EventKind::kAllocate) {
      out += " " + std::to_string(symbolic.trace.blocks[static_cast<std::size_t>(event.block)].requested);
    }
    out += "\n";
  }
  for (const Kernel& kernel : symbolic.kernels) {
    if (kernel.kind == KernelKind::kPartOfPrevious) continue;
    append_kernel(kernel, timed ? kernel_seconds(kernel, device, *device.rates) : 0, out);
  }
  return out;
}

}  // namespace memcalc
