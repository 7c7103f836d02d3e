// On which of several cards a run fits.
#include <cstddef>
#include <tuple>

#include "memcalc/memcalc.h"

namespace memcalc {
namespace {

// Cards that differ in size only ask for the same memory: one estimate serves both. Placement is compared by presence
// of any, since a measured one belongs to one card.
bool behaves_alike(const DeviceSpec& a, const DeviceSpec& b) {
  const auto behaviour = [](const DeviceSpec& d) {
    return std::make_tuple(d.compute_capability_major, d.compute_capability_minor, d.multiprocessors,
                           d.max_threads_per_multiprocessor, d.context_bytes, d.kernel_bytes, d.kernel_bytes_with_cudnn,
                           d.nccl.has_value(), d.cublas_workspace_bytes, d.cublaslt_workspace_bytes);
  };
  return behaviour(a) == behaviour(b) && !a.placement && !b.placement;
}

Bytes needed_on(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, Bytes unknown_context) {
  const Report report = estimate(model, run, device);
  if (report.device_used_bytes) return *report.device_used_bytes;
  return checked_add(report.memory.peak_reserved, device.context_bytes.value_or(unknown_context));
}

}  // namespace

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices,
                            Bytes unknown_context) {
  std::vector<FitRow> rows;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::size_t twin = 0;
    while (twin < i && !behaves_alike(devices[twin], devices[i])) ++twin;
    const Bytes needed = twin < i ? rows[twin].needed_bytes : needed_on(model, run, devices[i], unknown_context);
    rows.push_back({devices[i].name, devices[i].memory_bytes, needed, needed <= devices[i].memory_bytes});
  }
  return rows;
}

}  // namespace memcalc
