#include "memcalc/report/render_replay_file.h"

#include <array>
#include <string_view>

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
  return kernel.flag ? "tf32" : "fp32";
}

void append_kernel(const Kernel& kernel, double seconds, std::string& out) {
  constexpr std::array<std::string_view, 4> kTransposed = {"none", "first", "second", "both"};
  out.append("k ").append(name_of(kernel.kind)).append(" ").append(type_of(kernel));
  out.append(" ").append(kTransposed.at(static_cast<std::size_t>(kernel.transposed)));
  for (const std::int64_t size : {kernel.m, kernel.n, kernel.k, kernel.batch}) out += " " + std::to_string(size);
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
