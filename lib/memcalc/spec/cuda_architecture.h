// Which of NVIDIA's architectures a card is of: what libraries ask before they choose a kernel.
// Covered by tests/unit/cuda_architecture_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// By its compute capability, ten times the major number and the minor one; the names are of the first that has it
/// (CUDA C++ Programming Guide, "Compute Capabilities"). To be compared by <: later ones have what earlier ones have.
enum class CudaArchitecture : std::uint16_t {
  kNone = 0,  // no CUDA device
  kMaxwell = 50,
  kVolta = 70,
  kXavier = 72,  // Volta's cores with products of 8-bit integers
  kTuring = 75,
  kAmpere = 80,
  kAda = 89,
  kHopper = 90,
  kBlackwell = 100,
  kBlackwellUltra = 103,
  kAfterBlackwell = 130,  // whose workstations' and games' cards are 12.0
};

[[nodiscard]] constexpr CudaArchitecture architecture_of(int major, int minor) {
  return static_cast<CudaArchitecture>(10 * major + minor);
}
[[nodiscard]] inline CudaArchitecture architecture_of(const DeviceSpec& device) {
  return architecture_of(device.compute_capability_major, device.compute_capability_minor);
}

[[nodiscard]] inline bool is_cuda(const DeviceSpec& device) { return device.compute_capability_major > 0; }

/// Whether the card's major number is that one's: Hopper is all of 9.x, the large cards of Blackwell are 10.x.
[[nodiscard]] constexpr int major_of(CudaArchitecture architecture) { return static_cast<int>(architecture) / 10; }
[[nodiscard]] inline bool is_of(const DeviceSpec& device, CudaArchitecture architecture) {
  return device.compute_capability_major == major_of(architecture);
}

}  // namespace memcalc
