#include "device_file.h"

#include <cuda_runtime.h>

#include <cctype>
#include <cstdio>
#include <fstream>

#include "cuda_check.h"
#include "memcalc/memcalc.h"

namespace memcalc::probe {

namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  MEMCALC_CUDA(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

// Multiply-adds of a tensor core's unit group, a clock and SM, in 16 bits and dense: whitepapers of the architectures.
double half_flops_per_clock(int major, int minor) {
  if (major >= 9) return 4096;                    // Hopper and later: 4 x 512 multiply-adds
  if (major == 8 && minor == 0) return 4096 / 2;  // A100: 4 x 256
  if (major == 8) return 1024;                    // GA10x, Ada
  if (major == 7) return 1024;
  return 256;
}

double fp32_flops_per_clock(int major, int minor) { return major >= 9 || (major == 8 && minor > 0) ? 256 : 128; }

}  // namespace

DeviceFile describe_device() {
  cudaDeviceProp properties{};
  MEMCALC_CUDA(cudaGetDeviceProperties(&properties, 0));
  DeviceFile file;
  file.description = properties.name;
  for (const char c : file.description) {
    file.name += std::isalnum(static_cast<unsigned char>(c)) != 0
                     ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
                     : '-';
  }
  file.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  file.major = properties.major;
  file.minor = properties.minor;
  file.multiprocessors = properties.multiProcessorCount;
  file.threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor;
  const double clock = 1e3 * attribute(cudaDevAttrClockRate);
  const double memory_clock = 1e3 * attribute(cudaDevAttrMemoryClockRate);
  file.bandwidth = 2 * memory_clock * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  file.half_flops = half_flops_per_clock(file.major, file.minor) * file.multiprocessors * clock;
  file.tf32_flops = file.major >= 8 ? file.half_flops / 2 : 0;
  file.fp32_flops = fp32_flops_per_clock(file.major, file.minor) * file.multiprocessors * clock;
  return file;
}

int write_device_file(const DeviceFile& file, const std::string& rows, const std::string& specs,
                      const std::string& path) {
  const SpecRegistry registry(specs);
  DeviceSpec device;
  try {
    device = registry.device(file.description);
  } catch (const Error&) {  // not among the specs
    device.memory_bandwidth_bytes_per_second = file.bandwidth;
    device.bf16_flops_per_second = file.major >= 8 ? file.half_flops : 0;
    device.fp16_flops_per_second = file.half_flops;
    device.tf32_flops_per_second = file.tf32_flops;
    device.fp32_flops_per_second = file.fp32_flops;
  }
  device.name = file.name;
  device.description = file.description;
  device.memory_bytes = file.memory_bytes;
  device.compute_capability_major = file.major;
  device.compute_capability_minor = file.minor;
  device.multiprocessors = file.multiprocessors;
  device.max_threads_per_multiprocessor = file.threads_per_multiprocessor;
  if (file.context_bytes >= 0) device.context_bytes = file.context_bytes;
  Calibration calibration = calibrate_device(device, registry.measured_rates(), rows, "the probe's rows");
  calibration.rates.measured_on = file.name;
  calibration.rates.scaling = {};  // of the card that was measured first
  calibration.rates.command = "memcalc-probe measure";
  for (const FitSummary& each : calibration.summary) {
    std::fprintf(stderr, "%-24s %4zu rows  median error %5.1f %%\n", each.name.c_str(), each.rows,
                 100 * each.median_error);
  }
  const std::string text = render_device_file(device, calibration.rates);
  if (path.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::ofstream out(path);
  out << text;
  return out.good() ? 0 : 2;
}

}  // namespace memcalc::probe
