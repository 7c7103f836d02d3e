// Memory of the card: owned buffers, and how much of the card is in use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_check.h"

namespace memcalc::probe {

/// Bytes from cudaMalloc, returned when the handle dies.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) { MEMCALC_CUDA(cudaMalloc(&pointer_, bytes)); }
  DeviceBuffer(DeviceBuffer&& other) noexcept : pointer_(other.pointer_), bytes_(other.bytes_) {
    other.pointer_ = nullptr;
  }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(pointer_); }

  [[nodiscard]] void* get() const { return pointer_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

/// What the driver counts as used on a card, by every process: NVML's figure, loaded at run time; where there is no
/// NVML, cudaMemGetInfo's, which needs a context and so cannot see what was used before one.
class DeviceUse {
 public:
  DeviceUse();
  ~DeviceUse();
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

  [[nodiscard]] bool from_nvml() const { return nvml_device_ != nullptr; }
  /// Bytes in use; negative where neither source answers.
  [[nodiscard]] std::int64_t used_bytes() const;

 private:
  void* library_ = nullptr;
  void* nvml_device_ = nullptr;
};

}  // namespace memcalc::probe
