// The device file of a measured card: specs/schema/gpu.schema.json.
#pragma once

#include <cstdint>
#include <string>

namespace memcalc::probe {

/// What the driver says of card 0, and what follows from it. Rates a second, dense.
struct DeviceFile {
  std::string name;         // "nvidia-h100-80gb-hbm3"
  std::string description;  // as cudaGetDeviceProperties names it
  std::int64_t memory_bytes = 0;
  int major = 0, minor = 0, multiprocessors = 0, threads_per_multiprocessor = 0;
  std::int64_t context_bytes = -1;                        // -1: not known
  double bandwidth = 0;                                   // of the memory's clock and width
  double half_flops = 0, tf32_flops = 0, fp32_flops = 0;  // of units and boost clock
};

[[nodiscard]] DeviceFile describe_device();

/// Fits the rates to `rows` and writes the file; to standard output where `path` is empty. Where memcalc's specs know
/// the card, its datasheet stands in the file. Returns the exit status.
int write_device_file(const DeviceFile& file, const std::string& rows, const std::string& specs,
                      const std::string& path);

}  // namespace memcalc::probe
